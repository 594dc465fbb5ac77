#include "device_plugin/compiler/fusion/cost.h"

#include <algorithm>

#include "device_plugin/compiler/cost.h"
#include "device_plugin/compiler/fusion/views.h"

namespace trnsim::compiler::fusion {
namespace {

// Rates of one physical core, rounded: sixteen DMA engines; two engines that share the operators, 128 lanes each.
constexpr double kBytesPerNs = 400;
constexpr double kElementsPerNs = 220;
constexpr double kWorstRunPenalty = 32;
// The map tiler's budget (tilers/map.cpp).
constexpr int64_t kRowBytes = 180 * 1024;
constexpr int64_t kTileBytes = 88 * 1024;
constexpr int64_t kMinTileElements = 512;
constexpr size_t kMaxOperands = 40, kMaxExprs = 320;

double weight_of(const Expr& e) {
  switch (e.op) {
    case ExprOp::kInput:
    case ExprOp::kParam:
    case ExprOp::kConst:
      return 0;
    case ExprOp::kDiv:
      return 4;
    case ExprOp::kLog1p:
    case ExprOp::kExpm1:
    case ExprOp::kErfc:
    case ExprOp::kErfcx:
    case ExprOp::kSin:
    case ExprOp::kCos:
    case ExprOp::kTan:
    case ExprOp::kAsin:
    case ExprOp::kAcos:
    case ExprOp::kAtan:
    case ExprOp::kSinh:
    case ExprOp::kCosh:
    case ExprOp::kAsinh:
    case ExprOp::kAcosh:
    case ExprOp::kAtanh:
    case ExprOp::kAtan2:
    case ExprOp::kPow:
    case ExprOp::kFmod:
    case ExprOp::kRemainder:
    case ExprOp::kFloorDiv:
    case ExprOp::kTruncDiv:
      return 15;
    default:
      return 1;
  }
}

// Expressions with one value per tile element; the others are row values or numbers.
std::vector<bool> per_element(const MapForm& f) {
  const bool rows = f.reduces();
  auto varies = [&](const View& v) {
    for (size_t d = 0; d < f.rank(); ++d) {
      if (f.sizes[d] > 1 && v.strides[d] != 0 && (!rows || f.reduced[d])) return true;
    }
    return false;
  };
  std::vector<bool> full(f.exprs.size(), false);
  for (size_t i = 0; i < f.exprs.size(); ++i) {
    const Expr& e = f.exprs[i];
    if (e.op == ExprOp::kReduce) continue;
    if (e.op == ExprOp::kInput) full[i] = varies(f.inputs[static_cast<size_t>(e.index)].view);
    if (e.op == ExprOp::kIota) full[i] = !rows || f.reduced[static_cast<size_t>(e.index)];
    for (int32_t o : {e.a, e.b, e.c}) {
      if (o >= 0 && full[static_cast<size_t>(o)]) full[i] = true;
    }
  }
  return full;
}

int reduce_levels(const MapForm& f) {
  std::vector<int> depth(f.exprs.size(), 0);
  int deepest = 0;
  for (size_t i = 0; i < f.exprs.size(); ++i) {
    for (int32_t o : {f.exprs[i].a, f.exprs[i].b, f.exprs[i].c}) {
      if (o >= 0) depth[i] = std::max(depth[i], depth[static_cast<size_t>(o)]);
    }
    if (f.exprs[i].op == ExprOp::kReduce) ++depth[i];
    deepest = std::max(deepest, depth[i]);
  }
  return deepest;
}

// The axis along which tiles run: the innermost one of the largest operand, results before inputs.
int inner_axis(const MapForm& f) {
  const View* lead = nullptr;
  int64_t most = 0;
  auto consider = [&](const View& v) {
    const int64_t n = distinct_elements(f.sized(v));
    if (n > most) {
      most = n;
      lead = &v;
    }
  };
  for (const auto& o : f.outputs) consider(o.view);
  for (const auto& i : f.inputs) consider(i.view);
  int inner = -1;
  for (size_t d = 0; lead && d < f.rank(); ++d) {
    const int64_t step = std::abs(lead->strides[d]);
    if (f.sizes[d] == 1 || step == 0) continue;
    if (inner < 0 || step < std::abs(lead->strides[static_cast<size_t>(inner)])) inner = static_cast<int>(d);
  }
  return inner;
}

double transfer_bytes(const MapForm& f, const View& v, int inner) {
  const double element = static_cast<double>(isa::dtype_bytes(v.dtype));
  const double bytes = static_cast<double>(distinct_elements(f.sized(v))) * element;
  if (inner < 0 || v.strides[static_cast<size_t>(inner)] == 0) return bytes;
  int64_t run = 1;
  if (v.strides[static_cast<size_t>(inner)] == 1) {
    bool longer = true;
    while (longer) {
      longer = false;
      for (size_t d = 0; d < f.rank(); ++d) {
        if (f.sizes[d] > 1 && v.strides[d] == run) {
          run *= f.sizes[d];
          longer = true;
        }
      }
    }
  }
  const double penalty = static_cast<double>(kFullRunBytes) / (static_cast<double>(run) * element);
  return bytes * std::clamp(penalty, 1.0, kWorstRunPenalty);
}

// How often the inputs are read, as tilers/map.cpp decides it.
int passes(const MapForm& f, int inner) {
  if (!f.reduces()) return 1;
  const int64_t length = f.row_length(), rows = f.elements() / length;
  const int64_t bytes = tile_bytes_per_element(f);
  const bool across = (rows < 32 && length >= 512 && length >= rows) ||
                      (inner >= 0 && !f.reduced[static_cast<size_t>(inner)] && length >= 16 &&
                       f.sizes[static_cast<size_t>(inner)] >= 8);
  const int64_t limit = std::max<int64_t>(1, kTileBytes / bytes);
  const bool single = across ? length <= 128 * std::max<int64_t>(1, std::min<int64_t>(limit, 4096) /
                                                                        std::min<int64_t>(rows, 1024))
                             : length <= std::max<int64_t>(1, kRowBytes / bytes);
  if (single) return 1;
  const bool full = std::any_of(f.outputs.begin(), f.outputs.end(), [](const auto& o) { return !o.row; });
  return reduce_levels(f) + (full ? 1 : 0);
}

}  // namespace

double element_operators(const MapForm& f) {
  const std::vector<bool> full = per_element(f);
  double sum = 0;
  for (size_t i = 0; i < f.exprs.size(); ++i) {
    const Expr& e = f.exprs[i];
    // A reduction reads every element, whatever its value.
    if (full[i] || (e.op == ExprOp::kReduce && full[static_cast<size_t>(e.a)])) sum += weight_of(e);
  }
  return sum;
}

double map_time_ns(const MapForm& f) {
  const int inner = inner_axis(f), times = passes(f, inner);
  double bytes = 0;
  for (const auto& i : f.inputs) bytes += times * transfer_bytes(f, i.view, inner);
  for (const auto& o : f.outputs) bytes += transfer_bytes(f, o.view, inner);
  const double computation =
      times * element_operators(f) * static_cast<double>(f.elements()) / kElementsPerNs;
  return std::max(bytes / kBytesPerNs, computation) + kKernelLatencyNs;
}

int64_t tile_bytes_per_element(const MapForm& f) {
  const std::vector<bool> full = per_element(f);
  std::vector<size_t> last(f.exprs.size(), 0);
  for (size_t i = 0; i < f.exprs.size(); ++i) {
    for (int32_t o : {f.exprs[i].a, f.exprs[i].b, f.exprs[i].c}) {
      if (o >= 0) last[static_cast<size_t>(o)] = i;
    }
  }
  int64_t results = 0, live = 0, most = 0;
  for (const auto& o : f.outputs) {
    if (!o.row) results += static_cast<int64_t>(isa::dtype_bytes(o.view.dtype));
    last[static_cast<size_t>(o.expr)] = f.exprs.size();
  }
  auto bytes = [&](size_t i) -> int64_t {
    const Expr& e = f.exprs[i];
    if (!full[i] || e.op == ExprOp::kConst || e.op == ExprOp::kParam) return 0;
    if (e.op == ExprOp::kInput)
      return std::min<int64_t>(
          4, static_cast<int64_t>(isa::dtype_bytes(f.inputs[static_cast<size_t>(e.index)].view.dtype)));
    return e.dtype == Dtype::kBool ? 1 : 4;
  };
  for (size_t i = 0; i < f.exprs.size(); ++i) {  // loads come first
    if (f.exprs[i].op == ExprOp::kInput) live += bytes(i);
  }
  most = live;
  std::vector<std::vector<size_t>> ends(f.exprs.size() + 1);
  for (size_t i = 0; i < f.exprs.size(); ++i) ends[last[i]].push_back(i);
  for (size_t i = 0; i < f.exprs.size(); ++i) {
    if (f.exprs[i].op != ExprOp::kInput) live += bytes(i);
    most = std::max(most, live + (weight_of(f.exprs[i]) > 1 ? 12 : 0));
    for (size_t done : ends[i]) live -= done < i ? bytes(done) : 0;
  }
  return std::max<int64_t>(1, results + most);
}

bool within_limits(const MapForm& f) {
  return f.inputs.size() + f.outputs.size() <= kMaxOperands && f.exprs.size() <= kMaxExprs &&
         tile_bytes_per_element(f) * kMinTileElements <= kTileBytes;
}

}  // namespace trnsim::compiler::fusion
