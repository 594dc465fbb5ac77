// DMA copies and transposes.
#include <algorithm>
#include <cstring>
#include <limits>

#include "isa/dtype.h"
#include "isa/index_check.h"
#include "sim/exec/block.h"
#include "sim/exec/pair.h"
#include "sim/exec/state.h"

namespace trnsim::exec {
namespace {

// One rectangle of elements: rows x n with a pitch and a step on both sides.
struct Rectangle {
  const std::byte* src;
  std::byte* dst;
  int64_t src_pitch, dst_pitch, src_step, dst_step, rows, n;
};

void move_raw(Work&, const Operand& dst, const Operand&, const Rectangle& r) {
  row_kernels().copy_raw[dst.bytes](r.src, r.src_pitch, r.src_step, r.dst, r.dst_pitch, r.dst_step, r.rows,
                                    r.n);
}

// Casts a block of rows at a time through the work buffers.
template <typename Each>
void in_blocks(const Rectangle& r, Each each) {
  const int64_t columns = std::min<int64_t>(r.n, kBlockElements);
  const int64_t rows = std::max<int64_t>(1, kBlockElements / columns);
  for (int64_t i = 0; i < r.rows; i += rows) {
    const int nr = static_cast<int>(std::min(rows, r.rows - i));
    for (int64_t j = 0; j < r.n; j += columns) {
      const int nc = static_cast<int>(std::min(columns, r.n - j));
      each(r.src + i * r.src_pitch + j * r.src_step, r.dst + i * r.dst_pitch + j * r.dst_step, nr, nc);
    }
  }
}

// 64-bit integers saturate on their way into 32 bits.
void narrow(int64_t* v, int n, isa::Dtype to) {
  const bool is_signed = to == isa::Dtype::kI32;
  const int64_t low = is_signed ? std::numeric_limits<int32_t>::min() : 0;
  const int64_t high = is_signed ? int64_t{std::numeric_limits<int32_t>::max()}
                                 : int64_t{std::numeric_limits<uint32_t>::max()};
  for (int i = 0; i < n; ++i) v[i] = std::clamp(v[i], low, high);
}

void move_int(Work& w, const Operand& dst, const Operand& src, const Rectangle& r) {
  const RowKernels& k = row_kernels();
  in_blocks(r, [&](const std::byte* s, std::byte* d, int rows, int n) {
    k.load_int[static_cast<int>(src.dtype)](s, r.src_pitch, r.src_step, w.i[0], n, rows, n);
    if (src.dtype == isa::Dtype::kI64) narrow(w.i[0], rows * n, dst.dtype);
    k.store_int[static_cast<int>(dst.dtype)](w.i[0], n, d, r.dst_pitch, r.dst_step, rows, n);
  });
}

void move_cast(Work& w, const Operand& dst, const Operand& src, const Rectangle& r) {
  const RowKernels& k = row_kernels();
  in_blocks(r, [&](const std::byte* s, std::byte* d, int rows, int n) {
    k.load[static_cast<int>(src.dtype)](s, r.src_pitch, r.src_step, w.f[0], n, rows, n);
    store_rows(dst.dtype, w.f[0], n, d, r.dst_pitch, r.dst_step, rows, n);
  });
}

// dst += src: integers exactly, everything else in FP32.
void move_add(Work& w, const Operand& dst, const Operand& src, const Rectangle& r) {
  const RowKernels& k = row_kernels();
  const auto to = static_cast<int>(dst.dtype), from = static_cast<int>(src.dtype);
  constexpr auto kAdd = static_cast<int>(isa::AluOp::kAdd);
  const bool integer = isa::is_integer(dst.dtype) && isa::is_integer(src.dtype);
  in_blocks(r, [&](const std::byte* s, std::byte* d, int rows, int n) {
    if (integer) {
      k.load_int[from](s, r.src_pitch, r.src_step, w.i[0], n, rows, n);
      k.load_int[to](d, r.dst_pitch, r.dst_step, w.i[1], n, rows, n);
      k.binary_int[kAdd](w.i[1], n, w.i[0], n, w.i[1], n, rows, n, 64);
      k.store_int[to](w.i[1], n, d, r.dst_pitch, r.dst_step, rows, n);
    } else {
      k.load[from](s, r.src_pitch, r.src_step, w.f[0], n, rows, n);
      k.load[to](d, r.dst_pitch, r.dst_step, w.f[1], n, rows, n);
      k.binary[kAdd](w.f[1], n, w.f[0], n, w.f[1], n, rows, n);
      store_rows(dst.dtype, w.f[1], n, d, r.dst_pitch, r.dst_step, rows, n);
    }
  });
}

using Move = void (*)(Work&, const Operand&, const Operand&, const Rectangle&);
Move mover(const Operand& dst, const Operand& src, bool add = false) {
  if (add) return move_add;
  if (same_storage(dst.dtype, src.dtype)) return move_raw;
  return isa::is_integer(dst.dtype) && isa::is_integer(src.dtype) ? move_int : move_cast;
}

// Position of a side that is walked without a common nest.
struct Cursor {
  int dims = 0;
  std::array<int64_t, isa::kMaxDims + 1> size{}, step{}, index{};
  std::byte* p = nullptr;

  Cursor(const Operand& o, std::byte* start) : p(start) {
    const auto add = [&](int64_t s, int64_t t) {
      size[static_cast<size_t>(dims)] = s;
      step[static_cast<size_t>(dims++)] = t;
    };
    if (o.space != isa::Space::kHbm && o.rows > 1) add(o.rows, o.pitch);
    for (int i = 0; i < o.pattern.dims; ++i)
      add(o.pattern.size[static_cast<size_t>(i)], o.pattern.step[static_cast<size_t>(i)]);
    if (dims == 0) add(1, 0);
  }
  int64_t run() const { return size[static_cast<size_t>(dims - 1)] - index[static_cast<size_t>(dims - 1)]; }
  int64_t inner_step() const { return step[static_cast<size_t>(dims - 1)]; }
  void advance(int64_t n) {
    auto i = static_cast<size_t>(dims - 1);
    index[i] += n;
    p += n * step[i];
    while (index[i] == size[i]) {
      p -= size[i] * step[i];
      index[i] = 0;
      if (i == 0) return;
      --i;
      ++index[i];
      p += step[i];
    }
  }
};

void walk(Work& w, Move move, const Operand& dst, std::byte* d, const Operand& src, std::byte* s) {
  Cursor to(dst, d), from(src, s);
  for (int64_t left = src.elements(); left > 0;) {
    const int64_t n = std::min(to.run(), from.run());
    move(w, dst, src, {from.p, to.p, 0, 0, from.inner_step(), to.inner_step(), 1, n});
    to.advance(n);
    from.advance(n);
    left -= n;
  }
}

// Elements one after another, in the order of the operand they stand for.
Operand dense_copy_of(const Operand& o) {
  Operand dense;
  dense.space = isa::Space::kHbm;
  dense.dtype = o.dtype;
  dense.bytes = o.bytes;
  dense.n = o.elements();
  dense.pattern.dims = 1;
  dense.pattern.size[0] = dense.n;
  dense.pattern.step[0] = o.bytes;
  return dense;
}

}  // namespace

// What the core sends is read at its trigger; both tiles arrive when the other core has triggered its half.
void execute_send_recv(Context& c, const Prepared& p) {
  CorePair::Impl* pair = c.core.pair;
  if (pair == nullptr) {
    throw Fault{Status::Kind::kIllegal,
                "user error: an exchange needs the other core of the pair; at " + c.where(p)};
  }
  CorePair::Impl::Half own;
  own.core = p.core;
  own.queue = p.queue;
  own.by = &p;
  own.dst = *p.dst;
  own.to = c.at(p, *p.dst);
  const Operand dense = dense_copy_of(*p.src0);
  own.sent.resize(static_cast<size_t>(dense.n * dense.bytes));
  walk(c.work, move_raw, dense, own.sent.data(), *p.src0, c.at(p, *p.src0));
  pair->met = nullptr;
  auto& waiting = pair->waiting[p.imm];
  if (waiting.empty() || waiting.front().core == p.core) {
    own.where = c.where(p);
    waiting.push_back(std::move(own));
    return;
  }
  const CorePair::Impl::Half other = std::move(waiting.front());
  waiting.pop_front();
  if (other.dst.rows != own.dst.rows || other.dst.n != own.dst.n || other.dst.dtype != own.dst.dtype) {
    const auto shape = [](const Operand& o) {
      return std::string(isa::dtype_name(o.dtype)) + " [" + std::to_string(o.rows) + ", " +
             std::to_string(o.n) + "]";
    };
    throw Fault{Status::Kind::kIllegal, "user error: the exchange of pipe " + std::to_string(p.imm) +
                                            " has different tiles: " + shape(own.dst) + " at " + c.where(p) +
                                            ", and " + shape(other.dst) + " at " + other.where +
                                            "; both cores send what the other receives"};
  }
  walk(c.work, move_raw, own.dst, own.to, dense, const_cast<std::byte*>(other.sent.data()));
  walk(c.work, move_raw, other.dst, other.to, dense, own.sent.data());
  pair->met = other.by;
}

void execute_dma_copy(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  if (p.has(isa::kFlagSkipOutOfBounds) && !(c.in_bounds(p, dst) && c.in_bounds(p, src))) return;
  std::byte* d = c.at(p, dst);
  std::byte* s = c.at(p, src);
  const Move move = mover(dst, src, p.has(isa::kFlagAccumulate));
  const CopyPlan& plan = *p.copy;
  if (plan.dims < 0) {
    walk(c.work, move, dst, d, src, s);
    return;
  }
  if (plan.dims == 0) {
    move(c.work, dst, src, {s, d, 0, 0, src.bytes, dst.bytes, 1, 1});
    return;
  }
  // The two innermost dims are one rectangle, the others a counter.
  const auto inner = static_cast<size_t>(plan.dims - 1);
  Rectangle r{s, d, 0, 0, plan.src_step[inner], plan.dst_step[inner], 1, plan.size[inner]};
  if (plan.dims == 1) {
    move(c.work, dst, src, r);
    return;
  }
  r.src_pitch = plan.src_step[inner - 1];
  r.dst_pitch = plan.dst_step[inner - 1];
  r.rows = plan.size[inner - 1];
  const int outer = plan.dims - 2;
  std::array<int64_t, CopyPlan::kMax> index{};
  for (;;) {
    move(c.work, dst, src, r);
    int i = outer - 1;
    for (; i >= 0; --i) {
      const auto u = static_cast<size_t>(i);
      r.src += plan.src_step[u];
      r.dst += plan.dst_step[u];
      if (++index[u] < plan.size[u]) break;
      r.src -= plan.src_step[u] * plan.size[u];
      r.dst -= plan.dst_step[u] * plan.size[u];
      index[u] = 0;
    }
    if (i < 0) return;
  }
}

void execute_dma_transpose(Context& c, const Prepared& p) {
  const TransposePlan& t = *p.transpose;
  const int bytes = p.src0->bytes;
  std::byte* d = c.at(p, *p.dst);
  const std::byte* s = c.at(p, *p.src0);
  const auto step = [](const std::vector<int64_t>& v) { return v.size() > 1 ? v[1] - v[0] : 0; };
  const auto rows = static_cast<int>(t.src_row.size()), columns = static_cast<int>(t.src_col.size());
  const auto unit = [&](const std::vector<int64_t>& v) { return v.size() <= 1 || step(v) == bytes; };
  if (t.uniform && unit(t.src_col) && unit(t.dst_col)) {
    row_kernels().transpose[bytes](s, step(t.src_row), d, step(t.dst_row), rows, columns);
    return;
  }
  for (size_t j = 0; j < t.src_col.size(); ++j) {
    for (size_t i = 0; i < t.src_row.size(); ++i) {
      std::memcpy(d + t.dst_row[j] + t.dst_col[i], s + t.src_row[i] + t.src_col[j],
                  static_cast<size_t>(bytes));
    }
  }
}

namespace {

// Calls each(table row address, tile row address) for the indices in row-major order; checks them first.
template <typename Each>
void for_each_index(Context& c, const Prepared& p, const Operand& table, const Operand& tile, Each each) {
  const TransposePlan& t = *p.transpose;
  const int64_t row_step = t.dst_row[0], row_count = t.dst_row[1];
  std::byte* rows = c.at(p, table);
  std::byte* cells = c.at(p, tile);
  const Operand& index = *p.src1;
  const std::byte* base = c.at(p, index);
  size_t k = 0;
  for (int partition = 0; partition < index.rows; ++partition) {
    for (int64_t j = 0; j < index.n; j += kBlockElements) {
      const int n = static_cast<int>(std::min<int64_t>(kBlockElements, index.n - j));
      load_int_block(index, base, partition, 1, j, n, c.work.i[2]);
      for (int l = 0; l < n; ++l, ++k) {
        const int64_t i = c.work.i[2][l];
        if (i < 0 || i >= row_count) {
          if (p.has(isa::kFlagSkipOutOfBounds)) continue;
          const std::string words = isa::explain_index(c.notes(), p.location, i, row_count);
          if (!words.empty())
            throw Fault{Status::Kind::kOutOfBounds, "check failed: " + words + "; found by " + c.where(p)};
          throw Fault{Status::Kind::kOutOfBounds,
                      "row index " + std::to_string(i) + " (partition " + std::to_string(partition) +
                          ", element " + std::to_string(j + l) + " of src1) of tensor '" +
                          c.tensor_name(table.tensor) + "', which has " + std::to_string(row_count) +
                          " rows here; at " + c.where(p)};
        }
        each(rows + i * row_step, cells + t.src_row[k]);
      }
    }
  }
}

int64_t element_step(const std::vector<int64_t>& v, int bytes) { return v.size() > 1 ? v[1] - v[0] : bytes; }

// One row from `src` to `dst`, whose element offsets are given.
void move_row(Work& w, Move move, const Operand& dst, std::byte* d, const std::vector<int64_t>& dst_col,
              const Operand& src, const std::byte* s, const std::vector<int64_t>& src_col, bool uniform) {
  if (uniform) {
    move(w, dst, src,
         {s, d, 0, 0, element_step(src_col, src.bytes), element_step(dst_col, dst.bytes), 1,
          static_cast<int64_t>(dst_col.size())});
    return;
  }
  for (size_t e = 0; e < dst_col.size(); ++e) {
    move(w, dst, src, {s + src_col[e], d + dst_col[e], 0, 0, src.bytes, dst.bytes, 1, 1});
  }
}

}  // namespace

void execute_dma_gather(Context& c, const Prepared& p) {
  const TransposePlan& t = *p.transpose;
  const Operand &table = *p.src0, &tile = *p.dst;
  const Move move = mover(tile, table, p.op0 == isa::AluOp::kAdd);
  for_each_index(c, p, table, tile, [&](std::byte* row, std::byte* cell) {
    move_row(c.work, move, tile, cell, t.src_col, table, row, t.dst_col, t.uniform);
  });
}

void execute_dma_scatter(Context& c, const Prepared& p) {
  const TransposePlan& t = *p.transpose;
  const Operand &table = *p.dst, &tile = *p.src0;
  const Move move = mover(table, tile, p.op0 == isa::AluOp::kAdd);
  for_each_index(c, p, table, tile, [&](std::byte* row, std::byte* cell) {
    move_row(c.work, move, table, row, t.dst_col, tile, cell, t.src_col, t.uniform);
  });
}

// Row i of the matrix is row src1[i] of the table in HBM.
void execute_dma_gather_transpose(Context& c, const Prepared& p) {
  const TransposePlan& t = *p.transpose;
  const Operand &table = *p.src0, &index = *p.src1;
  std::byte* d = c.at(p, *p.dst);
  const std::byte* s = c.at(p, table);
  const std::byte* list = c.at(p, index);
  const auto bytes = static_cast<size_t>(table.bytes);
  const size_t rows = static_cast<size_t>(index.elements()), middle = t.src_row.size();
  for (size_t i = 0; i < rows; ++i) {
    // Indices are taken partition first.
    const auto partition = static_cast<int64_t>(i) % index.rows,
               column = static_cast<int64_t>(i) / index.rows;
    const int64_t row =
        isa::load_as_int(index.dtype, list + partition * index.pitch + element_offset(index, column));
    if (row < 0 || row >= t.table_rows) {
      if (p.has(isa::kFlagSkipOutOfBounds)) continue;
      throw Fault{Status::Kind::kOutOfBounds,
                  "row index " + std::to_string(row) + " (element " + std::to_string(i) +
                      " of src1) of tensor '" + c.tensor_name(table.tensor) + "', which has " +
                      std::to_string(t.table_rows) + " rows here; at " + c.where(p)};
    }
    const std::byte* from = s + row * t.table_step;
    for (size_t m = 0; m < middle; ++m) {
      for (size_t j = 0; j < t.src_col.size(); ++j) {
        std::memcpy(d + t.dst_row[j] + t.dst_col[m * rows + i], from + t.src_row[m] + t.src_col[j], bytes);
      }
    }
  }
}

namespace {

// Flat elements [first, first + count) of source `j` of the `sources` that an operand holds, in row-major order:
// calls each(partition, element of the partition, run, place in the block).
template <typename Each>
void for_each_piece(const Operand& o, int64_t sources, int64_t j, int64_t first, int count, Each each) {
  const int64_t per = o.n / sources;  // elements of one source in a partition (HBM: all)
  for (int done = 0; done < count;) {
    const int64_t e = first + done, at = e % per;
    const int run = static_cast<int>(std::min<int64_t>(per - at, count - done));
    each(static_cast<int>(e / per), j * per + at, run, done);
    done += run;
  }
}

}  // namespace

void execute_dma_compute(Context& c, const Prepared& p) {
  const Operand& dst = *p.dst;
  std::byte* d = c.at(p, dst);
  const int64_t total = dst.elements();
  const auto add = row_kernels().binary[static_cast<int>(isa::AluOp::kAdd)];
  for (int64_t first = 0; first < total; first += kBlockElements) {
    const int n = static_cast<int>(std::min<int64_t>(kBlockElements, total - first));
    float *sum = c.work.f[0], *value = c.work.f[1];
    bool started = false;
    for (const Operand* o : {p.src0, p.src1}) {
      if (!o->present()) continue;
      const std::byte* s = c.at(p, *o);
      const int64_t sources = o->elements() / total;
      for (int64_t j = 0; j < sources; ++j) {
        float* to = started ? value : sum;
        for_each_piece(*o, sources, j, first, n, [&](int partition, int64_t at, int run, int place) {
          load_block(*o, s, partition, 1, at, run, to + place);
        });
        if (started) add(sum, n, value, n, sum, n, 1, n);
        started = true;
      }
    }
    for_each_piece(dst, 1, 0, first, n, [&](int partition, int64_t at, int run, int place) {
      store_block(dst, d, partition, 1, at, run, sum + place);
    });
  }
}

}  // namespace trnsim::exec
