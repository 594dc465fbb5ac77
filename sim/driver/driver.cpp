#include "sim/driver/driver.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace trnsim::driver {

namespace {

thread_local Fault t_last_fault = Fault::kCount;

constexpr uint64_t kCodeAlignment = 4096;
constexpr uint64_t kTensorAlignment = 64;

Status out_of_range(const Allocation& a, uint64_t offset, uint64_t bytes) {
  return {Code::kInvalid, "user error: bytes " + std::to_string(offset) + " to " +
                              std::to_string(offset + bytes) + " of a block of " + std::to_string(a.bytes) +
                              " bytes"};
}

bool in_range(const Allocation& a, uint64_t offset, uint64_t bytes) {
  return a.valid() && offset <= a.bytes && bytes <= a.bytes - offset;
}

}  // namespace

Fault Driver::last_launch_fault() { return t_last_fault; }

Driver::Driver(Options options) : options_(std::move(options)) {
  for (int d = 0; d < options_.machine.devices; ++d) {
    auto state = std::make_unique<DeviceState>();
    state->stacks.resize(static_cast<size_t>(options_.machine.stacks_per_device));
    devices_.push_back(std::move(state));
  }
}

Driver::~Driver() = default;

Status Driver::open(Options options, std::unique_ptr<Driver>* out) {
  const MachineSpec& m = options.machine;
  if (m.devices < 1 || m.cores_per_device < 1 || m.stacks_per_device < 1 || m.stacks_per_device > 32 ||
      m.cores_per_device % m.stacks_per_device != 0 || m.cores() > kMaxCores)
    return {Code::kInvalid, "user error: a machine of " + std::to_string(m.devices) + " devices with " +
                                std::to_string(m.cores_per_device) + " cores and " +
                                std::to_string(m.stacks_per_device) +
                                " HBM stacks each; the cores of a device are a "
                                "multiple of its stacks, at most " +
                                std::to_string(kMaxCores) + " cores in all"};
  if (m.bytes_per_stack <= m.firmware_bytes + kLargeGrain)
    return {Code::kInvalid, "user error: an HBM stack of " + std::to_string(m.bytes_per_stack) +
                                " bytes; the first " + std::to_string(m.firmware_bytes) +
                                " bytes are kept for firmware"};
  std::unique_ptr<Driver> driver(new Driver(std::move(options)));
  const Options& o = driver->options_;
  Status s = o.shared ? RunDirectory::open_shared(o.run_dir, &driver->directory_)
                      : RunDirectory::open_private(&driver->directory_);
  if (s.ok()) s = driver->claims_.open(driver->directory_.path(), o.machine.cores());
  if (s.ok()) s = driver->counters_.open(driver->directory_.path(), o.machine.cores(), o.process_tag);
  if (s.ok()) *out = std::move(driver);
  return s;
}

// --- ownership
// ------------------------------------------------------------------------------------------------------

Status Driver::claim_range(int first, int count) {
  if (faults_.hit(Fault::kCoreMap)) return {Code::kBusy, "injected fault: core_map"};
  return claims_.claim_range(first, count, options_.process_tag);
}

Status Driver::claim_free(int count, int alignment, int* first) {
  if (faults_.hit(Fault::kCoreMap)) return {Code::kBusy, "injected fault: core_map"};
  return claims_.claim_free(count, alignment, options_.process_tag, first);
}

void Driver::release_claims() { claims_.release_all(); }

// --- memory
// ---------------------------------------------------------------------------------------------------------

Status Driver::stack_of(int core, HbmStack** out) {
  const MachineSpec& m = options_.machine;
  if (core < 0 || core >= m.cores())
    return {Code::kInvalid, "user error: core " + std::to_string(core) + " of a machine of " +
                                std::to_string(m.cores()) + " cores"};
  DeviceState& device = *devices_[static_cast<size_t>(core / m.cores_per_device)];
  const int stack = m.stack_of_core(core % m.cores_per_device);
  auto& slot = device.stacks[static_cast<size_t>(stack)];
  if ((device.ready_stacks.load(std::memory_order_acquire) >> stack & 1u) == 0) {
    const std::lock_guard lock(device.mutex);
    if (slot == nullptr) {
      auto made = std::make_unique<HbmStack>(m, stack);
      if (Status s = made->map(options_.mode != chip::Mode::kTime); !s.ok()) return s;
      slot = std::move(made);
      device.ready_stacks.fetch_or(1u << stack, std::memory_order_release);
    }
  }
  *out = slot.get();
  return {};
}

HbmStack* Driver::existing_stack(int core) const {
  const MachineSpec& m = options_.machine;
  const DeviceState& device = *devices_[static_cast<size_t>(core / m.cores_per_device)];
  const int stack = m.stack_of_core(core % m.cores_per_device);
  if ((device.ready_stacks.load(std::memory_order_acquire) >> stack & 1u) == 0) return nullptr;
  return device.stacks[static_cast<size_t>(stack)].get();
}

Status Driver::allocate(int core, uint64_t bytes, uint64_t alignment, MemoryCategory category,
                        Allocation* out) {
  if (faults_.hit(Fault::kMemoryAlloc)) return {Code::kNoMemory, "injected fault: memory_alloc"};
  HbmStack* stack = nullptr;
  if (Status s = stack_of(core, &stack); !s.ok()) return s;
  uint64_t offset = 0;
  uint64_t rounded = 0;
  // Constants and code are written whole, scratch is poisoned by the core's own rules.
  const Poison poison = category == MemoryCategory::kTensors ? options_.poison : Poison::kOff;
  if (Status s = stack->allocate(bytes, alignment, poison, &offset, &rounded); !s.ok()) return s;
  const MachineSpec& m = options_.machine;
  out->core = core;
  out->device = core / m.cores_per_device;
  out->stack = m.stack_of_core(core % m.cores_per_device);
  out->offset = offset;
  out->bytes = bytes;
  out->rounded = rounded;
  out->device_address = stack->device_address(offset);
  out->data = stack->data(offset);
  out->category = category;
  counters_.add_memory(core, category, static_cast<int64_t>(rounded));
  return {};
}

void Driver::free(const Allocation& a) {
  if (!a.valid()) return;
  HbmStack* stack = existing_stack(a.core);
  if (stack == nullptr) return;
  stack->free(a.offset, a.rounded);
  counters_.add_memory(a.core, a.category, -static_cast<int64_t>(a.rounded));
}

Status Driver::copy_in(const Allocation& to, uint64_t offset, const void* from, uint64_t bytes) {
  if (!in_range(to, offset, bytes)) return out_of_range(to, offset, bytes);
  if (faults_.hit(Fault::kDmaWait)) return {Code::kIo, "injected fault: dma_wait"};
  if (options_.mode != chip::Mode::kTime && bytes != 0) std::memcpy(to.data + offset, from, bytes);
  return {};
}

Status Driver::copy_out(const Allocation& from, uint64_t offset, void* to, uint64_t bytes) {
  if (!in_range(from, offset, bytes)) return out_of_range(from, offset, bytes);
  if (faults_.hit(Fault::kDmaWait)) return {Code::kIo, "injected fault: dma_wait"};
  if (bytes == 0) return {};
  // A timing-only run has no values; zeros keep the host program deterministic.
  if (options_.mode == chip::Mode::kTime)
    std::memset(to, 0, bytes);
  else
    std::memcpy(to, from.data + offset, bytes);
  return {};
}

Status Driver::copy(const Allocation& to, uint64_t to_offset, const Allocation& from, uint64_t from_offset,
                    uint64_t bytes) {
  if (!in_range(to, to_offset, bytes)) return out_of_range(to, to_offset, bytes);
  if (!in_range(from, from_offset, bytes)) return out_of_range(from, from_offset, bytes);
  if (options_.mode != chip::Mode::kTime && bytes != 0)
    std::memmove(to.data + to_offset, from.data + from_offset, bytes);
  return {};
}

Status Driver::fill(const Allocation& to, uint64_t offset, int value, uint64_t bytes) {
  if (!in_range(to, offset, bytes)) return out_of_range(to, offset, bytes);
  if (options_.mode != chip::Mode::kTime && bytes != 0) std::memset(to.data + offset, value, bytes);
  return {};
}

uint64_t Driver::memory_limit(int) const {
  return options_.machine.bytes_per_stack - options_.machine.firmware_bytes;
}

uint64_t Driver::memory_used(int core) const {
  const HbmStack* stack = existing_stack(core);
  return stack == nullptr ? 0 : stack->used();
}

uint64_t Driver::memory_peak() const {
  uint64_t sum = 0;
  for (const auto& d : devices_)
    for (size_t s = 0; s < d->stacks.size(); ++s)
      if ((d->ready_stacks.load(std::memory_order_acquire) >> s & 1u) != 0) sum += d->stacks[s]->peak();
  return sum;
}

Status Driver::map_stack(int core, std::byte** base) {
  HbmStack* stack = nullptr;
  if (Status s = stack_of(core, &stack); !s.ok()) return s;
  *base = stack->data(0);
  return {};
}

std::string Driver::memory_table(int core) const {
  const int per_stack = options_.machine.cores_per_device / options_.machine.stacks_per_device;
  const int first = core / per_stack * per_stack;
  std::string text;
  for (int c = 0; c < static_cast<int>(MemoryCategory::kCount); ++c) {
    int64_t bytes = 0;
    for (int k = first; k < first + per_stack; ++k)
      bytes += counters_.memory(k, static_cast<MemoryCategory>(c)).present.load(std::memory_order_relaxed);
    if (bytes == 0) continue;
    text += std::string(text.empty() ? "" : ", ") + category_name(static_cast<MemoryCategory>(c)) + " " +
            std::to_string(bytes);
  }
  return text.empty() ? "nothing is allocated" : "in use: " + text;
}

// --- programs
// -------------------------------------------------------------------------------------------------------

Status Driver::chip_of(int core, chip::Device** out) {
  const MachineSpec& m = options_.machine;
  if (core < 0 || core >= m.cores())
    return {Code::kInvalid, "user error: core " + std::to_string(core) + " of a machine of " +
                                std::to_string(m.cores()) + " cores"};
  DeviceState& device = *devices_[static_cast<size_t>(core / m.cores_per_device)];
  const std::lock_guard lock(device.mutex);
  if (device.chip == nullptr && options_.make_chip) device.chip = options_.make_chip();
  if (device.chip == nullptr) return {Code::kIo, "not simulated: this build has no chip behind the driver"};
  *out = device.chip.get();
  return {};
}

Status Driver::load(int core, const uint8_t* bytes, size_t size, LoadedImage* out, chip::LoadError* error) {
  chip::Device* chip = nullptr;
  if (Status s = chip_of(core, &chip); !s.ok()) return s;
  *error = {};
  auto program = chip->load(bytes, size, error);
  if (program == nullptr) return {Code::kInvalid, error->message};
  LoadedImage image;
  image.core = core;
  const auto& tensors = program->tensors();
  image.constants.resize(tensors.size());
  Status s = allocate(core, std::max<uint64_t>(program->code_bytes(), 1), kCodeAlignment,
                      MemoryCategory::kModelCode, &image.code);
  // The streams themselves stay with the chip in decoded form; the block holds the container for readers of
  // memory.
  if (s.ok()) s = copy_in(image.code, 0, bytes, std::min<uint64_t>(size, image.code.bytes));
  for (size_t i = 0; s.ok() && i < tensors.size(); ++i) {
    const auto& contents = program->constant(i);
    if (contents.empty()) continue;
    s = allocate(core, std::max<uint64_t>(tensors[i].bytes, contents.size()), kTensorAlignment,
                 MemoryCategory::kConstants, &image.constants[i]);
    if (s.ok()) s = copy_in(image.constants[i], 0, contents.data(), contents.size());
  }
  image.program = std::move(program);
  if (!s.ok()) {
    unload(image);
    return s;
  }
  counters_.add(core, CoreCounter::kModelLoadCount);
  *out = std::move(image);
  return s;
}

void Driver::unload(LoadedImage& image) {
  free(image.code);
  for (const Allocation& a : image.constants) free(a);
  image = {};
}

chip::LaunchResult Driver::launch(const LoadedImage& image, const std::vector<chip::Binding>& bindings) {
  t_last_fault = Fault::kCount;
  const auto injected = [&](Fault f, chip::LaunchResult::Status status) {
    t_last_fault = f;
    chip::LaunchResult r;
    r.status = status;
    r.message = std::string("injected fault: ") + fault_name(f) + " on core " + std::to_string(image.core);
    return r;
  };
  using S = chip::LaunchResult::Status;
  if (faults_.hit(Fault::kHang)) return injected(Fault::kHang, S::kHang);
  for (Fault f : {Fault::kHbmUncorrectable, Fault::kHbmRepairable, Fault::kCoreParity, Fault::kDmaAbort,
                  Fault::kQueueOverflow})
    if (faults_.hit(f)) return injected(f, S::kIllegal);
  const MachineSpec& m = options_.machine;
  DeviceState& device = *devices_[static_cast<size_t>(image.core / m.cores_per_device)];
  // The chip exists: a loaded image came from it.
  chip::LaunchResult result = device.chip->launch(image.core % m.cores_per_device, *image.program, bindings);
  if (result.status == S::kOk && faults_.hit(Fault::kNumerical)) {
    const chip::LaunchStats stats = result.stats;
    result = injected(Fault::kNumerical, S::kNumericalError);
    result.stats = stats;
  }
  counters_.add(image.core, CoreCounter::kInferenceCount);
  for (int n = 0; n < image.program->cores(); ++n)
    counters_.add(image.core + n, CoreCounter::kNcTimeInUsePs, result.stats.total_ps);
  counters_.add(image.core, CoreCounter::kFlopCount, static_cast<int64_t>(image.program->flops()));
  return result;
}

void Driver::reset_core(int core) {
  chip::Device* chip = nullptr;
  if (!chip_of(core, &chip).ok()) return;
  counters_.add(core, CoreCounter::kResetReqCount);
  chip->reset_core(core % options_.machine.cores_per_device);
}

Status Driver::set_memo(int device, bool enabled) {
  chip::Device* chip = nullptr;
  if (Status s = chip_of(device * options_.machine.cores_per_device, &chip); !s.ok()) return s;
  chip->set_memo(enabled);
  return {};
}

}  // namespace trnsim::driver
