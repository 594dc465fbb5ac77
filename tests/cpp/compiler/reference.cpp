#include "tests/cpp/compiler/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numbers>
#include <stdexcept>

#include "tests/cpp/compiler/reference_expr.h"

namespace trnsim::compiler::reference {
namespace {

struct Machine {
  const KernelList& list;
  const std::vector<std::byte*>& memory;
  const std::vector<uint32_t>& params;

  std::byte* at(const View& v, int64_t element) const {
    const Buffer& b = list.buffers.at(static_cast<size_t>(v.buffer));
    int64_t e = v.offset + element;
    if (e < 0 || e >= b.elements) throw std::runtime_error("a view leaves its buffer");
    return memory[static_cast<size_t>(v.buffer)] + e * static_cast<int64_t>(isa::dtype_bytes(v.dtype));
  }
  Cell load(const View& v, int64_t element) const { return load_cell(v.dtype, at(v, element)); }
  void store(const View& v, int64_t element, const Cell& c) const { store_cell(v.dtype, at(v, element), c); }

  static int64_t place(const View& v, const std::vector<int64_t>& index) {
    int64_t e = 0;
    for (size_t d = 0; d < v.sizes.size(); ++d) e += index[d] * v.strides[d];
    return e;
  }
  // Calls f(index) for every index of a shape, in row-major order.
  template <typename F>
  static void each(const std::vector<int64_t>& sizes, F&& f) {
    for (int64_t s : sizes) {
      if (s == 0) return;
    }
    std::vector<int64_t> index(sizes.size(), 0);
    while (true) {
      f(index);
      size_t d = sizes.size();
      while (d-- > 0) {
        if (++index[d] < sizes[d]) break;
        index[d] = 0;
        if (d == 0) return;
      }
      if (sizes.empty()) return;
    }
  }

  void operator()(const MapKernel& k) const {
    std::vector<int64_t> kept(k.domain.begin(), k.domain.begin() + k.num_kept);
    std::vector<int64_t> reduced(k.domain.begin() + k.num_kept, k.domain.end());
    each(kept, [&](const std::vector<int64_t>& row) {
      std::vector<std::vector<int64_t>> places;
      each(reduced, [&](const std::vector<int64_t>& column) {
        std::vector<int64_t> index = row;
        index.insert(index.end(), column.begin(), column.end());
        places.push_back(std::move(index));
      });
      // Every expression over the whole row before the next one; reductions are then ordinary values.
      std::vector<std::vector<Cell>> values(k.exprs.size());
      std::vector<Cell> row_values(k.exprs.size());
      for (size_t e = 0; e < k.exprs.size(); ++e) {
        const Expr& x = k.exprs[e];
        auto operand = [&](int32_t i, size_t p) { return values[static_cast<size_t>(i)][p]; };
        if (x.op == ExprOp::kReduce) {
          Cell r = reduce_cells(x, values[static_cast<size_t>(x.a)]);
          row_values[e] = r;
          values[e].assign(places.size(), r);
          continue;
        }
        for (size_t p = 0; p < places.size(); ++p) {
          Cell c;
          if (x.op == ExprOp::kInput) {
            const View& v = k.inputs.at(static_cast<size_t>(x.index));
            c = load(v, place(v, places[p]));
          } else if (x.op == ExprOp::kIota) {
            c = Cell::integer(static_cast<int32_t>(places[p].at(static_cast<size_t>(x.index))));
          } else {
            c = evaluate(x, x.a >= 0 ? operand(x.a, p) : Cell{}, x.b >= 0 ? operand(x.b, p) : Cell{},
                         x.c >= 0 ? operand(x.c, p) : Cell{}, params);
          }
          values[e].push_back(c);
        }
        // values of an empty row that reductions produced still flow on
        if (places.empty()) {
          auto r = [&](int32_t i) { return i >= 0 ? row_values[static_cast<size_t>(i)] : Cell{}; };
          if (x.op != ExprOp::kInput && x.op != ExprOp::kIota)
            row_values[e] = evaluate(x, r(x.a), r(x.b), r(x.c), params);
        } else {
          row_values[e] = values[e][0];
        }
      }
      for (const auto& o : k.outputs) {
        size_t e = static_cast<size_t>(o.expr);
        if (o.view.sizes.size() == k.domain.size()) {
          for (size_t p = 0; p < places.size(); ++p) store(o.view, place(o.view, places[p]), values[e][p]);
        } else {
          store(o.view, place(o.view, row), row_values[e]);
        }
      }
    });
  }

  void operator()(const DotKernel& k) const {
    size_t rank = k.out.sizes.size();
    int64_t depth = k.a.sizes.back();
    if (k.a.dtype != k.b.dtype) throw std::runtime_error("dot operands of two dtypes");
    each(k.out.sizes, [&](const std::vector<int64_t>& index) {
      double sum = 0;
      std::vector<int64_t> ia = index, ib = index;
      for (int64_t d = 0; d < depth; ++d) {
        ia[rank - 1] = d;
        ib[rank - 2] = d;
        sum += static_cast<double>(load(k.a, place(k.a, ia)).f) *
               static_cast<double>(load(k.b, place(k.b, ib)).f);
      }
      Cell c = Cell::real(static_cast<float>(sum));
      c = with_epilogue(k.epilogue, k.extra, index, c);
      store(k.out, place(k.out, index), c);
    });
  }

  Cell with_epilogue(const std::vector<Expr>& epilogue, const std::vector<View>& extra,
                     const std::vector<int64_t>& index, Cell accumulator) const {
    if (epilogue.empty()) return accumulator;
    std::vector<Cell> values;
    for (const Expr& x : epilogue) {
      if (x.op == ExprOp::kInput) {
        if (x.index == 0) {
          values.push_back(accumulator);
        } else {
          const View& v = extra.at(static_cast<size_t>(x.index) - 1);
          values.push_back(load(v, place(v, index)));
        }
        continue;
      }
      auto r = [&](int32_t i) { return i >= 0 ? values[static_cast<size_t>(i)] : Cell{}; };
      values.push_back(evaluate(x, r(x.a), r(x.b), r(x.c), params));
    }
    return values.back();
  }

  void operator()(const ConvKernel& k) const {
    size_t spatial = k.stride.size();
    int64_t out_per_group = k.out.sizes[1] / k.groups, in_per_group = k.weight.sizes[1];
    const View& written = k.mode == ConvKernel::Mode::kForward     ? k.out
                          : k.mode == ConvKernel::Mode::kInputGrad ? k.input
                                                                   : k.weight;
    std::vector<double> sum(static_cast<size_t>(written.numel()), 0.0);
    auto dense = [](const View& v, const std::vector<int64_t>& index) {
      int64_t e = 0;
      for (size_t d = 0; d < v.sizes.size(); ++d) e = e * v.sizes[d] + index[d];
      return static_cast<size_t>(e);
    };
    each(k.out.sizes, [&](const std::vector<int64_t>& o) {
      std::vector<int64_t> taps(k.weight.sizes.begin() + 2, k.weight.sizes.end());
      taps.insert(taps.begin(), in_per_group);
      each(taps, [&](const std::vector<int64_t>& t) {
        std::vector<int64_t> i{o[0], (o[1] / out_per_group) * in_per_group + t[0]}, w{o[1], t[0]};
        for (size_t s = 0; s < spatial; ++s) {
          int64_t at = o[2 + s] * k.stride[s] - k.padding[s] + t[1 + s] * k.dilation[s];
          if (at < 0 || at >= k.input.sizes[2 + s]) return;
          i.push_back(at);
          w.push_back(t[1 + s]);
        }
        auto value = [&](const View& v, const std::vector<int64_t>& index) {
          return static_cast<double>(load(v, place(v, index)).f);
        };
        if (k.mode == ConvKernel::Mode::kForward)
          sum[dense(k.out, o)] += value(k.input, i) * value(k.weight, w);
        if (k.mode == ConvKernel::Mode::kInputGrad)
          sum[dense(k.input, i)] += value(k.out, o) * value(k.weight, w);
        if (k.mode == ConvKernel::Mode::kWeightGrad)
          sum[dense(k.weight, w)] += value(k.out, o) * value(k.input, i);
      });
    });
    each(written.sizes, [&](const std::vector<int64_t>& index) {
      double s = sum[dense(written, index)];
      if (k.mode == ConvKernel::Mode::kForward && k.bias.buffer >= 0) {
        s += static_cast<double>(load(k.bias, index[1] * k.bias.strides[0]).f);
      }
      store(written, place(written, index),
            with_epilogue(k.epilogue, k.extra, index, Cell::real(static_cast<float>(s))));
    });
  }

  void operator()(const WindowKernel& k) const {
    size_t n = k.kernel.size(), lead = k.out.sizes.size() - n;
    bool backward = k.mode == WindowKernel::Mode::kMaxBackward || k.mode == WindowKernel::Mode::kAvgBackward;
    bool max = k.mode == WindowKernel::Mode::kMaxForward || k.mode == WindowKernel::Mode::kMaxBackward;
    if (backward)
      each(k.input.sizes, [&](const auto& i) { store(k.input, place(k.input, i), Cell::real(0)); });
    auto flat = [&](const std::vector<int64_t>& i) {
      int64_t e = 0;
      for (size_t s = 0; s < n; ++s) e = e * k.input.sizes[lead + s] + i[lead + s];
      return e;
    };
    auto add = [&](const std::vector<int64_t>& i, float v) {
      int64_t p = place(k.input, i);
      store(k.input, p, Cell::real(load(k.input, p).f + v));
    };
    each(k.out.sizes, [&](const std::vector<int64_t>& o) {
      if (k.mode == WindowKernel::Mode::kMaxBackward) {
        int64_t f = load(k.indices, place(k.indices, o)).i;
        std::vector<int64_t> i = o;
        for (size_t s = n; s-- > 0;) {
          i[lead + s] = f % k.input.sizes[lead + s];
          f /= k.input.sizes[lead + s];
        }
        add(i, load(k.out, place(k.out, o)).f);
        return;
      }
      std::vector<std::vector<int64_t>> window;
      double divisor = 1;
      each(k.kernel, [&](const std::vector<int64_t>& t) {
        std::vector<int64_t> i = o;
        for (size_t s = 0; s < n; ++s) {
          i[lead + s] = o[lead + s] * k.stride[s] - k.padding[s] + t[s] * k.dilation[s];
          if (i[lead + s] < 0 || i[lead + s] >= k.input.sizes[lead + s]) return;
        }
        window.push_back(i);
      });
      for (size_t s = 0; s < n; ++s) {  // the window cut to the padded input
        int64_t begin = o[lead + s] * k.stride[s] - k.padding[s];
        int64_t end = std::min(begin + k.kernel[s], k.input.sizes[lead + s] + k.padding[s]);
        divisor *= static_cast<double>(end - begin);
      }
      if (!k.count_include_pad) divisor = static_cast<double>(window.size());
      if (k.divisor) divisor = static_cast<double>(k.divisor);
      if (max) {
        Cell best;
        int64_t index = 0;
        bool first = true;
        for (const auto& i : window) {
          Cell c = load(k.input, place(k.input, i));
          bool better = c.dtype == Dtype::kF32 ? c.f > best.f || (std::isnan(c.f) && !std::isnan(best.f))
                                               : c.i > best.i;
          if (first || better) {
            best = c;
            index = flat(i);
          }
          first = false;
        }
        store(k.out, place(k.out, o), best);
        if (k.indices.buffer >= 0)
          store(k.indices, place(k.indices, o), Cell::integer(static_cast<int32_t>(index)));
      } else if (k.mode == WindowKernel::Mode::kAvgForward) {
        double sum = 0;
        for (const auto& i : window) sum += static_cast<double>(load(k.input, place(k.input, i)).f);
        store(k.out, place(k.out, o), Cell::real(static_cast<float>(sum / divisor)));
      } else {
        float g = static_cast<float>(static_cast<double>(load(k.out, place(k.out, o)).f) / divisor);
        for (const auto& i : window) add(i, g);
      }
    });
  }

  void operator()(const MoveKernel& k) const {
    if (k.src.sizes != k.dst.sizes) throw std::runtime_error("move between two shapes");
    each(k.dst.sizes, [&](const std::vector<int64_t>& i) {
      store(k.dst, place(k.dst, i), convert(load(k.src, place(k.src, i)), k.dst.dtype));
    });
  }

  // The element of the indexed tensor that position `i` of the gathered shape names.
  int64_t source_place(const View& tensor, const std::vector<View>& index, int axis, bool along,
                       const std::vector<int64_t>& i) const {
    size_t ax = static_cast<size_t>(axis);
    auto wrap = [](int64_t v, int64_t n) {
      if (v < -n || v >= n) throw std::runtime_error("index out of range");
      return v < 0 ? v + n : v;
    };
    std::vector<int64_t> s;
    if (along) {
      s = i;
      s[ax] = wrap(load(index.at(0), place(index[0], i)).i, tensor.sizes[ax]);
      return place(tensor, s);
    }
    size_t index_rank = index.at(0).sizes.size();
    std::vector<int64_t> j(i.begin() + axis, i.begin() + axis + static_cast<int64_t>(index_rank));
    s.assign(i.begin(), i.begin() + axis);
    for (size_t n = 0; n < index.size(); ++n) {
      s.push_back(wrap(load(index[n], place(index[n], j)).i, tensor.sizes[ax + n]));
    }
    s.insert(s.end(), i.begin() + axis + static_cast<int64_t>(index_rank), i.end());
    return place(tensor, s);
  }

  void operator()(const GatherKernel& k) const {
    each(k.out.sizes, [&](const std::vector<int64_t>& i) {
      store(k.out, place(k.out, i), load(k.src, source_place(k.src, k.index, k.axis, k.along, i)));
    });
  }

  void operator()(const ScatterKernel& k) const {
    each(k.src.sizes, [&](const std::vector<int64_t>& i) {
      int64_t p = source_place(k.out, k.index, k.axis, k.along, i);
      Cell c = load(k.src, place(k.src, i));
      if (k.combine == ScatterKernel::Combine::kAdd) {
        Cell old = load(k.out, p);
        c = old.dtype == Dtype::kF32 ? Cell::real(old.f + c.f) : Cell::integer(old.i + c.i);
      }
      store(k.out, p, c);
    });
  }

  void operator()(const ScanKernel& k) const {
    std::vector<int64_t> rows = k.input.sizes;
    size_t ax = static_cast<size_t>(k.axis);
    rows[ax] = 1;
    each(rows, [&](std::vector<int64_t> i) {
      std::vector<Cell> row;
      for (int64_t s = 0; s < k.input.sizes[ax]; ++s) {
        i[ax] = s;
        row.push_back(load(k.input, place(k.input, i)));
        Expr e;
        e.op = ExprOp::kReduce;
        e.dtype = row.back().dtype;
        e.reduce = k.op;
        store(k.out, place(k.out, i), reduce_cells(e, row));
      }
    });
  }

  void operator()(const TopKernel& k) const {
    std::vector<int64_t> rows = k.input.sizes;
    int64_t n = rows.back();
    rows.back() = 1;
    each(rows, [&](std::vector<int64_t> i) {
      std::vector<std::pair<Cell, int64_t>> row;
      for (int64_t s = 0; s < n; ++s) {
        i.back() = s;
        row.emplace_back(load(k.input, place(k.input, i)), s);
      }
      auto less = [](const Cell& a, const Cell& b) {
        if (a.dtype != Dtype::kF32) return a.i < b.i;
        if (std::isnan(a.f) || std::isnan(b.f)) return !std::isnan(a.f) && std::isnan(b.f);
        return a.f < b.f;
      };
      std::stable_sort(row.begin(), row.end(), [&](const auto& a, const auto& b) {
        return k.largest ? less(b.first, a.first) : less(a.first, b.first);
      });
      for (int64_t s = 0; s < k.k; ++s) {
        i.back() = s;
        if (k.values.buffer >= 0) store(k.values, place(k.values, i), row.at(static_cast<size_t>(s)).first);
        if (k.indices.buffer >= 0) {
          store(k.indices, place(k.indices, i),
                Cell::integer(static_cast<int32_t>(row.at(static_cast<size_t>(s)).second)));
        }
      }
    });
  }

  // Scores of one row of queries; -inf where the query does not see the key.
  std::vector<double> attention_scores(const AttentionKernel& k, int64_t b, int64_t h, int64_t i) const {
    const int64_t g = h / (k.q.sizes[1] / k.k.sizes[1]);
    std::vector<double> scores(static_cast<size_t>(k.k.sizes[2]), -std::numeric_limits<double>::infinity());
    for (int64_t j = 0; j < k.k.sizes[2]; ++j) {
      if (k.behind != AttentionKernel::kUnbounded && j - i < -k.behind) continue;
      if (k.ahead != AttentionKernel::kUnbounded && j - i > k.ahead) continue;
      double score = 0;
      for (int64_t d = 0; d < k.q.sizes[3]; ++d) score += real(k.q, {b, h, i, d}) * real(k.k, {b, g, j, d});
      const auto rounded = [&](double s) {
        return k.round_scores ? static_cast<double>(convert(Cell::real(static_cast<float>(s)), k.q.dtype).f)
                              : s;
      };
      score = rounded(rounded(score) * k.scale);
      if (k.mask.buffer >= 0) {
        const Cell m = load(k.mask, place(k.mask, {b, h, i, j}));
        if (k.mask.dtype != Dtype::kBool) {
          score = rounded(score + static_cast<double>(m.f));
        } else if (m.i == 0) {
          continue;
        }
      }
      scores[static_cast<size_t>(j)] = score;
    }
    return scores;
  }
  double real(const View& v, const std::vector<int64_t>& index) const {
    return static_cast<double>(load(v, place(v, index)).f);
  }
  void put(const View& v, const std::vector<int64_t>& index, double value) const {
    if (v.buffer >= 0) store(v, place(v, index), Cell::real(static_cast<float>(value)));
  }

  void operator()(const AttentionKernel& k) const {
    each({k.q.sizes[0], k.q.sizes[1], k.q.sizes[2]}, [&](const std::vector<int64_t>& at) {
      const int64_t g = at[1] / (k.q.sizes[1] / k.k.sizes[1]);
      std::vector<double> p = attention_scores(k, at[0], at[1], at[2]);
      double most = -std::numeric_limits<double>::infinity(), sum = 0;
      for (double s : p) most = std::max(most, s);
      const bool blind = most == -std::numeric_limits<double>::infinity();
      for (double& s : p) sum += s = blind ? 0 : std::exp(s - most);
      const double none = k.blind_is_nan ? std::numeric_limits<double>::quiet_NaN() : 0;
      put(k.lse, at, blind ? std::numeric_limits<double>::infinity() + none : most + std::log(sum));
      for (int64_t e = 0; e < k.v.sizes[3]; ++e) {
        double value = blind ? none : 0;
        for (size_t j = 0; j < p.size(); ++j) {
          if (p[j] != 0) value += p[j] / sum * real(k.v, {at[0], g, static_cast<int64_t>(j), e});
        }
        put(k.out, {at[0], at[1], at[2], e}, value);
      }
    });
  }

  void operator()(const AttentionGradKernel& k) const {
    const AttentionKernel& f = k.forward;
    const int64_t group = f.q.sizes[1] / f.k.sizes[1], keys = f.k.sizes[2];
    std::vector<double> dk(static_cast<size_t>(f.k.numel())), dv(static_cast<size_t>(f.v.numel()));
    const auto flat = [](const View& v, int64_t b, int64_t h, int64_t j, int64_t d) {
      return static_cast<size_t>(((b * v.sizes[1] + h) * v.sizes[2] + j) * v.sizes[3] + d);
    };
    each({f.q.sizes[0], f.q.sizes[1], f.q.sizes[2]}, [&](const std::vector<int64_t>& at) {
      const int64_t b = at[0], h = at[1], i = at[2], g = h / group;
      const std::vector<double> scores = attention_scores(f, b, h, i);
      const double lse = real(f.lse, at);
      double delta = 0;
      for (int64_t e = 0; e < f.v.sizes[3]; ++e)
        delta += real(k.grad_out, {b, h, i, e}) * real(f.out, {b, h, i, e});
      std::vector<double> dq(static_cast<size_t>(f.q.sizes[3]));
      for (int64_t j = 0; j < keys; ++j) {
        const double p = std::exp(scores[static_cast<size_t>(j)] - lse);
        double dp = 0;
        for (int64_t e = 0; e < f.v.sizes[3]; ++e) {
          const double grad = real(k.grad_out, {b, h, i, e});
          dv[flat(f.v, b, g, j, e)] += p * grad;
          dp += grad * real(f.v, {b, g, j, e});
        }
        const double ds = p * (dp - delta) * f.scale;
        for (int64_t d = 0; d < f.q.sizes[3]; ++d) {
          dq[static_cast<size_t>(d)] += ds * real(f.k, {b, g, j, d});
          dk[flat(f.k, b, g, j, d)] += ds * real(f.q, {b, h, i, d});
        }
      }
      for (int64_t d = 0; d < f.q.sizes[3]; ++d) put(k.grad_q, {b, h, i, d}, dq[static_cast<size_t>(d)]);
    });
    each(f.k.sizes, [&](const std::vector<int64_t>& at) {
      put(k.grad_k, at, dk[flat(f.k, at[0], at[1], at[2], at[3])]);
    });
    each(f.v.sizes, [&](const std::vector<int64_t>& at) {
      put(k.grad_v, at, dv[flat(f.v, at[0], at[1], at[2], at[3])]);
    });
  }

  void operator()(const CheckKernel& k) const {
    if (const int64_t v = load(k.row, place(k.row, {})).i)
      throw std::runtime_error(k.words[static_cast<size_t>(v < 0 ? 0 : v - 1) % k.words.size()]);
  }

  // Philox4x32-10: counter (offset lo, offset hi, block lo, 0) advanced by one per four words.
  static std::array<uint32_t, 4> philox(std::array<uint32_t, 2> key, std::array<uint32_t, 4> c) {
    for (int round = 0; round < 10; ++round) {
      uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
      c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
           static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    return c;
  }

  void operator()(const RandomKernel& k) const {
    size_t slot = static_cast<size_t>(k.philox_slot);
    std::array<uint32_t, 2> key{params.at(slot), params.at(slot + 1)};
    uint64_t offset = params.at(slot + 2) | (static_cast<uint64_t>(params.at(slot + 3)) << 32);
    auto word = [&](uint64_t n) {
      uint64_t c = offset + n / 4;
      return philox(key, {static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), 0, 0})[n % 4];
    };
    auto param = [&](int32_t p, float otherwise) {
      if (p < 0) return otherwise;
      float v;
      std::memcpy(&v, &params.at(static_cast<size_t>(p)), 4);
      return v;
    };
    uint64_t n = 0;
    each(k.out.sizes, [&](const std::vector<int64_t>& i) {
      uint32_t w = word(n);
      float u = static_cast<float>(w >> 8) * 0x1p-24f;
      Cell c;
      if (k.dist == RandomKernel::Dist::kBits) c = Cell::integer(static_cast<int32_t>(w));
      if (k.dist == RandomKernel::Dist::kUniform) {
        c = Cell::real(param(k.param_a, 0) + u * (param(k.param_b, 1) - param(k.param_a, 0)));
      }
      if (k.dist == RandomKernel::Dist::kNormal) {
        float v = static_cast<float>(word(n ^ 1) >> 8) * 0x1p-24f;
        float first = n % 2 ? v : u, second = n % 2 ? u : v;
        float r = std::sqrt(-2 * std::log(1 - first)), a = 2 * std::numbers::pi_v<float> * second;
        c = Cell::real(param(k.param_a, 0) + param(k.param_b, 1) * r * (n % 2 ? std::sin(a) : std::cos(a)));
      }
      if (k.dist == RandomKernel::Dist::kBernoulli) {
        float p = k.probability.buffer >= 0 ? load(k.probability, place(k.probability, i)).f
                                            : param(k.param_a, 0.5f);
        c = Cell::real(u < p ? 1.0f : 0.0f);
      }
      store(k.out, place(k.out, i), c.dtype == Dtype::kF32 ? convert(c, k.out.dtype) : c);
      ++n;
    });
  }
};

}  // namespace

void run(const KernelList& list, const std::vector<std::byte*>& memory, const std::vector<uint32_t>& params) {
  Machine machine{list, memory, params};
  for (const Kernel& k : list.kernels) std::visit(machine, k);
}

void run(const KernelList& list, const std::vector<std::byte*>& inputs,
         const std::vector<std::byte*>& outputs, const std::vector<uint32_t>& params) {
  std::vector<std::byte*> memory;
  std::vector<std::unique_ptr<std::byte[]>> owned;
  for (const Buffer& b : list.buffers) {
    switch (b.kind) {
      case Buffer::Kind::kInput:
        memory.push_back(inputs.at(static_cast<size_t>(b.index)));
        break;
      case Buffer::Kind::kOutput:
        memory.push_back(outputs.at(static_cast<size_t>(b.index)));
        break;
      default: {
        size_t bytes = static_cast<size_t>(b.elements) * isa::dtype_bytes(b.dtype);
        owned.push_back(std::make_unique<std::byte[]>(std::max<size_t>(bytes, 1)));
        std::memset(owned.back().get(), 0xff, bytes);  // poison
        if (!b.constant.empty()) std::memcpy(owned.back().get(), b.constant.data(), b.constant.size());
        memory.push_back(owned.back().get());
      }
    }
  }
  run(list, memory, params);
}

}  // namespace trnsim::compiler::reference
