// A map and the product that reads its result, in turns.
//
// Every engine works in program order, so a product behind a whole map waits for the last row of it. Cut into blocks of
// rows, the map runs one block ahead of the product, and Vector and Scalar make rows while the tensor engine multiplies
// those before. The right operand is loaded again for every block: worth it where that hides behind the products.
#include <algorithm>

#include "device_plugin/compiler/cost.h"
#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kFirstRows = 256, kRows = 512;  // of a block; the first ones are short, to start early
constexpr int64_t kMinRows = 4 * kRows;

std::vector<int64_t> row_bounds(int64_t rows) {
  std::vector<int64_t> bounds{0};
  while (bounds.back() < rows)
    bounds.push_back(std::min(rows, bounds.back() + (bounds.size() <= 2 ? kFirstRows : kRows)));
  return bounds;
}

// The map can be cut along its first axis.
bool rows_are_independent(const MapKernel& map) {
  if (map.domain.empty() || map.num_kept < 1) return false;
  return std::none_of(map.exprs.begin(), map.exprs.end(),
                      [](const Expr& e) { return e.op == ExprOp::kIota && e.index == 0; });
}

bool same_place(const View& a, const View& b) {
  return a.buffer == b.buffer && a.dtype == b.dtype && a.offset == b.offset && a.sizes == b.sizes &&
         a.strides == b.strides;
}

bool loads_hide(const DotKernel& dot, size_t blocks, const config::Config& config) {
  const int64_t m = dot.a.sizes[0], k = dot.a.sizes[1], n = dot.b.sizes[1];
  const Dtype dtype = tile_dtype(dot.a.dtype);
  isa::Instruction product, load;
  product.opcode = isa::Opcode::kMultiplyMoving;
  product.dst = dense_access(isa::Space::kPsum, kPartitions, {kPsumColumns}, Dtype::kF32);
  product.src0 = dense_access(isa::Space::kSbuf, kPartitions, {kPsumColumns}, dtype);
  load.opcode = isa::Opcode::kDmaCopy;
  load.dst = product.src0;
  load.src0 = product.src0;
  load.src0.space = isa::Space::kHbm;
  load.src0.num_partitions = 0;
  load.src0.num_dims = 2;
  load.src0.size = {static_cast<uint32_t>(kPartitions), static_cast<uint32_t>(kPsumColumns)};
  load.src0.step = {kPsumColumns, 1};
  const double tiles = static_cast<double>(ceil_div(k, kPartitions) * ceil_div(n, kPsumColumns));
  const double product_ns = compute_time(product, Engine::kTensor, config).issue_ns;
  return static_cast<double>(blocks) * tiles * transfer_time(load, config).service_ns <
         0.7 * tiles * static_cast<double>(ceil_div(m, kPartitions)) * product_ns;
}

// The product reads what the map writes as its left operand, row by row.
bool can_stagger(const KernelList& list, const MapKernel& map, const DotKernel& dot,
                 const config::Config& config) {
  if (dot.a.sizes.size() != 2 || dot.a.sizes[0] < kMinRows || !isa::is_float(dot.a.dtype)) return false;
  if (!rows_are_independent(map) || map.domain[0] != dot.a.sizes[0]) return false;
  // Memory under two names, and what the product writes while rows ahead of it are still read.
  const auto aliased = [&](const View& v) {
    return list.buffers[static_cast<size_t>(v.buffer)].alias_input >= 0;
  };
  if (aliased(dot.out)) return false;
  for (const View& v : map.inputs)
    if (v.buffer == dot.out.buffer) return false;
  bool feeds = false;
  for (const auto& o : map.outputs) {
    if (aliased(o.view)) return false;
    if (same_place(o.view, dot.a)) {
      feeds = true;
    } else if (o.view.buffer == dot.b.buffer || o.view.buffer == dot.a.buffer) {
      return false;
    }
    // Row values may be extra operands: then in the same rows.
    for (const View& e : dot.extra)
      if (e.buffer == o.view.buffer && e.strides[0] == 0) return false;
  }
  return feeds && loads_hide(dot, row_bounds(dot.a.sizes[0]).size() - 1, config);
}

MapKernel rows_of(const MapKernel& map, int64_t begin, int64_t count) {
  MapKernel part = map;
  part.domain[0] = count;
  for (View& v : part.inputs) v = view_slice(v, 0, begin, count);
  for (auto& o : part.outputs) o.view = view_slice(o.view, 0, begin, count);
  return part;
}
DotKernel rows_of(const DotKernel& dot, int64_t begin, int64_t count) {
  DotKernel part = dot;
  part.a = view_slice(dot.a, 0, begin, count);
  part.out = view_slice(dot.out, 0, begin, count);
  for (View& v : part.extra) v = view_slice(v, 0, begin, count);
  return part;
}

}  // namespace

std::optional<KernelList> stagger(const KernelList& list, const std::string& target) {
  const auto pair_at = [&](size_t i) -> std::pair<const MapKernel*, const DotKernel*> {
    if (i + 1 >= list.kernels.size()) return {};
    const auto* map = std::get_if<MapKernel>(&list.kernels[i]);
    const auto* dot = std::get_if<DotKernel>(&list.kernels[i + 1]);
    if (map == nullptr || dot == nullptr || !can_stagger(list, *map, *dot, target_config(target))) return {};
    return {map, dot};
  };
  size_t first = 0;
  while (first < list.kernels.size() && pair_at(first).first == nullptr) ++first;
  if (first == list.kernels.size()) return std::nullopt;

  KernelList result = list;
  result.kernels.clear();
  result.locations.clear();
  const auto add = [&](size_t from, Kernel kernel) {
    result.kernels.push_back(std::move(kernel));
    result.locations.push_back(from < list.locations.size() ? list.locations[from] : std::string());
  };
  for (size_t i = 0; i < list.kernels.size(); ++i) {
    const auto [map, dot] = pair_at(i);
    if (map == nullptr) {
      add(i, list.kernels[i]);
      continue;
    }
    const std::vector<int64_t> bounds = row_bounds(map->domain[0]);
    const auto count = [&](size_t b) { return bounds[b + 1] - bounds[b]; };
    add(i, rows_of(*map, 0, count(0)));
    for (size_t b = 0; b + 1 < bounds.size(); ++b) {
      if (b + 2 < bounds.size()) add(i, rows_of(*map, bounds[b + 1], count(b + 1)));
      add(i + 1, rows_of(*dot, bounds[b], count(b)));
    }
    ++i;
  }
  return result;
}

}  // namespace trnsim::compiler
