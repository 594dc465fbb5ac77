// Blocks of an operand (partitions x free elements) to and from dense work buffers.
#pragma once

#include <algorithm>

#include "sim/exec/rounding.h"
#include "sim/exec/state.h"

namespace trnsim::exec {

// Calls each(byte offset from the first element of a partition, index in the block, length, step) for the
// runs of innermost elements that cover free elements [first, first + count).
template <typename Each>
void for_each_run(const Operand& o, int64_t first, int64_t count, Each each) {
  const Pattern& p = o.pattern;
  if (p.dims == 0) {
    each(int64_t{0}, int64_t{0}, count, static_cast<int64_t>(o.bytes));
    return;
  }
  const auto inner = static_cast<size_t>(p.dims - 1);
  if (p.dims == 1) {
    each(first * p.step[0], int64_t{0}, count, p.step[0]);
    return;
  }
  std::array<int64_t, isa::kMaxDims> index{};
  int64_t offset = 0, rest = first;
  for (auto i = static_cast<int>(inner); i >= 0; --i) {
    const auto u = static_cast<size_t>(i);
    index[u] = rest % p.size[u];
    rest /= p.size[u];
    offset += index[u] * p.step[u];
  }
  for (int64_t done = 0; done < count;) {
    const int64_t n = std::min(p.size[inner] - index[inner], count - done);
    each(offset, done, n, p.step[inner]);
    done += n;
    // To the start of the next run.
    offset -= index[inner] * p.step[inner];
    index[inner] = 0;
    for (auto i = static_cast<int>(inner) - 1; i >= 0; --i) {
      const auto u = static_cast<size_t>(i);
      offset += p.step[u];
      if (++index[u] < p.size[u]) break;
      offset -= p.size[u] * p.step[u];
      index[u] = 0;
    }
  }
}

// `base`: address of the operand's first element; [partition, partition + rows) x [first, first + n) to
// out[rows][n].
inline void load_block(const Operand& o, const std::byte* base, int partition, int rows, int64_t first, int n,
                       float* out) {
  const auto load = row_kernels().load[static_cast<int>(o.dtype)];
  const std::byte* p = base + partition * o.pitch;
  for_each_run(o, first, n, [&](int64_t offset, int64_t at, int64_t length, int64_t step) {
    load(p + offset, o.pitch, step, out + at, n, rows, static_cast<int>(length));
  });
}
inline void store_block(const Operand& o, std::byte* base, int partition, int rows, int64_t first, int n,
                        const float* in) {
  std::byte* p = base + partition * o.pitch;
  for_each_run(o, first, n, [&](int64_t offset, int64_t at, int64_t length, int64_t step) {
    store_rows(o.dtype, in + at, n, p + offset, o.pitch, step, rows, static_cast<int>(length));
  });
}
inline void load_int_block(const Operand& o, const std::byte* base, int partition, int rows, int64_t first,
                           int n, int64_t* out) {
  const auto load = row_kernels().load_int[static_cast<int>(o.dtype)];
  const std::byte* p = base + partition * o.pitch;
  for_each_run(o, first, n, [&](int64_t offset, int64_t at, int64_t length, int64_t step) {
    load(p + offset, o.pitch, step, out + at, n, rows, static_cast<int>(length));
  });
}
inline void store_int_block(const Operand& o, std::byte* base, int partition, int rows, int64_t first, int n,
                            const int64_t* in) {
  const auto store = row_kernels().store_int[static_cast<int>(o.dtype)];
  std::byte* p = base + partition * o.pitch;
  for_each_run(o, first, n, [&](int64_t offset, int64_t at, int64_t length, int64_t step) {
    store(in + at, n, p + offset, o.pitch, step, rows, static_cast<int>(length));
  });
}
// Raw elements.
inline void load_raw_block(const Operand& o, const std::byte* base, int partition, int rows, int64_t first,
                           int n, std::byte* out) {
  const std::byte* p = base + partition * o.pitch;
  for_each_run(o, first, n, [&](int64_t offset, int64_t at, int64_t length, int64_t step) {
    row_kernels().copy_raw[o.bytes](p + offset, o.pitch, step, out + at * o.bytes, int64_t{n} * o.bytes,
                                    o.bytes, rows, length);
  });
}
inline void store_raw_block(const Operand& o, std::byte* base, int partition, int rows, int64_t first, int n,
                            const std::byte* in) {
  std::byte* p = base + partition * o.pitch;
  for_each_run(o, first, n, [&](int64_t offset, int64_t at, int64_t length, int64_t step) {
    row_kernels().copy_raw[o.bytes](in + at * o.bytes, int64_t{n} * o.bytes, o.bytes, p + offset, o.pitch,
                                    step, rows, length);
  });
}

// FP32 values of a block: the memory itself when it holds them, else converted into `buffer`.
struct FloatView {
  const float* p;
  ptrdiff_t pitch;
};
inline FloatView float_view(const Operand& o, const std::byte* base, int partition, int rows, int64_t first,
                            int n, float* buffer) {
  if (o.direct_f32) {
    return {reinterpret_cast<const float*>(base + partition * o.pitch) + first, o.pitch / 4};
  }
  load_block(o, base, partition, rows, first, n, buffer);
  return {buffer, n};
}
struct FloatTarget {
  float* p;
  ptrdiff_t pitch;
  bool direct;
};
inline FloatTarget float_target(const Operand& o, std::byte* base, int partition, int64_t first, int n,
                                float* buffer) {
  if (o.direct_f32) return {reinterpret_cast<float*>(base + partition * o.pitch) + first, o.pitch / 4, true};
  return {buffer, n, false};
}

// Calls each(partition, rows, first, n) over blocks of at most kBlockElements, whole rows first.
template <typename Each>
void for_each_block(int rows, int64_t n, Each each) {
  const int columns = static_cast<int>(std::min<int64_t>(n, kBlockElements));
  const int block_rows = std::max(1, kBlockElements / columns);
  for (int p = 0; p < rows; p += block_rows) {
    const int nr = std::min(block_rows, rows - p);
    for (int64_t j = 0; j < n; j += columns)
      each(p, nr, j, static_cast<int>(std::min<int64_t>(columns, n - j)));
  }
}

// out = compute(block of src0) over all blocks, in FP32.
template <typename Compute>
void map_float(Context& c, const Prepared& p, Compute compute) {
  const Operand &dst = *p.dst, &src = *p.src0;
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    const FloatView a = float_view(src, s, partition, rows, first, n, c.work.f[0]);
    const FloatTarget t = float_target(dst, d, partition, first, n, c.work.f[1]);
    compute(a, t, partition, rows, first, n);
    if (!t.direct) store_block(dst, d, partition, rows, first, n, t.p);
  });
}

// Byte offset of free element `k` from the first element of its partition.
inline int64_t element_offset(const Operand& o, int64_t k) {
  int64_t offset = 0;
  for (int i = o.pattern.dims - 1; i >= 0; --i) {
    const auto u = static_cast<size_t>(i);
    offset += k % o.pattern.size[u] * o.pattern.step[u];
    k /= o.pattern.size[u];
  }
  return offset;
}

// Per-partition scalars: value of partition i at data[i * step]. Pointers are read here, before the
// instruction writes anything.
struct Column {
  const float* data;
  ptrdiff_t step;
};
inline Column scalar_column(Context& c, const Prepared& p, const Scalar& s, int slot,
                            const float* default_value) {
  if (s.pointer != nullptr) {
    const Operand& o = *s.pointer;
    row_kernels().load[static_cast<int>(o.dtype)](c.at(p, o), o.pitch, o.bytes, c.work.column[slot], 1,
                                                  o.rows, 1);
    return {c.work.column[slot], 1};
  }
  return {s.present() ? &s.value : default_value, 0};
}
struct ColumnInt {
  const int64_t* data;
  ptrdiff_t step;
};
inline ColumnInt scalar_column_int(Context& c, const Prepared& p, const Scalar& s, int slot) {
  int64_t* out = c.work.column_int[slot];
  if (s.pointer != nullptr) {
    const Operand& o = *s.pointer;
    row_kernels().load_int[static_cast<int>(o.dtype)](c.at(p, o), o.pitch, o.bytes, out, 1, o.rows, 1);
    return {out, 1};
  }
  out[0] = static_cast<int64_t>(s.value);
  return {out, 0};
}

// FP32 in[rows][n] to out[n][rows]: a serial walk along the free axis then has partitions as its vector lanes.
inline void turn_block(const float* in, int rows, int n, float* out) {
  row_kernels().transpose[4](reinterpret_cast<const std::byte*>(in), ptrdiff_t{n} * 4,
                             reinterpret_cast<std::byte*>(out), ptrdiff_t{rows} * 4, rows, n);
}

// Raw copies between these keep every bit.
inline bool same_storage(isa::Dtype a, isa::Dtype b) {
  const auto plain = [](isa::Dtype d) { return d == isa::Dtype::kF32R ? isa::Dtype::kF32 : d; };
  return plain(a) == plain(b);
}

}  // namespace trnsim::exec
