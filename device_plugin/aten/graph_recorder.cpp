#include "device_plugin/aten/graph_recorder.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <c10/util/strides.h>

#include <atomic>
#include <bit>

#include "device_plugin/aten/call.h"
#include "device_plugin/aten/dtypes.h"
#include "device_plugin/aten/program_store.h"
#include "device_plugin/aten/promotion.h"
#include "device_plugin/aten/queue.h"
#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

using compiler::kNoValue;

// Addresses that no process has: a value that does not exist yet cannot be read by accident.
constexpr uint64_t kFirstPlace = uint64_t{1} << 52;
constexpr uint64_t kPlaceAlignment = 4096;
std::atomic<uint64_t> next_place{kFirstPlace};

// Types that one program may take for each other: they differ in sign only, or are bool and a byte.
bool same_bits(isa::Dtype a, isa::Dtype b) {
  auto kind = [](isa::Dtype d) {
    switch (d) {
      case isa::Dtype::kBool:
      case isa::Dtype::kI8:
        return isa::Dtype::kU8;
      case isa::Dtype::kI16:
        return isa::Dtype::kU16;
      case isa::Dtype::kI32:
        return isa::Dtype::kU32;
      default:
        return d;
    }
  };
  return kind(a) == kind(b);
}

bool same_window(const compiler::TensorType& type, const at::Tensor& t) {
  return c10::IntArrayRef(type.sizes) == t.sizes() && c10::IntArrayRef(type.strides) == t.strides();
}

int64_t extent_elements(const compiler::TensorType& type) {
  return static_cast<int64_t>(extent_bytes(type.sizes, type.strides, 1));
}

}  // namespace

constinit thread_local Recorder* Recorder::active_ = nullptr;

void refuse_while_recording(const char* op, const char* reason) {
  if (Recorder* recorder = Recorder::active()) recorder->refuse(op, reason);
}

Recorder::Recorder(std::string name, c10::DeviceIndex device)
    : device_(device), program_(std::make_shared<GraphProgram>()) {
  graph_.name = std::move(name);
  program_->name = graph_.name;
  program_->device = device;
}

Recorder::~Recorder() { end(); }

void Recorder::begin() {
  TORCH_CHECK(active_ == nullptr, "internal error: this thread records a graph already");
  active_ = this;
}

void Recorder::end() {
  if (active_ == this) active_ = nullptr;
}

void Recorder::refuse(const std::string& op, const std::string& reason) {
  refusals_.push_back({tag_, op, reason});
  TORCH_CHECK_NOT_IMPLEMENTED(false, "not simulated: ", op, " as part of a compiled graph: ", reason);
}

c10::DataPtr Recorder::place(size_t bytes) {
  const uint64_t size = (bytes + kPlaceAlignment) / kPlaceAlignment * kPlaceAlignment;
  return {reinterpret_cast<void*>(next_place.fetch_add(size)),
          c10::Device(c10::DeviceType::PrivateUse1, device_)};
}

void Recorder::resize(const c10::Storage& storage, size_t bytes) {
  const auto it = memories_.find(storage.unsafeGetStorageImpl());
  if (it != memories_.end() && it->second.value != kNoValue)
    refuse("aten::resize_", "a tensor of the graph gets more memory");
  storage.set_data_ptr_noswap(place(bytes));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

void Recorder::locate(std::string file, int32_t line, int64_t tag) {
  file_ = std::move(file);
  line_ = line;
  tag_ = tag;
}

// ---- arguments of the program
// ----------------------------------------------------------------------------------------------
int32_t Recorder::add_input(GraphProgram::Input input, const c10::Storage& storage, int64_t origin) {
  const ValueId id = add_value(input.meta.dtype, input.meta.sizes, input.meta.strides);
  Memory memory;
  memory.storage = storage;
  memory.value = id;
  memory.origin = origin;
  memory.dtype = input.meta.dtype;
  memory.input = static_cast<int32_t>(program_->inputs_.size());
  graph_.inputs.push_back(id);
  const int32_t position = memory.input;
  memories_[storage.unsafeGetStorageImpl()] = std::move(memory);
  program_->inputs_.push_back(std::move(input));
  return position;
}

at::Tensor Recorder::input(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                           int64_t storage_offset) {
  GraphProgram::Input input;
  input.argument = static_cast<int32_t>(program_->num_tensors_++);
  const size_t item = c10::elementSize(dtype);
  const size_t extent = extent_bytes(sizes, strides, item);
  const size_t bytes = extent + static_cast<size_t>(storage_offset) * item;
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, place(bytes), &device_allocator(), /*resizable=*/false);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                          c10::scalarTypeToTypeMeta(dtype));
  t.unsafeGetTensorImpl()->set_storage_offset(storage_offset);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  input.meta = meta_of(t);
  add_input(std::move(input), t.storage(), storage_offset);
  return t;
}

at::Tensor Recorder::number(c10::ScalarType dtype, bool wrapped) {
  at::Tensor t = at::empty({}, at::TensorOptions().dtype(dtype).device(at::kCPU));
  t.fill_(1);  // in the domain of every check
  if (wrapped) t.unsafeGetTensorImpl()->set_wrapped_number(true);
  numbers_[t.unsafeGetTensorImpl()] = static_cast<int32_t>(program_->num_numbers_++);
  number_tensors_.push_back(t);
  return t;
}

void Recorder::require_nonzero(const at::Tensor& number) {
  program_->divisors_.push_back(numbers_.at(number.unsafeGetTensorImpl()));
}

std::optional<int32_t> Recorder::number_of(const at::Tensor& t) const {
  const auto it = numbers_.find(t.unsafeGetTensorImpl());
  if (it == numbers_.end()) return std::nullopt;
  return it->second;
}

// ---- memory
// ----------------------------------------------------------------------------------------------------------------
Recorder::ValueId Recorder::add_value(c10::ScalarType dtype, c10::IntArrayRef sizes,
                                      c10::IntArrayRef strides) {
  const auto type = to_isa(dtype);
  if (!type) refuse("the graph", "the hardware has no " + std::string(c10::toString(dtype)) + " type");
  graph_.values.push_back({{*type, sizes.vec(), strides.vec()}, kNoValue});
  return static_cast<ValueId>(graph_.values.size()) - 1;
}

Recorder::Memory& Recorder::memory_of(const at::Tensor& t) {
  const auto it = memories_.find(t.storage().unsafeGetStorageImpl());
  if (it != memories_.end()) return it->second;
  if (reinterpret_cast<uint64_t>(t.storage().data()) >= kFirstPlace || t.storage().nbytes() == 0) {
    Memory memory;
    memory.storage = t.storage();
    return memories_[t.storage().unsafeGetStorageImpl()] = std::move(memory);
  }
  // A tensor from outside that is no argument: a constant of the graph.
  TORCH_CHECK(t.device().index() == device_, "user error: a tensor on ", t.device(),
              " in a graph that is compiled for neuron:", static_cast<int>(device_));
  GraphProgram::Input input;
  input.captured = t;
  input.meta = meta_of(t);
  add_input(std::move(input), t.storage(), t.storage_offset());
  return memories_[t.storage().unsafeGetStorageImpl()];
}

// The value that is what `t` shows of the memory.
Recorder::ValueId Recorder::window(const Memory& memory, const at::Tensor& t) {
  const compiler::TensorType& base = graph_.values[static_cast<size_t>(memory.value)].type;
  const auto dtype = to_isa(t.scalar_type());
  const int64_t offset = t.storage_offset() - memory.origin;
  if (dtype == base.dtype && offset == 0 && same_window(base, t)) return memory.value;
  if (!dtype || !same_bits(*dtype, base.dtype))
    refuse("aten::view.dtype", "memory that is written as " + std::string(c10::toString(memory.dtype)) +
                                   " and read as " + c10::toString(t.scalar_type()));
  compiler::Value view{{*dtype, t.sizes().vec(), t.strides().vec()}, kNoValue};
  if (offset < 0 || offset + extent_elements(view.type) > extent_elements(base))
    refuse("aten::as_strided", "a view goes beyond the tensor that the graph was given");
  view.view_of = memory.value;
  view.offset = offset;
  std::string key(reinterpret_cast<const char*>(&view.view_of), sizeof view.view_of);
  auto add = [&key](const void* data, size_t bytes) { key.append(static_cast<const char*>(data), bytes); };
  add(&offset, sizeof offset);
  add(&*dtype, sizeof *dtype);
  add(t.sizes().data(), t.sizes().size() * sizeof(int64_t));
  add(t.strides().data(), t.strides().size() * sizeof(int64_t));
  const auto [it, is_new] = windows_.try_emplace(std::move(key), static_cast<ValueId>(graph_.values.size()));
  if (is_new) graph_.values.push_back(std::move(view));
  return it->second;
}

Recorder::ValueId Recorder::read(const at::Tensor& t) {
  if (t.numel() == 0) return add_value(t.scalar_type(), t.sizes(), t.strides());
  Memory& memory = memory_of(t);
  if (memory.value == kNoValue) {  // nothing was written, and yet a part of an empty tensor may be kept
    memory.value =
        add_value(t.scalar_type(), {static_cast<int64_t>(t.storage().nbytes() / t.itemsize())}, {1});
    memory.dtype = t.scalar_type();
    compiler::Node zero;
    zero.op = "aten::zero";
    zero.args = {compiler::Arg(kNoValue)};
    zero.results = {memory.value};
    graph_.nodes.push_back(std::move(zero));
  }
  return window(memory, t);
}

Recorder::ValueId Recorder::write(const at::Tensor& t) {
  if (t.numel() == 0) return add_value(t.scalar_type(), t.sizes(), t.strides());
  Memory& memory = memory_of(t);
  if (memory.input >= 0) {
    GraphProgram::Input& input = program_->inputs_[static_cast<size_t>(memory.input)];
    const ValueId argument = graph_.inputs[static_cast<size_t>(memory.input)];
    if (!input.written) {  // from here on the memory is an output
      input.written = true;
      compiler::Value output = graph_.values[static_cast<size_t>(argument)];
      output.alias = argument;
      memory.value = static_cast<ValueId>(graph_.values.size());
      graph_.values.push_back(std::move(output));
      graph_.outputs.push_back(memory.value);
      program_->outputs_.push_back(input.meta);
      program_->output_of_input_.push_back(memory.input);
    }
    return window(memory, t);
  }
  const size_t bytes = t.storage().nbytes();
  const bool whole = non_overlapping_and_dense(t) && static_cast<size_t>(t.numel()) * t.itemsize() == bytes;
  const bool fresh = memory.value == kNoValue && t.storage_offset() == 0 && tensor_extent_bytes(t) == bytes;
  if (whole || fresh) {
    memory.value = add_value(t.scalar_type(), t.sizes(), t.strides());
    memory.origin = 0;
    memory.dtype = t.scalar_type();
    return memory.value;
  }
  if (memory.value == kNoValue) {
    memory.value = add_value(t.scalar_type(), {static_cast<int64_t>(bytes / t.itemsize())}, {1});
    memory.dtype = t.scalar_type();
  }
  return window(memory, t);
}

// ---- operators
// -----------------------------------------------------------------------------------------------------------------
compiler::ParamRef Recorder::param_for(int32_t number, isa::Dtype dtype,
                                       const Plan::ParamConversion* conversion) {
  GraphProgram::NumberUse use;
  use.number = number;
  use.dtype = dtype;
  use.converts = conversion != nullptr;
  if (conversion != nullptr) use.to = conversion->to;
  return {slot_of(use), use.converts ? param_dtype(use.to) : dtype};
}

std::vector<compiler::ParamRef> Recorder::inverse_for(int32_t number, isa::Dtype dtype) {
  GraphProgram::NumberUse use;
  use.number = number;
  use.dtype = dtype;
  use.inverse = true;
  const int32_t slot = slot_of(use);
  std::vector<compiler::ParamRef> parts;
  for (int32_t word = 0; word < kInverseWords; ++word) parts.push_back({slot + word, isa::Dtype::kF32});
  return parts;
}

int32_t Recorder::slot_of(GraphProgram::NumberUse use) {
  for (const GraphProgram::NumberUse& known : program_->number_uses_)
    if (known.number == use.number && known.dtype == use.dtype && known.converts == use.converts &&
        known.to == use.to && known.inverse == use.inverse)
      return known.slot;
  use.slot = graph_.num_params;
  graph_.num_params += use.inverse ? kInverseWords : 1;
  program_->params_.resize(static_cast<size_t>(graph_.num_params), 0);
  program_->number_uses_.push_back(use);
  return use.slot;
}

void Recorder::append(RecordedCall call) {
  std::vector<ValueId> value_of(call.graph.values.size(), kNoValue);
  for (size_t i = 0; i < call.inputs.size(); ++i)
    value_of[static_cast<size_t>(call.graph.inputs[i])] = read(*call.inputs[i]);
  for (size_t o = 0; o < call.results.size(); ++o)
    value_of[static_cast<size_t>(call.graph.outputs[o])] = write(call.results[o]);
  for (size_t v = 0; v < value_of.size(); ++v) {
    if (value_of[v] != kNoValue) continue;  // a value between the nodes of the call
    value_of[v] = static_cast<ValueId>(graph_.values.size());
    graph_.values.push_back({call.graph.values[v].type, kNoValue});
  }

  // Parameters of an eager program become constants, but for numbers that each call brings and the random state.
  const auto num_values = static_cast<int32_t>(call.params.size());
  auto conversion_of = [&](int32_t slot) -> const Plan::ParamConversion* {
    for (const Plan::ParamConversion& c : call.conversions)
      if (c.slot == slot) return &c;
    return nullptr;
  };
  auto as_constant = [&](const compiler::ParamRef& p) -> compiler::Arg {
    uint32_t bits = call.params[static_cast<size_t>(p.slot)];
    if (const auto* c = conversion_of(p.slot)) bits = converted_param(bits, c->from, c->to);
    if (p.dtype == isa::Dtype::kF32) return static_cast<double>(std::bit_cast<float>(bits));
    return static_cast<int64_t>(static_cast<int32_t>(bits));
  };
  auto number_in = [&](int32_t slot) -> std::optional<int32_t> {
    for (const auto& [at_slot, number] : call.numbers)
      if (at_slot == slot) return number;
    return std::nullopt;
  };
  int32_t random_slot = -1;
  auto in_graph = [&](const compiler::ParamRef& p) -> compiler::ParamRef {
    if (p.slot >= num_values) {
      if (random_slot < 0) {
        random_slot = graph_.num_params;
        graph_.num_params += 4;
        program_->params_.resize(static_cast<size_t>(graph_.num_params), 0);
        program_->random_uses_.push_back({random_slot, call.random_words});
      }
      return {random_slot + (p.slot - num_values), p.dtype};
    }
    // A slot of its own with a value that stands.
    const compiler::ParamRef own{graph_.num_params++, p.dtype};
    program_->params_.push_back(call.params[static_cast<size_t>(p.slot)]);
    return own;
  };
  auto rewritten = [&](const compiler::Arg& arg) -> compiler::Arg {
    if (const auto* id = std::get_if<ValueId>(&arg))
      return *id == kNoValue ? kNoValue : value_of[static_cast<size_t>(*id)];
    if (const auto* list = std::get_if<compiler::ValueList>(&arg)) {
      compiler::ValueList out;
      for (ValueId id : list->ids)
        out.ids.push_back(id == kNoValue ? kNoValue : value_of[static_cast<size_t>(id)]);
      return out;
    }
    if (const auto* p = std::get_if<compiler::ParamRef>(&arg)) {
      if (const auto number = number_in(p->slot)) {
        const auto* c = conversion_of(p->slot);
        return param_for(*number, c != nullptr ? c->from : p->dtype, c);
      }
      return as_constant(*p);
    }
    if (const auto* list = std::get_if<std::vector<compiler::ParamRef>>(&arg)) {
      std::vector<compiler::ParamRef> out;
      for (const compiler::ParamRef& p : *list) out.push_back(in_graph(p));
      return out;
    }
    return arg;
  };
  for (const compiler::Node& node : call.graph.nodes) {
    compiler::Node copy;
    copy.op = node.op;
    for (const compiler::Arg& arg : node.args) {
      // The parts of an inverse stand behind the numbers; a constant brings none.
      const auto* list = std::get_if<std::vector<compiler::ParamRef>>(&arg);
      const bool inverse =
          list != nullptr && !list->empty() && list->front().slot >= num_values && !call.inverses.empty();
      if (!inverse) {
        copy.args.push_back(rewritten(arg));
      } else if (const auto number = number_in(call.inverses.front().slot)) {
        copy.args.emplace_back(inverse_for(*number, call.inverses.front().type));
      }
    }
    for (ValueId id : node.results)
      copy.results.push_back(id == kNoValue ? kNoValue : value_of[static_cast<size_t>(id)]);
    copy.file = file_;
    copy.line = line_;
    graph_.nodes.push_back(std::move(copy));
  }
  pieces_.push_back(std::move(call.graph));
  piece_tags_.push_back(tag_);
}

void Recorder::copy_from_host(const at::Tensor& destination, const at::Tensor& source) {
  const std::optional<int32_t> number = number_of(source);
  if (!number) {  // a constant: it goes to the device now
    active_ = nullptr;
    at::Tensor constant;
    try {
      constant = source.to(c10::Device(c10::DeviceType::PrivateUse1, device_), destination.scalar_type());
    } catch (...) {
      active_ = this;
      throw;
    }
    active_ = this;
    device_copy(destination, constant.expand(destination.sizes()));
    return;
  }
  const isa::Dtype dtype = c10::isFloatingType(source.scalar_type()) ? isa::Dtype::kF32 : isa::Dtype::kI32;
  compiler::Node node;
  node.op = "aten::copy";
  node.args = {compiler::Arg(kNoValue), compiler::Arg(param_for(*number, dtype, nullptr)),
               compiler::Arg(false)};
  node.results = {write(destination)};
  node.file = file_;
  node.line = line_;
  graph_.nodes.push_back(std::move(node));
}

// ---- the end
// -------------------------------------------------------------------------------------------------------------------
// The operators that eager execution would send to the host too.
std::vector<Refusal> Recorder::refusals_of_nodes() {
  std::vector<Refusal> refusals;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const StoredProgram program = find_or_compile(pieces_[i]);
    if (program.status == compiler::CompileResult::Status::kUnsupported)
      refusals.push_back({piece_tags_[i], pieces_[i].nodes.back().op, program.message});
  }
  return refusals;
}

std::shared_ptr<GraphProgram> Recorder::finish(const std::vector<at::Tensor>& results) {
  end();
  GraphProgram& program = *program_;
  std::unordered_map<ValueId, int32_t> output_of_value;
  for (size_t o = 0; o < graph_.outputs.size(); ++o)
    output_of_value[graph_.outputs[o]] = static_cast<int32_t>(o);
  for (const at::Tensor& t : results) {
    GraphProgram::Result result;
    if (!t.defined()) {
      program.results_.push_back(result);
      continue;
    }
    TORCH_CHECK(on_device(t), "internal error: a result of a device graph on ", t.device());
    result.meta = meta_of(t);
    Memory& memory = memory_of(t);
    if (memory.input >= 0) {
      const GraphProgram::Input& input = program.inputs_[static_cast<size_t>(memory.input)];
      result.kind = GraphProgram::Result::Kind::kInput;
      result.index = memory.input;
      result.offset = t.storage_offset() - memory.origin;
      result.whole = result.offset == 0 && t.scalar_type() == input.meta.dtype &&
                     t.sizes() == c10::IntArrayRef(input.meta.sizes) &&
                     t.strides() == c10::IntArrayRef(input.meta.strides);
    } else if (memory.value == kNoValue || t.numel() == 0) {
      result.kind = GraphProgram::Result::Kind::kNoValues;
    } else {
      const auto [it, is_new] =
          output_of_value.try_emplace(memory.value, static_cast<int32_t>(graph_.outputs.size()));
      const compiler::TensorType& type = graph_.values[static_cast<size_t>(memory.value)].type;
      if (is_new) {
        graph_.outputs.push_back(memory.value);
        TensorMeta meta;
        meta.dtype = memory.dtype;
        meta.sizes.assign(type.sizes.begin(), type.sizes.end());
        meta.strides.assign(type.strides.begin(), type.strides.end());
        meta.extent_bytes = extent_bytes(meta.sizes, meta.strides, c10::elementSize(meta.dtype));
        program.outputs_.push_back(std::move(meta));
        program.output_of_input_.push_back(-1);
      }
      result.kind = GraphProgram::Result::Kind::kOutput;
      result.index = it->second;
      result.offset = t.storage_offset() - memory.origin;
      result.whole = result.offset == 0 && t.scalar_type() == memory.dtype && same_window(type, t);
    }
    program.results_.push_back(std::move(result));
  }
  for (size_t o = 0; o < program.outputs_.size(); ++o)
    program.fresh_outputs.push_back(program.output_of_input_[o] < 0 && program.outputs_[o].extent_bytes > 0);
  program.num_nodes_ = graph_.nodes.size();
  if (graph_.nodes.empty()) {
    program.kind = Plan::Kind::kNothing;
    return program_;
  }
  const Loading loading = load_program(program, graph_);
  program.compiled_ = loading.compiled;
  program.compile_us_ = loading.compile_us;
  if (program.kind == Plan::Kind::kProgram) {
    keep_bindings_known(program);
    return program_;
  }
  const std::string reason = program.reason;
  refusals_ = refusals_of_nodes();
  TORCH_CHECK_NOT_IMPLEMENTED(!refusals_.empty(), "neuron: compiling ", graph_.name, " failed: ", reason);
  return nullptr;
}

}  // namespace trnsim::aten
