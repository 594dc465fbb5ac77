// Loop nests of DMA instructions, found once when the program is prepared.
#include <algorithm>

#include "isa/names.h"
#include "sim/exec/prepared.h"

namespace trnsim::exec {
namespace {

struct Dim {
  int64_t size, step;
};
struct Dims {
  int count = 0;
  std::array<Dim, isa::kMaxDims + 1> d{};
};

// Partitions are the outermost dim of an on-chip operand.
Dims dims_of(const Operand& o) {
  Dims out;
  if (o.space != isa::Space::kHbm && o.rows > 1) out.d[static_cast<size_t>(out.count++)] = {o.rows, o.pitch};
  for (int i = 0; i < o.pattern.dims; ++i) {
    const auto u = static_cast<size_t>(i);
    out.d[static_cast<size_t>(out.count++)] = {o.pattern.size[u], o.pattern.step[u]};
  }
  return out;
}

// One nest that visits both sides in row-major order. Fails when the shapes do not divide ([2,3] against
// [3,2]).
void plan_copy(const Operand& dst, const Operand& src, CopyPlan* plan) {
  Dims a = dims_of(dst), b = dims_of(src);
  std::array<int64_t, CopyPlan::kMax> size{}, da{}, db{};
  int n = 0, i = a.count - 1, j = b.count - 1;
  while (i >= 0 && j >= 0) {
    Dim& x = a.d[static_cast<size_t>(i)];
    Dim& y = b.d[static_cast<size_t>(j)];
    const int64_t g = std::min(x.size, y.size);
    if (x.size % g != 0 || y.size % g != 0) {
      plan->dims = -1;
      return;
    }
    // Merge with the dim inside when both sides continue it.
    if (n > 0 && x.step == da[static_cast<size_t>(n - 1)] * size[static_cast<size_t>(n - 1)] &&
        y.step == db[static_cast<size_t>(n - 1)] * size[static_cast<size_t>(n - 1)]) {
      size[static_cast<size_t>(n - 1)] *= g;
    } else {
      size[static_cast<size_t>(n)] = g;
      da[static_cast<size_t>(n)] = x.step;
      db[static_cast<size_t>(n)] = y.step;
      ++n;
    }
    if (x.size == g)
      --i;
    else
      x = {x.size / g, x.step * g};
    if (y.size == g)
      --j;
    else
      y = {y.size / g, y.step * g};
  }
  plan->dims = n;
  for (int k = 0; k < n; ++k) {
    const auto from = static_cast<size_t>(n - 1 - k), to = static_cast<size_t>(k);
    plan->size[to] = size[from];
    plan->dst_step[to] = da[from];
    plan->src_step[to] = db[from];
  }
}

// Byte offsets of `rows` x `columns` elements in row-major order, when the shape splits there.
bool split(const Operand& o, int64_t rows, int64_t columns, std::vector<int64_t>* row,
           std::vector<int64_t>* column) {
  const Dims dims = dims_of(o);
  std::vector<Dim> head, tail;  // innermost first
  int64_t left = columns;
  for (int i = dims.count - 1; i >= 0; --i) {
    const Dim d = dims.d[static_cast<size_t>(i)];
    if (left == 1) {
      head.push_back(d);
    } else if (left % d.size == 0) {
      tail.push_back(d);
      left /= d.size;
    } else if (d.size % left == 0) {
      tail.push_back({left, d.step});
      head.push_back({d.size / left, d.step * left});
      left = 1;
    } else {
      return false;
    }
  }
  if (left != 1) return false;
  const auto walk = [](const std::vector<Dim>& v, int64_t n, std::vector<int64_t>* out) {
    out->resize(static_cast<size_t>(n));
    for (int64_t k = 0; k < n; ++k) {
      int64_t rest = k, offset = 0;
      for (const Dim& d : v) {
        offset += rest % d.size * d.step;
        rest /= d.size;
      }
      (*out)[static_cast<size_t>(k)] = offset;
    }
  };
  walk(head, rows, row);
  walk(tail, columns, column);
  return true;
}

bool uniform(const std::vector<int64_t>& v) {
  for (size_t i = 2; i < v.size(); ++i) {
    if (v[i] - v[i - 1] != v[1] - v[0]) return false;
  }
  return true;
}

}  // namespace

void Resolver::choose_dma(const isa::Instruction& in, Prepared* p) {
  const auto memory = [&](const Operand* o, const char* role) {
    if (o->space == isa::Space::kPsum) illegal(std::string(role) + " is in PSUM, which DMA cannot reach");
    need(o, role, true, false, true);
  };
  memory(p->dst, "dst");
  memory(p->src0, "src0");
  const auto count = [](const Operand* o) { return std::to_string(o->elements()); };
  switch (in.opcode) {
    case isa::Opcode::kDmaCopy: {
      if (p->dst->elements() != p->src0->elements()) {
        illegal("dst has " + count(p->dst) + " elements and src0 " + count(p->src0));
      }
      CopyPlan& plan = arena_.copies.emplace_back();
      plan_copy(*p->dst, *p->src0, &plan);
      p->copy = &plan;
      p->fn = execute_dma_copy;
      return;
    }
    case isa::Opcode::kDmaCompute: {
      const int64_t want = p->dst->elements();
      int64_t sources = 0;
      for (const Operand* o : {p->src0, p->src1}) {
        if (!o->present()) continue;
        memory(o, o == p->src0 ? "src0" : "src1");
        const int64_t n = o->elements() / want;
        if (n < 1 || n * want != o->elements() || o->n % n != 0) {
          illegal("an operand of " + count(o) + " elements does not hold whole sources of " + count(p->dst));
        }
        sources += n;
      }
      if (sources > 16) illegal("more than 16 sources");
      p->fn = execute_dma_compute;
      return;
    }
    case isa::Opcode::kDmaTranspose: {
      const bool indexed = p->src1->present();
      if (p->dst->bytes != p->src0->bytes || (p->dst->bytes != 2 && p->dst->bytes != 4)) {
        illegal("a DMA transpose moves 2- or 4-byte elements without a cast");
      }
      // src0 is [rows, middle, columns], dst [columns, middle, rows]; without a middle, all dims of src0 but the
      // first are columns. An on-chip side knows its partitions.
      int64_t rows = 1, columns = 1;
      const isa::Access& s = in.src0;
      if (p->src0->space == isa::Space::kSbuf) {
        rows = p->src0->rows;
      } else if (s.num_dims > 0) {
        rows = s.size[0];
      }
      if (in.count > 2) {
        columns = s.num_dims > 0 ? s.size[static_cast<size_t>(s.num_dims - 1)] : 1;
      } else {
        columns = p->src0->elements() / rows;
      }
      const int64_t middle = p->src0->elements() / (rows * columns);
      int64_t picked = rows;
      if (indexed) {
        need(p->src0, "src0", false, false, true);
        need(p->src1, "src1", true, false, false);
        if (!isa::is_integer(p->src1->dtype)) illegal("src1 holds row indices and needs an integer dtype");
        picked = p->src1->elements();
      }
      if (p->dst->elements() != picked * middle * columns || middle * rows * columns != p->src0->elements()) {
        illegal("dst has " + count(p->dst) + " elements and src0 " + count(p->src0));
      }
      if (p->dst->space == isa::Space::kSbuf && p->dst->rows != columns) {
        illegal("dst must be the transposed shape of src0");
      }
      TransposePlan& plan = arena_.transposes.emplace_back();
      std::vector<int64_t> by_row;  // offsets of (row, middle)
      if (!split(*p->src0, rows * middle, columns, &by_row, &plan.src_col) ||
          !split(*p->dst, columns, middle * picked, &plan.dst_row, &plan.dst_col)) {
        illegal("the dims of src0 and dst do not split into [" + std::to_string(rows * middle) + ", " +
                std::to_string(columns) + "] and its transpose");
      }
      if (indexed) {
        plan.table_rows = rows;
        plan.table_step = s.num_dims > 0 ? s.step_bytes(0) : 0;
        plan.src_row.assign(by_row.begin(), by_row.begin() + middle);
        p->fn = execute_dma_gather_transpose;
      } else {
        // In the order of dst: (middle, row).
        plan.src_row.resize(by_row.size());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t m = 0; m < middle; ++m) {
            plan.src_row[static_cast<size_t>(m * rows + r)] = by_row[static_cast<size_t>(r * middle + m)];
          }
        }
        p->fn = execute_dma_transpose;
      }
      plan.uniform =
          uniform(plan.src_row) && uniform(plan.src_col) && uniform(plan.dst_row) && uniform(plan.dst_col);
      p->transpose = &plan;
      return;
    }
    default: {
      const bool gather = in.opcode == isa::Opcode::kDmaGather;
      const isa::Access& table = gather ? in.src0 : in.dst;  // rows in HBM
      const Operand* rows = gather ? p->src0 : p->dst;
      const Operand* tile = gather ? p->dst : p->src0;
      need(rows, gather ? "src0" : "dst", false, false, true);
      need(p->src1, "src1", true, false, false);
      if (!isa::is_integer(p->src1->dtype)) illegal("src1 holds row indices and needs an integer dtype");
      if (table.num_dims < 1) illegal("the HBM side needs dims[0] = number of rows");
      const int64_t row_elements = rows->n / table.size[0];
      if (tile->space == isa::Space::kSbuf && tile->rows != p->src1->rows) {
        illegal("the index and the tile differ in partitions");
      }
      if (tile->elements() != p->src1->elements() * row_elements) {
        illegal("the tile has " + count(tile) + " elements; " + count(p->src1) + " indices of rows of " +
                std::to_string(row_elements) + " elements need " +
                std::to_string(p->src1->elements() * row_elements));
      }
      if (in.op0 != isa::AluOp::kNone && in.op0 != isa::AluOp::kBypass && in.op0 != isa::AluOp::kAdd) {
        illegal("an indirect transfer stores (op0 none) or accumulates (op0 add)");
      }
      // A row on both sides: dims[1..] of the table against the innermost row_elements of the tile.
      Operand row = *rows;
      row.pattern = {};
      row.n = row_elements;
      for (int i = 1; i < table.num_dims; ++i) {
        const auto u = static_cast<size_t>(i);
        if (table.size[u] == 1) continue;
        row.pattern.size[static_cast<size_t>(row.pattern.dims)] = table.size[u];
        row.pattern.step[static_cast<size_t>(row.pattern.dims)] = table.step_bytes(i);
        ++row.pattern.dims;
      }
      TransposePlan& plan = arena_.transposes.emplace_back();
      // src_*: the tile, one row per index; dst_*: the table row; the step between table rows comes last.
      if (!split(*tile, p->src1->elements(), row_elements, &plan.src_row, &plan.src_col) ||
          !split(row, 1, row_elements, &plan.dst_row, &plan.dst_col)) {
        illegal("the dims of the tile do not split into rows of " + std::to_string(row_elements) +
                " elements");
      }
      plan.dst_row = {table.step_bytes(0), static_cast<int64_t>(table.size[0])};
      plan.uniform = uniform(plan.src_col) && uniform(plan.dst_col);
      p->transpose = &plan;
      p->fn = gather ? execute_dma_gather : execute_dma_scatter;
      return;
    }
  }
}

}  // namespace trnsim::exec
