// Programs of the GpSimd processors that follow lists, the partition shuffle, and registered host functions.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "isa/names.h"
#include "sim/exec/block.h"

namespace trnsim::exec {
namespace {

constexpr int kCorePartitions = 16;  // of one processor

// All free elements of one partition, packed.
std::byte* load_row(const Operand& o, const std::byte* base, int partition, std::vector<std::byte>* out) {
  out->resize(static_cast<size_t>(o.n * o.bytes));
  load_raw_block(o, base, partition, 1, 0, static_cast<int>(o.n), out->data());
  return out->data();
}

[[noreturn]] void bad_index(Context& c, const Prepared& p, int64_t index, int partition, int64_t elements) {
  throw Fault{Status::Kind::kOutOfBounds, "index " + std::to_string(index) + " (partition " +
                                              std::to_string(partition) + " of src1) is outside the " +
                                              std::to_string(elements) + " elements of src0; at " +
                                              c.where(p)};
}

int64_t load_index(const Operand& o, const std::byte* base, int partition, int64_t k) {
  return isa::load_as_int(o.dtype, base + partition * o.pitch + element_offset(o, k));
}

}  // namespace

void execute_local_gather(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0, &list = *p.src1;
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  const std::byte* q = c.at(p, list);
  const int64_t indices = p.imm > 0 ? p.imm : list.n * kCorePartitions;
  const int64_t bytes = int64_t{p.count} * dst.bytes;
  std::vector<std::byte> row, out(static_cast<size_t>(indices * bytes));
  std::vector<int64_t> index(static_cast<size_t>(indices));
  for (int group = 0; group < dst.rows; group += kCorePartitions) {
    for (int64_t i = 0; i < indices; ++i) {
      const int partition = group + static_cast<int>(i % kCorePartitions);
      const int64_t v = load_index(list, q, partition, i / kCorePartitions);
      if (v < 0 || v + p.count > src.n) bad_index(c, p, v, partition, src.n);
      index[static_cast<size_t>(i)] = v;
    }
    for (int partition = group; partition < group + kCorePartitions; ++partition) {
      const std::byte* values = load_row(src, s, partition, &row);
      for (int64_t i = 0; i < indices; ++i) {
        std::memcpy(out.data() + i * bytes, values + index[static_cast<size_t>(i)] * src.bytes,
                    static_cast<size_t>(bytes));
      }
      store_raw_block(dst, d, partition, 1, 0, static_cast<int>(dst.n), out.data());
    }
  }
}

void execute_n_gather(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0, &list = *p.src1;
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  const std::byte* q = c.at(p, list);
  std::vector<std::byte> row, out(static_cast<size_t>(dst.n * dst.bytes));
  for (int partition = 0; partition < dst.rows; ++partition) {
    const std::byte* values = load_row(src, s, partition, &row);
    for (int64_t i = 0; i < dst.n; ++i) {
      const int64_t v = load_index(list, q, partition, i);
      if (v < 0 || v >= src.n) bad_index(c, p, v, partition, src.n);
      std::memcpy(out.data() + i * dst.bytes, values + v * src.bytes, static_cast<size_t>(dst.bytes));
    }
    store_raw_block(dst, d, partition, 1, 0, static_cast<int>(dst.n), out.data());
  }
}

void execute_sequence_bounds(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  const std::byte* s = c.at(p, src);
  std::vector<std::byte> row;
  const std::byte* values = load_row(src, s, 0, &row);
  const auto n = static_cast<size_t>(src.n);
  std::vector<double> id(n);
  for (size_t i = 0; i < n; ++i) {
    const std::byte* v = values + i * static_cast<size_t>(src.bytes);
    id[i] = isa::is_integer(src.dtype) ? static_cast<double>(isa::load_as_int(src.dtype, v))
                                       : isa::load_as_f32(src.dtype, v);
  }
  std::vector<float> bounds(2 * n);
  for (size_t i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && id[end] == id[i]; ++end) {
    }
    for (size_t k = i; k < end; ++k) {
      bounds[k] = static_cast<float>(id[i] == 0 ? n : i);
      bounds[n + k] = id[i] == 0 ? -1.0f : static_cast<float>(end);
    }
  }
  store_block(dst, c.at(p, dst), 0, 1, 0, static_cast<int>(2 * n), bounds.data());
}

void execute_nonzero_with_count(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  std::vector<std::byte> row;
  std::vector<int64_t> out(static_cast<size_t>(dst.n));
  for (int partition = 0; partition < src.rows; partition += kCorePartitions) {
    const std::byte* values = load_row(src, s, partition, &row);
    size_t found = 0;
    for (int64_t i = 0; i < src.n; ++i) {
      if (isa::load_as_f32(src.dtype, values + i * src.bytes) != 0) out[found++] = p.imm + i;
    }
    const auto count = static_cast<int64_t>(found);
    std::fill(out.begin() + count, out.end() - 1, static_cast<int64_t>(p.imm0.value));
    out.back() = count;
    store_int_block(dst, d, partition, 1, 0, static_cast<int>(dst.n), out.data());
  }
}

// Of equal values the smaller index counts as the larger; NaN counts as larger than any number.
void execute_topk(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0, &where = *p.aux;
  std::byte* d = c.at(p, dst);
  std::byte* w = c.at(p, where);
  const std::byte* s = c.at(p, src);
  const auto n = static_cast<size_t>(p.imm), k = static_cast<size_t>(p.count);
  std::vector<float> value(n);
  std::vector<uint32_t> order(n);
  const auto place = [](const Operand& o, size_t i) {
    return static_cast<int64_t>(i % kCorePartitions) * o.pitch +
           element_offset(o, static_cast<int64_t>(i / kCorePartitions));
  };
  for (int group = 0; group < src.rows; group += kCorePartitions) {
    for (size_t i = 0; i < n; ++i) {
      value[i] = isa::load_as_f32(src.dtype, s + group * src.pitch + place(src, i));
      order[i] = static_cast<uint32_t>(i);
    }
    const auto larger = [&](uint32_t a, uint32_t b) {
      const float x = value[a], y = value[b];
      if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y) ? a < b : std::isnan(x);
      return x > y || (x == y && a < b);
    };
    std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(k), order.end(), larger);
    for (size_t j = 0; j < k; ++j) {
      const uint32_t i = order[k - 1 - j];
      isa::store_from_f32(dst.dtype, d + group * dst.pitch + place(dst, j), value[i]);
      isa::store_from_int(where.dtype, w + group * where.pitch + place(where, j), i);
    }
  }
}

void execute_stream_shuffle(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  constexpr int kQuadrant = 32;
  constexpr int kColumns = kBlockElements / kQuadrant;
  for (int quadrant = 0; quadrant < dst.rows; quadrant += kQuadrant) {
    for (int64_t first = 0; first < dst.n; first += kColumns) {
      const int n = static_cast<int>(std::min<int64_t>(kColumns, dst.n - first));
      std::byte *in = c.work.raw[0], *out = c.work.raw[1];
      load_raw_block(src, s, quadrant, kQuadrant, first, n, in);
      load_raw_block(dst, d, quadrant, kQuadrant, first, n, out);
      const size_t row = static_cast<size_t>(n) * static_cast<size_t>(dst.bytes);
      for (size_t i = 0; i < kQuadrant; ++i) {
        if (p.mask[i] != isa::kShuffleKeep) std::memcpy(out + i * row, in + p.mask[i] * row, row);
      }
      store_raw_block(dst, d, quadrant, kQuadrant, first, n, out);
    }
  }
}

namespace {

class View final : public CustomView {
 public:
  View(Context& c, const Prepared& p) : p_(p), operands_{p.dst, p.src0, p.src1, p.aux} {
    for (int o = 0; o < 4; ++o) base_[o] = operands_[o]->present() ? c.at(p, *operands_[o]) : nullptr;
    constexpr float kZero = 0.0f;
    const Scalar* scalars[2] = {&p.imm0, &p.imm1};
    for (int i = 0; i < 2; ++i) {
      const Column column = scalar_column(c, p, *scalars[i], i, &kZero);
      for (int r = 0; r < isa::kMaxPartitions; ++r) {
        if (column.step == 0 || r < p.dst->rows) scalar_[i][r] = column.data[r * column.step];
      }
    }
  }
  bool present(Operand o) const override { return operands_[o]->present(); }
  isa::Dtype dtype(Operand o) const override { return operands_[o]->dtype; }
  int partitions(Operand o) const override { return operands_[o]->rows; }
  int64_t elements(Operand o) const override { return operands_[o]->n; }
  std::byte* element(Operand o, int partition, int64_t index) override {
    return base_[o] + partition * operands_[o]->pitch + element_offset(*operands_[o], index);
  }
  float scalar(int which, int partition) const override { return scalar_[which][partition]; }
  uint32_t count() const override { return p_.count; }

 private:
  const Prepared& p_;
  const exec::Operand* operands_[4];
  std::byte* base_[4];
  float scalar_[2][isa::kMaxPartitions] = {};
};

void copy_elements(CustomView& v) {
  if (!v.present(CustomView::kSrc0)) return;
  const int64_t n = std::min(v.elements(CustomView::kDst), v.elements(CustomView::kSrc0));
  const int rows = std::min(v.partitions(CustomView::kDst), v.partitions(CustomView::kSrc0));
  for (int p = 0; p < rows; ++p) {
    for (int64_t k = 0; k < n; ++k) {
      const float x = isa::load_as_f32(v.dtype(CustomView::kSrc0), v.element(CustomView::kSrc0, p, k));
      isa::store_from_f32(v.dtype(CustomView::kDst), v.element(CustomView::kDst, p, k), x);
    }
  }
}

struct Registry {
  std::mutex mutex;
  std::map<int64_t, CustomFunction> functions{{0, copy_elements}};
};
Registry& registry() {
  static Registry r;
  return r;
}

}  // namespace

void register_custom(int64_t number, CustomFunction function) {
  if (number == 0) return;
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().functions[number] = function;
}

void execute_custom(Context& c, const Prepared& p) {
  CustomFunction function = nullptr;
  {
    std::lock_guard<std::mutex> lock(registry().mutex);
    const auto it = registry().functions.find(p.imm);
    if (it != registry().functions.end()) function = it->second;
  }
  if (function == nullptr) {
    throw Fault{Status::Kind::kIllegal,
                "not simulated: custom operation " + std::to_string(p.imm) +
                    " has no registered host function; call register_custom before the program "
                    "runs. At " +
                    c.where(p)};
  }
  View view(c, p);
  function(view);
}

}  // namespace trnsim::exec
