// Fills, index patterns, selection and random words.
#include <cstring>

#include "sim/exec/block.h"

namespace trnsim::exec {
namespace {

// A block of src0 as elements of `dtype`, bit exact when it already is.
void load_converted(Work& w, const Operand& src, const std::byte* base, int partition, int rows,
                    int64_t first, int n, isa::Dtype dtype, std::byte* out) {
  const auto bytes = static_cast<ptrdiff_t>(isa::dtype_bytes(dtype));
  const RowKernels& k = row_kernels();
  if (same_storage(src.dtype, dtype)) {
    load_raw_block(src, base, partition, rows, first, n, out);
  } else if (isa::is_integer(src.dtype) && isa::is_integer(dtype)) {
    load_int_block(src, base, partition, rows, first, n, w.i[0]);
    k.store_int[static_cast<int>(dtype)](w.i[0], n, out, n * bytes, bytes, rows, n);
  } else {
    load_block(src, base, partition, rows, first, n, w.f[0]);
    store_rows(dtype, w.f[0], n, out, n * bytes, bytes, rows, n);
  }
}

template <typename T>
void blend_typed(std::byte* target, const std::byte* value, ptrdiff_t value_step, const uint8_t* take,
                 int n) {
  for (int i = 0; i < n; ++i) {
    T v, t;
    std::memcpy(&v, value + i * value_step, sizeof v);
    std::memcpy(&t, target + i * static_cast<ptrdiff_t>(sizeof t), sizeof t);
    t = take[i] != 0 ? v : t;
    std::memcpy(target + i * static_cast<ptrdiff_t>(sizeof t), &t, sizeof t);
  }
}

// Where take is set: target = value (value_step 0: one value for all).
void blend(int bytes, std::byte* target, const std::byte* value, ptrdiff_t value_step, const uint8_t* take,
           int n) {
  switch (bytes) {
    case 1:
      return blend_typed<uint8_t>(target, value, value_step, take, n);
    case 2:
      return blend_typed<uint16_t>(target, value, value_step, take, n);
    default:
      return blend_typed<uint32_t>(target, value, value_step, take, n);
  }
}

// pattern.base + partition * partition_step + sum index_i * step_i for free elements [first, first + n).
void affine_row(const Prepared& p, int partition, int64_t first, int n, int64_t* out) {
  const isa::AffinePattern& a = p.pattern;
  std::array<int64_t, 4> index{};
  int64_t value = a.base + int64_t{partition} * a.partition_step, rest = first;
  for (int i = p.affine_dims - 1; i >= 0; --i) {
    const auto u = static_cast<size_t>(i);
    index[u] = rest % p.affine_size[u];
    rest /= p.affine_size[u];
    value += index[u] * a.step[u];
  }
  if (p.affine_dims == 0) {
    std::fill_n(out, n, value);
    return;
  }
  const auto inner = static_cast<size_t>(p.affine_dims - 1);
  for (int done = 0; done < n;) {
    const int run = static_cast<int>(std::min<int64_t>(p.affine_size[inner] - index[inner], n - done));
    for (int j = 0; j < run; ++j) out[done + j] = value + int64_t{j} * a.step[inner];
    done += run;
    value -= index[inner] * a.step[inner];
    index[inner] = 0;
    for (int i = static_cast<int>(inner) - 1; i >= 0; --i) {
      const auto u = static_cast<size_t>(i);
      value += a.step[u];
      if (++index[u] < p.affine_size[u]) break;
      value -= int64_t{p.affine_size[u]} * a.step[u];
      index[u] = 0;
    }
  }
}

// The scalar operand as one element of dst's dtype per partition, packed.
void scalar_elements(Context& c, const Prepared& p, const Scalar& s, std::byte* out) {
  const Operand& dst = *p.dst;
  constexpr float kZero = 0.0f;
  const Column column = scalar_column(c, p, s, 0, &kZero);
  store_rows(dst.dtype, column.data, column.step, out, dst.bytes, dst.bytes, dst.rows, 1);
  if (s.pointer != nullptr && isa::is_integer(s.pointer->dtype) && isa::is_integer(dst.dtype)) {
    const ColumnInt exact = scalar_column_int(c, p, s, 0);
    row_kernels().store_int[static_cast<int>(dst.dtype)](exact.data, exact.step, out, dst.bytes, dst.bytes,
                                                         dst.rows, 1);
  }
}

}  // namespace

void execute_memset(Context& c, const Prepared& p) {
  const Operand& dst = *p.dst;
  std::byte* d = c.at(p, dst);
  std::byte* values = c.work.raw[0];
  if (isa::is_opaque(dst.dtype)) {
    std::fill_n(values, dst.rows * dst.bytes, std::byte{0});
  } else {
    scalar_elements(c, p, p.imm0, values);
  }
  const auto copy = row_kernels().copy_raw[dst.bytes];
  for_each_run(dst, 0, dst.n, [&](int64_t offset, int64_t, int64_t length, int64_t step) {
    copy(values, dst.bytes, 0, d + offset, dst.pitch, step, dst.rows, length);
  });
}

void execute_iota(Context& c, const Prepared& p) {
  const Operand& dst = *p.dst;
  std::byte* d = c.at(p, dst);
  const bool integer = isa::is_integer(dst.dtype);
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    for (int r = 0; r < rows; ++r) affine_row(p, partition + r, first, n, c.work.i[0] + r * n);
    // The unit computes in 32 bits.
    if (integer) {
      for (int i = 0; i < rows * n; ++i) c.work.i[0][i] = static_cast<int32_t>(c.work.i[0][i]);
      store_int_block(dst, d, partition, rows, first, n, c.work.i[0]);
    } else {
      for (int i = 0; i < rows * n; ++i)
        c.work.f[0][i] = static_cast<float>(static_cast<int32_t>(c.work.i[0][i]));
      store_block(dst, d, partition, rows, first, n, c.work.f[0]);
    }
  });
}

void execute_affine_select(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  std::byte* fill = c.work.raw[2];
  scalar_elements(c, p, p.imm0, fill);
  uint8_t* take = reinterpret_cast<uint8_t*>(c.work.raw[1]);
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    load_converted(c.work, src, s, partition, rows, first, n, dst.dtype, c.work.raw[0]);
    for (int r = 0; r < rows; ++r) {
      int64_t* v = c.work.i[1];
      affine_row(p, partition + r, first, n, v);
      const auto outside = [&](auto keep) {
        for (int j = 0; j < n; ++j) take[j] = keep(v[j]) ? 0 : 1;
      };
      switch (p.op0) {
        case isa::AluOp::kEqual:
          outside([](int64_t x) { return x == 0; });
          break;
        case isa::AluOp::kNotEqual:
          outside([](int64_t x) { return x != 0; });
          break;
        case isa::AluOp::kGreaterEqual:
          outside([](int64_t x) { return x >= 0; });
          break;
        case isa::AluOp::kGreater:
          outside([](int64_t x) { return x > 0; });
          break;
        case isa::AluOp::kLessEqual:
          outside([](int64_t x) { return x <= 0; });
          break;
        default:
          outside([](int64_t x) { return x < 0; });
          break;
      }
      blend(dst.bytes, c.work.raw[0] + int64_t{r} * n * dst.bytes, fill + (partition + r) * dst.bytes, 0,
            take, n);
    }
    store_raw_block(dst, d, partition, rows, first, n, c.work.raw[0]);
  });
}

void execute_copy_predicated(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0, &predicate = *p.src1;
  std::byte* d = c.at(p, dst);
  const std::byte* s = src.present() ? c.at(p, src) : nullptr;
  const std::byte* q = c.at(p, predicate);
  std::byte* fill = c.work.raw[2];
  if (s == nullptr) scalar_elements(c, p, p.imm0, fill);
  uint8_t* take = reinterpret_cast<uint8_t*>(c.work.raw[2] + isa::kMaxPartitions * 8);
  const uint8_t when = p.has(isa::kFlagNegate) ? 0 : 1;
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    const int count = rows * n;
    load_block(predicate, q, partition, rows, first, n, c.work.f[1]);
    for (int i = 0; i < count; ++i) take[i] = (c.work.f[1][i] != 0.0f ? 1 : 0) == when ? 1 : 0;
    if (s != nullptr) load_converted(c.work, src, s, partition, rows, first, n, dst.dtype, c.work.raw[0]);
    load_raw_block(dst, d, partition, rows, first, n, c.work.raw[1]);
    if (s != nullptr) {
      blend(dst.bytes, c.work.raw[1], c.work.raw[0], dst.bytes, take, count);
    } else {
      for (int r = 0; r < rows; ++r) {
        blend(dst.bytes, c.work.raw[1] + int64_t{r} * n * dst.bytes, fill + (partition + r) * dst.bytes, 0,
              take + r * n, n);
      }
    }
    store_raw_block(dst, d, partition, rows, first, n, c.work.raw[1]);
  });
}

void execute_philox(Context& c, const Prepared& p) {
  const Operand& dst = *p.dst;
  std::byte* d = c.at(p, dst);
  uint32_t state[4];
  load_raw_block(*p.src0, c.at(p, *p.src0), 0, 1, 0, 4, reinterpret_cast<std::byte*>(state));
  const uint64_t key = state[0] | uint64_t{state[1]} << 32, offset = state[2] | uint64_t{state[3]} << 32;
  uint32_t* words = reinterpret_cast<uint32_t*>(c.work.raw[0]);
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    // A block of several partitions always holds whole rows, so its words follow each other.
    const uint64_t word =
        static_cast<uint64_t>(p.pattern.base) + static_cast<uint64_t>(int64_t{partition} * dst.n + first);
    row_kernels().philox(key, offset, word, words, rows * n);
    if (dst.bytes == 4) {
      store_raw_block(dst, d, partition, rows, first, n, c.work.raw[0]);
      return;
    }
    for (int i = 0; i < rows * n; ++i) c.work.i[0][i] = words[i];
    store_int_block(dst, d, partition, rows, first, n, c.work.i[0]);
  });
}

}  // namespace trnsim::exec
