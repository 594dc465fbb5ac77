#include "device_plugin/compiler/tilers/indexed_rows.h"

#include <limits>
#include <numeric>

namespace trnsim::compiler {
namespace {

// Builds an int32 expression DAG.
class IndexExpr {
 public:
  int32_t input(int32_t i) { return node(ExprOp::kInput, -1, -1, -1, i); }
  int32_t iota(int32_t axis) { return node(ExprOp::kIota, -1, -1, -1, axis); }
  int32_t constant(int64_t v) {
    const int32_t e = node(ExprOp::kConst);
    exprs[e].value = static_cast<double>(v);
    return e;
  }
  int32_t binary(ExprOp op, int32_t a, int32_t b) { return node(op, a, b); }
  int32_t plus(int32_t a, int64_t b) { return b == 0 ? a : binary(ExprOp::kAdd, a, constant(b)); }
  int32_t compare(ExprOp op, int32_t a, int32_t b) {
    const int32_t e = node(op, a, b);
    exprs[e].dtype = Dtype::kBool;
    return e;
  }
  int32_t select(int32_t a, int32_t b, int32_t c) { return node(ExprOp::kSelect, a, b, c); }
  int32_t scaled(int32_t a, int64_t factor) {
    return factor == 1 ? a : binary(ExprOp::kMul, a, constant(factor));
  }

  std::vector<Expr> exprs;

 private:
  int32_t node(ExprOp op, int32_t a = -1, int32_t b = -1, int32_t c = -1, int32_t index = 0) {
    Expr e;
    e.op = op;
    e.dtype = Dtype::kI32;
    e.a = a;
    e.b = b;
    e.c = c;
    e.index = index;
    exprs.push_back(e);
    return static_cast<int32_t>(exprs.size() - 1);
  }
};

void split(RowPiece piece, int64_t max_elements, std::vector<RowPiece>& out) {
  while (!piece.sizes.empty() && piece.sizes.front() == 1) {
    piece.sizes.erase(piece.sizes.begin());
    piece.strides.erase(piece.strides.begin());
  }
  piece.elements = 1;
  for (int64_t s : piece.sizes) piece.elements *= s;
  if (piece.elements <= max_elements && piece.sizes.size() <= 3) {
    out.push_back(piece);
    return;
  }
  const int64_t inner = piece.elements / piece.sizes.front();
  const int64_t step = piece.sizes.size() > 3 ? 1 : std::max<int64_t>(1, max_elements / inner);
  for (int64_t i = 0; i < piece.sizes.front(); i += step) {
    RowPiece part = piece;
    part.sizes.front() = std::min(step, piece.sizes.front() - i);
    part.table_delta += i * piece.strides.front();
    part.dense_delta += i * inner;
    split(part, max_elements, out);
  }
}

}  // namespace

IndexedRows linear_index(const View& table, int axis, const std::vector<View>& index,
                         const std::vector<IndexRule>& rules, bool along, LocalContext& local,
                         TileBuilder& tile) {
  IndexedRows r;
  const int rank = static_cast<int>(table.sizes.size());
  const int indexed = static_cast<int>(index.size());
  if (indexed < 1 || axis < 0 || axis + indexed > rank) throw_internal("gather/scatter: bad indexed axes");
  if (along && indexed != 1) throw_internal("gather/scatter along an axis takes one index tensor");
  const bool checked = !rules.empty();
  if (checked && rules.size() != index.size()) throw_internal("gather/scatter: one rule per index operand");
  const std::vector<int64_t>& index_sizes = index[0].sizes;

  // Which table axes are spanned by position (not by an index value), and by which row coordinate.
  std::vector<std::pair<int, int>> positional;  // (table axis, coordinate)
  if (along) {
    r.coordinates = index_sizes;
    for (int a = 0; a < rank; ++a)
      if (a != axis) positional.emplace_back(a, a);
  } else {
    for (int a = 0; a < axis; ++a) {
      positional.emplace_back(a, static_cast<int>(r.coordinates.size()));
      r.coordinates.push_back(table.sizes[a]);
    }
    r.coordinates.insert(r.coordinates.end(), index_sizes.begin(), index_sizes.end());
    View row = window_of(table, 0, {table.sizes.begin() + axis + indexed, table.sizes.end()},
                         {table.strides.begin() + axis + indexed, table.strides.end()});
    std::vector<View> merged{row};
    merge_axes(merged);
    r.row_sizes = merged[0].sizes;
    r.row_strides = merged[0].strides;
  }
  for (int64_t s : r.coordinates) r.rows *= s;
  for (int64_t s : r.row_sizes) r.row_elements *= s;
  if (r.rows == 0 || r.row_elements == 0) return r;

  // Rows may start at any combination of the spanned axes: their common pitch is the gcd of the strides.
  int64_t pitch = 0, last = 0;
  const auto span = [&](int a) {
    pitch = std::gcd(pitch, table.strides[a]);
    const int64_t reach = (table.sizes[a] - 1) * table.strides[a];
    (reach < 0 ? r.first : last) += reach;
  };
  for (const auto& [a, coordinate] : positional) span(a);
  for (int i = 0; i < indexed; ++i) {
    if (table.sizes[axis + i] == 0) {
      throw_user_error("index into axis " + std::to_string(axis + i) + " of size 0");
    }
    span(axis + i);
  }
  r.pitch = pitch == 0 ? 1 : pitch;
  r.bound = (last - r.first) / r.pitch + 1;
  if (r.bound > std::numeric_limits<int32_t>::max()) {
    throw_unsupported("gather/scatter over " + std::to_string(r.bound) +
                      " rows (indices have 32 bits on the device); index a smaller view");
  }

  const int coordinate_rank = static_cast<int>(r.coordinates.size());
  const int first_index_axis = along ? 0 : axis;
  MapKernel map;
  map.domain = r.coordinates;
  map.num_kept = coordinate_rank;
  IndexExpr e;
  int32_t linear = -1, valid = -1, code = -1;
  const auto add = [&](int32_t term) { linear = linear < 0 ? term : e.binary(ExprOp::kAdd, linear, term); };
  isa::IndexCheck check;
  constexpr int64_t kMaxCode = std::numeric_limits<int32_t>::max();
  for (int i = 0; i < indexed; ++i) {
    const int64_t size = table.sizes[axis + i];
    View v = index[i];
    std::vector<int64_t> strides(coordinate_rank, 0);
    for (size_t d = 0; d < v.sizes.size(); ++d) strides[first_index_axis + d] = v.strides[d];
    v.sizes = r.coordinates;
    v.strides = strides;
    map.inputs.push_back(v);
    const int32_t value = e.input(i);
    const int64_t step = table.strides[axis + i] / r.pitch;
    if (!checked) {
      add(e.scaled(value, step));
      continue;
    }
    check.indices.push_back({size, rules[i].words});
    const int32_t zero = e.constant(0), extent = e.constant(size);
    const int32_t negative = e.compare(ExprOp::kLt, value, zero);
    const int32_t wrapped =
        rules[i].wraps ? e.select(negative, e.binary(ExprOp::kAdd, value, extent), value) : value;
    const int32_t low = e.compare(ExprOp::kGe, wrapped, zero);
    const int32_t high = e.compare(ExprOp::kLt, wrapped, extent);
    const int32_t inside = e.compare(ExprOp::kAnd, low, high);
    // Clamped so that the code keeps to 32 bits: far outside, the words name the nearest index that has a code.
    const int64_t largest = size + (kMaxCode - r.bound - i) / indexed;
    const int32_t above = e.plus(e.scaled(e.binary(ExprOp::kMin, value, e.constant(largest)), indexed),
                                 r.bound - size * indexed + i);
    const int32_t kept =
        indexed == 1 ? value : e.binary(ExprOp::kMax, value, e.constant(-kMaxCode / indexed));
    const int32_t below = e.plus(e.scaled(kept, indexed), indexed - 1 - i);
    const int32_t own = e.select(negative, below, above);
    code = code < 0 ? own : e.select(valid, own, code);  // of the first operand that is not legal
    valid = valid < 0 ? inside : e.compare(ExprOp::kAnd, valid, inside);
    add(e.scaled(wrapped, step));
  }
  for (const auto& [a, coordinate] : positional) {
    if (r.coordinates[coordinate] == 1 || table.strides[a] == 0) continue;
    add(e.scaled(e.iota(coordinate), table.strides[a] / r.pitch));
  }
  linear = e.plus(linear, -r.first / r.pitch);
  const int32_t result = checked ? e.select(valid, linear, code) : linear;
  map.exprs = std::move(e.exprs);
  r.index = local.scratch(tile, Dtype::kI32, r.coordinates);
  map.outputs.push_back({r.index, result});
  tile_map(map, local.context(), tile);
  if (checked) tile.check_indices(check);
  r.index.sizes = {r.rows};
  r.index.strides = {1};
  return r;
}

std::vector<RowPiece> row_pieces(const IndexedRows& rows, Dtype dtype, int64_t max_elements) {
  RowPiece whole;
  whole.sizes = rows.row_sizes;
  whole.strides = rows.row_strides;
  std::vector<RowPiece> out;
  split(whole, max_elements, out);
  return out;
}

Access table_access(const KernelContext& context, const View& table, const IndexedRows& rows,
                    const RowPiece& piece) {
  std::vector<int64_t> sizes{rows.bound}, strides{rows.pitch};
  sizes.insert(sizes.end(), piece.sizes.begin(), piece.sizes.end());
  strides.insert(strides.end(), piece.strides.begin(), piece.strides.end());
  return hbm_view_exact(
      context, window_of(table, rows.first + piece.table_delta, std::move(sizes), std::move(strides)));
}

std::vector<RowChunk> row_chunks(int64_t rows, int64_t max_per_partition) {
  std::vector<RowChunk> out;
  for (int64_t first = 0; first < rows;) {
    const int64_t left = rows - first;
    if (left < kPartitions) {
      out.push_back({first, static_cast<int>(left), 1});
      break;
    }
    const int64_t per = std::min(max_per_partition, left / kPartitions);
    out.push_back({first, static_cast<int>(kPartitions), per});
    first += per * kPartitions;
  }
  return out;
}

}  // namespace trnsim::compiler
