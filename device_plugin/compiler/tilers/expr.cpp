// From an expression DAG to instructions: demand driven from the roots, so that a multiplication or addition
// with a scalar that has one user can be folded into the instruction of that user.
#include "device_plugin/compiler/tilers/expr.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace trnsim::compiler {

namespace {

bool is_int(Dtype d) { return isa::is_32bit_integer(d); }

class Emitter {
 public:
  Emitter(TileBuilder& tile, const std::vector<Expr>& exprs, std::span<const int32_t> roots,
          const ExprTiles& tiles)
      : b_(tile),
        exprs_(exprs),
        tiles_(tiles),
        full_(tile, tiles.partitions, tiles.dims),
        row_(tile, tiles.partitions, row_dims(tiles)),
        one_(tile, tiles.partitions, {1}),
        values_(exprs.size()),
        users_(exprs.size(), 0),
        level_(exprs.size(), kElement),
        depth_(exprs.size(), 0),
        invariant_(exprs.size(), false) {
    for (int64_t d : row_.dims()) row_is_column_ = row_is_column_ && d == 1;
    mark(roots);
  }

  Access emit_root(int32_t root, const Access& into) {
    const Expr& e = exprs_.at(root);
    Access direct;
    bool row_into = into.present() && level_[root] < kElement && into.free_elements() == row_elements();
    // What others read too must be there without a rounding.
    const bool whole = users_[root] == 1 || (e.dtype == Dtype::kF32 && into.dtype == Dtype::kF32);
    if (into.present() && whole && writes_directly(e, into.dtype) &&
        (level_[root] == kElement || (users_[root] == 1 && row_into && level_[root] == kRow))) {
      direct = into;
    }
    into_node_ = direct.present() ? root : -1;
    into_ = direct;
    Src v = value(root);
    into_node_ = -1;
    if (!into.present()) {
      Ops& shape = level_[root] == kRow ? row_ : full_;
      return shape.as_tile(operand(root, shape), class_dtype(e.dtype));
    }
    if (v.tile() && same_place(v.access, into)) return into;
    if (v.kind == Src::Kind::kConst && (!is_int(into.dtype) || std::fabs(v.value) < 16777216.0)) {
      b_.memset(into, static_cast<float>(v.value));
      return into;
    }
    Ops& shape = row_into ? row_ : full_;
    emit_cast(b_, into, shape.as_tile(operand(root, shape), class_dtype(e.dtype)));
    return into;
  }

 private:
  static bool same_place(const Access& a, const Access& b) {
    return a.space == b.space && a.tensor == b.tensor && a.offset == b.offset;
  }

  // The instruction that computes e may cast its result to `d` on the way out.
  static bool writes_directly(const Expr& e, Dtype d) {
    if (e.op == ExprOp::kInput || e.op == ExprOp::kIota || e.op == ExprOp::kConst || e.op == ExprOp::kParam)
      return false;
    if (e.dtype == Dtype::kF32) return isa::is_float(d);
    if (e.dtype == Dtype::kBool) return d == Dtype::kU8 || d == Dtype::kBool;
    return false;
  }

  enum Level : uint8_t { kScalar, kRow, kElement };

  static std::vector<int64_t> row_dims(const ExprTiles& t) {
    std::vector<int64_t> dims;
    for (size_t i = 0; i < t.dims.size(); ++i) {
      if (i >= t.reduced.size() || !t.reduced[i]) dims.push_back(t.dims[i]);
    }
    if (dims.empty()) dims.push_back(1);
    return dims;
  }
  // Every free dim longer than 1 is reduced.
  bool whole_row() const {
    for (size_t i = 0; i < tiles_.dims.size(); ++i) {
      if (tiles_.dims[i] > 1 && (i >= tiles_.reduced.size() || !tiles_.reduced[i])) return false;
    }
    return true;
  }
  int64_t row_elements() const {
    int64_t n = 1;
    for (int64_t d : row_.dims()) n *= d;
    return n;
  }

  // Reachable nodes, their number of users, and their levels.
  void mark(std::span<const int32_t> roots) {
    std::vector<bool> live(exprs_.size(), false);
    for (int32_t r : roots) {
      live.at(r) = true;
      ++users_[r];
    }
    for (int i = static_cast<int>(exprs_.size()) - 1; i >= 0; --i) {
      if (!live[i] || exprs_[i].op == ExprOp::kReduce) continue;
      for (int32_t o : {exprs_[i].a, exprs_[i].b, exprs_[i].c}) {
        if (o < 0) continue;
        if (o >= i) throw_internal("expression operands must precede their users");
        live[o] = true;
        ++users_[o];
      }
    }
    for (size_t i = 0; i < exprs_.size(); ++i) {
      const Expr& e = exprs_[i];
      switch (e.op) {
        case ExprOp::kInput:
          if (present(tiles_.columns, e.index)) {
            level_[i] = kScalar;
          } else if (present(tiles_.rows, e.index)) {
            level_[i] = kRow;
          }
          break;
        case ExprOp::kParam:
        case ExprOp::kConst:
          level_[i] = kScalar;
          break;
        case ExprOp::kReduce:
          level_[i] = kRow;
          break;
        case ExprOp::kIota:
          if (tiles_.iota_is_row && tiles_.iota_is_row(e.index)) level_[i] = kRow;
          break;
        default: {
          Level level = kScalar;
          for (int32_t o : {e.a, e.b, e.c}) {
            if (o >= 0) level = std::max(level, level_[o]);
          }
          level_[i] = level;
        }
      }
      invariant_[i] = level_[i] == kScalar && e.op != ExprOp::kInput && e.op != ExprOp::kIota;
      for (int32_t o : {e.a, e.b, e.c}) {
        if (o < 0) continue;
        if (!invariant_[o]) invariant_[i] = false;
        depth_[i] = std::max(depth_[i], depth_[o]);
      }
      depth_[i] += e.op == ExprOp::kReduce;
    }
  }

  static bool present(const std::vector<Access>& list, int index) {
    return index >= 0 && index < static_cast<int>(list.size()) && list[index].present();
  }
  Ops& ops_of(int32_t n) { return level_[n] == kElement ? full_ : level_[n] == kRow ? row_ : one_; }

  // Value of node n in the shape of its own level.
  Src value(int32_t n) {
    if (!values_[n]) values_[n] = compute(n);
    return *values_[n];
  }

  Src column_src(const Access& a) {
    Access c = a;
    c.num_partitions = static_cast<uint16_t>(tiles_.partitions);
    return {Src::Kind::kColumn, c, 0};
  }

  Src compute(int32_t n) {
    const Expr& e = exprs_[n];
    switch (e.op) {
      case ExprOp::kConst:
        return Ops::constant(e.dtype == Dtype::kBool ? (e.value != 0) : e.value);
      case ExprOp::kParam:
        return column_src(b_.param(e.index, e.dtype == Dtype::kBool ? Dtype::kI32 : e.dtype).pointer);
      case ExprOp::kInput:
        if (level_[n] == kScalar) return column_src(typed_input(tiles_.columns[e.index], e.dtype, one_));
        if (level_[n] == kRow) return Ops::of(typed_input(tiles_.rows[e.index], e.dtype, row_));
        return Ops::of(typed_input(tiles_.inputs.at(e.index), e.dtype, full_));
      case ExprOp::kIota: {
        if (!tiles_.iota) throw_internal("iota in an expression without a domain");
        Access t = tiles_.iota(e.index);
        if (e.dtype == Dtype::kF32) t = ops_of(n).cast(t, Dtype::kF32);
        return Ops::of(t);
      }
      case ExprOp::kReduce:
        return Ops::of(reduce_node(n));
      default:
        break;
    }
    Ops& o = ops_of(n);
    Access into = n == into_node_ ? into_ : Access{};
    if (into.present()) into_node_ = -1;
    Access result;
    if (invariant_[n])
      b_.before_loop([&] { result = operate(n, e, o, into); });
    else
      result = operate(n, e, o, into);
    return level_[n] == kScalar ? column_src(result) : Ops::of(result);
  }

  Access known(int32_t n) const { return tiles_.row_value ? tiles_.row_value(n) : Access{}; }

  Access reduce_node(int32_t n) {
    if (const Access row = known(n); row.present()) return row;
    if (!tiles_.combine_partitions) return share_of_row(n);
    // The way over the partitions is long: all reductions of a level go together.
    std::vector<int32_t> together;
    for (int32_t m = 0; m < static_cast<int32_t>(exprs_.size()); ++m) {
      const bool wanted = exprs_[m].op == ExprOp::kReduce && users_[m] > 0 && depth_[m] == depth_[n];
      if (m == n || (wanted && !values_[m] && !known(m).present())) together.push_back(m);
    }
    std::vector<Access> shares;
    for (int32_t m : together) shares.push_back(share_of_row(m));
    Access result;
    for (size_t i = 0; i < together.size(); ++i) {
      const Expr& e = exprs_[together[i]];
      const Access row = tiles_.combine_partitions(shares[i], e.reduce, exprs_[e.a].dtype);
      if (together[i] == n) {
        result = row;
      } else {
        values_[together[i]] = Ops::of(row);
      }
    }
    return result;
  }

  // What the partitions' elements give.
  Access share_of_row(int32_t n) {
    const Expr& e = exprs_[n];
    Dtype from = exprs_[e.a].dtype;
    // The sum of an activation over all free dims is a by-product of the activation.
    if (e.reduce == ReduceOp::kSum && row_is_column_ && !values_[e.a] && level_[e.a] == kElement &&
        from == Dtype::kF32 && activation_func(exprs_[e.a].op) && whole_row()) {
      const Access sum = one_.temp(Dtype::kF32);
      const Summed outer = std::exchange(summed_, {e.a, sum});  // a sum may depend on another one
      value(e.a);
      summed_ = outer;
      return sum;
    }
    Access x = full_.typed_tile(operand(e.a, full_), class_dtype(from));
    return reduce_dims(b_, x, tiles_.reduced, e.reduce, from);
  }

  // Inputs keep narrow float dtypes (read with a cast); integers become 4 bytes; bool bytes are seen as
  // uint8.
  Access typed_input(Access a, Dtype expr_class, Ops& o) {
    if (expr_class == Dtype::kBool) {
      if (a.dtype == Dtype::kBool || a.dtype == Dtype::kU8) {
        a.dtype = Dtype::kU8;
        return a;
      }
      return o.scalar(a, AluOp::kNotEqual, 0, {}, Dtype::kU8);
    }
    if (is_int(expr_class)) {
      if (is_int(a.dtype)) {
        a.dtype = expr_class;
        return a;
      }
      return isa::is_float(a.dtype) ? o.float_to_int(a, expr_class) : o.cast(a, expr_class);
    }
    return isa::is_float(a.dtype) ? a : o.cast(a, Dtype::kF32);
  }

  // Operand for instructions of shape `o`: values of lower levels are scalars where the shape allows it, else
  // spread by stride 0.
  Src operand(int32_t n, Ops& o) {
    Src s = value(n);
    if (&o == &one_ && s.kind == Src::Kind::kColumn) s.kind = Src::Kind::kTile;
    if (&o == &full_ && level_[n] == kRow) {
      if (row_is_column_) {
        s.kind = Src::Kind::kColumn;
        s.access.num_dims = 1;
        s.access.size[0] = 1;
        s.access.step[0] = 1;
      } else {
        s.access = spread_row(s.access);
      }
    }
    return s;
  }

  Access spread_row(const Access& row) const {
    Access a = row;
    a.num_dims = static_cast<uint8_t>(tiles_.dims.size());
    int from = 0;
    for (size_t i = 0; i < tiles_.dims.size(); ++i) {
      bool reduced = i < tiles_.reduced.size() && tiles_.reduced[i];
      a.size[i] = static_cast<uint32_t>(tiles_.dims[i]);
      a.step[i] = reduced ? 0 : row.step[from++];
    }
    return a;
  }

  // Usable as the scalar operand of an instruction of the full shape.
  bool scalar_like(int32_t n) const { return level_[n] == kScalar || (level_[n] == kRow && row_is_column_); }
  Access tile_operand(int32_t n, Ops& o) { return o.as_tile(operand(n, o), class_dtype(exprs_[n].dtype)); }

  // True when node n can vanish into its only user: x op scalar.
  bool foldable(int32_t n, const Ops& o, std::initializer_list<ExprOp> ops) const {
    const Expr& e = exprs_[n];
    if (&o != &full_ || users_[n] != 1 || values_[n] || level_[n] != kElement || e.dtype != Dtype::kF32)
      return false;
    if (std::find(ops.begin(), ops.end(), e.op) == ops.end()) return false;
    return scalar_like(e.a) != scalar_like(e.b) && exprs_[e.a].dtype == Dtype::kF32 &&
           exprs_[e.b].dtype == Dtype::kF32;
  }

  struct Folded {
    Access tile;
    AluOp op;
    ScalarOperand scalar;
    bool reverse;  // scalar op tile
  };
  Folded fold(int32_t n) {
    const Expr& e = exprs_[n];
    bool scalar_first = scalar_like(e.a);
    Access tile = tile_operand(scalar_first ? e.b : e.a, full_);
    ScalarOperand scalar = full_.as_scalar(operand(scalar_first ? e.a : e.b, full_));
    return {tile, *arithmetic_op(e.op), scalar, scalar_first};
  }

  Access operate(int32_t n, const Expr& e, Ops& o, const Access& into) {
    Access dst = into;
    if (e.op == ExprOp::kCast) return cast_node(e, o, dst);
    if (e.op == ExprOp::kSelect) return select_node(e, o, dst);
    Dtype operand_class = exprs_[e.a].dtype;
    if (auto compare = compare_op(e.op)) return compare_node(e, *compare, o, dst);
    switch (e.op) {  // logical operators take any class and give bool
      case ExprOp::kNot:
        return o.scalar(tile_operand(e.a, o), AluOp::kEqual, 0, dst, Dtype::kU8);
      case ExprOp::kAnd:
        return logical(e, AluOp::kLogicalAnd, o, dst);
      case ExprOp::kOr:
        return logical(e, AluOp::kLogicalOr, o, dst);
      case ExprOp::kXor:
        return logical(e, AluOp::kLogicalXor, o, dst);
      case ExprOp::kIsNan: {
        if (operand_class != Dtype::kF32) return zeros(o, dst);
        Src x = operand(e.a, o);
        Access t = o.as_tile(x, Dtype::kF32);
        return o.binary(AluOp::kNotEqual, Ops::of(t), Ops::of(t), dst, Dtype::kU8);
      }
      case ExprOp::kSignBit: {
        if (operand_class != Dtype::kF32) throw_internal("the sign bit of an integer");
        return o.scalar(o.sign_bits(tile_operand(e.a, o)), AluOp::kNotEqual, 0, dst, Dtype::kU8);
      }
      case ExprOp::kIsInf: {
        if (operand_class != Dtype::kF32) return zeros(o, dst);
        Access d = o.target(dst, Dtype::kU8);
        return o.scalar(o.abs(tile_operand(e.a, o)), AluOp::kEqual, HUGE_VALF, d);
      }
      default:
        break;
    }
    if (e.dtype == Dtype::kBool) return bool_node(e, o, dst);
    if (is_int(e.dtype)) return int_node(e, o);
    return float_node(n, e, o, dst);
  }

  Access zeros(Ops& o, const Access& dst) {
    Access d = o.target(dst, Dtype::kU8);
    b_.memset(d, 0);
    return d;
  }

  Access logical(const Expr& e, AluOp op, Ops& o, const Access& dst) {
    return o.binary(op, float_operand(e.a, o), float_operand(e.b, o), dst, Dtype::kU8);
  }

  // An operand whose values FP32 arithmetic may read: constants and columns stay, integer tiles are cast on
  // read.
  Src float_operand(int32_t n, Ops& o) { return operand(n, o); }

  Access compare_node(const Expr& e, AluOp op, Ops& o, const Access& dst) {
    Dtype c = exprs_[e.a].dtype;
    if (!is_int(c) || !is_int(exprs_[e.b].dtype)) {
      return o.binary(op, operand(e.a, o), operand(e.b, o), dst, Dtype::kU8);
    }
    Src y = operand(e.b, o);
    // Conversion to FP32 is monotone and exact below 2^24, so a small constant compares exactly.
    if (y.kind == Src::Kind::kConst && std::fabs(y.value) < 16777216.0) {
      return o.scalar(tile_operand(e.a, o), op, static_cast<float>(y.value), dst, Dtype::kU8);
    }
    Access d = o.target(dst, Dtype::kU8);
    b_.tensor_tensor(d, o.typed_tile(operand(e.a, o), c), o.typed_tile(y, c), op);
    return d;
  }

  Access select_node(const Expr& e, Ops& o, const Access& dst) {
    Dtype t = class_dtype(e.dtype);
    // The destination may be narrower than the operands only where both are cast alike: do it in the class
    // dtype.
    Access d = o.target(dst.present() && dst.dtype == t ? dst : Access{}, t);
    Src no = operand(e.c, o);
    if (no.kind == Src::Kind::kConst && !is_int(t)) {
      b_.memset(d, static_cast<float>(no.value));
    } else if (no.kind == Src::Kind::kColumn) {
      b_.copy(d, o.as_tile(no, t));
    } else {
      b_.copy(d, o.typed_tile(no, t));
    }
    o.select(d, o.typed_tile(operand(e.b, o), t), predicate(e.a, o));
    if (dst.present() && !same_place(d, dst)) return o.cast(d, dst.dtype, dst);
    return d;
  }

  Access predicate(int32_t n, Ops& o) {
    Access p = tile_operand(n, o);
    if (p.dtype == Dtype::kU8) return p;
    return o.scalar(p, AluOp::kNotEqual, 0, {}, Dtype::kU8);
  }

  Access cast_node(const Expr& e, Ops& o, const Access& dst) {
    Dtype from = exprs_[e.a].dtype, to = e.cast_to;
    Access x = tile_operand(e.a, o);
    if (to == Dtype::kBool || e.dtype == Dtype::kBool) {
      if (from == Dtype::kBool) return finish_cast(o, x, dst);
      return o.scalar(x, AluOp::kNotEqual, 0, dst, Dtype::kU8);
    }
    if (is_int(e.dtype)) {
      Access i;
      if (from == Dtype::kF32) {
        i = o.float_to_int(x, e.dtype);
      } else if (is_int(from)) {
        i = x;
        i.dtype = e.dtype;
      } else {
        i = o.cast(x, e.dtype);
      }
      if (to == Dtype::kI64 || isa::dtype_bytes(to) >= 4) return i;
      return from == Dtype::kBool ? i : o.int_wrap(i, to);
    }
    // To FP32, rounded through `to`.
    if (isa::is_integer(to)) {
      Access i = from == Dtype::kF32 ? o.float_to_int(x, Dtype::kI32) : x;
      return o.cast(i, Dtype::kF32, dst);
    }
    bool narrow = to != Dtype::kF32 && to != Dtype::kF64;
    if (!narrow && from == Dtype::kF32) return finish_cast(o, x, dst);
    Dtype tile_type = narrow ? to : Dtype::kF32;
    if (dst.present() && dst.dtype == tile_type) return o.cast(x, tile_type, dst);
    Access r = o.cast(x, tile_type);
    return finish_cast(o, r, dst);
  }

  Access finish_cast(Ops& o, const Access& x, const Access& dst) {
    return dst.present() ? o.cast(x, dst.dtype, dst) : x;
  }

  Access bool_node(const Expr& e, Ops& o, const Access& dst) {
    switch (e.op) {
      case ExprOp::kBitAnd:
      case ExprOp::kMul:
      case ExprOp::kMin:
        return logical(e, AluOp::kLogicalAnd, o, dst);
      case ExprOp::kBitOr:
      case ExprOp::kAdd:
      case ExprOp::kMax:
        return logical(e, AluOp::kLogicalOr, o, dst);
      case ExprOp::kBitXor:
        return logical(e, AluOp::kLogicalXor, o, dst);
      case ExprOp::kBitNot:
        return o.scalar(tile_operand(e.a, o), AluOp::kEqual, 0, dst, Dtype::kU8);
      case ExprOp::kAbs:
      case ExprOp::kSign:
      case ExprOp::kRelu:
      case ExprOp::kSquare:
        return finish_cast(o, tile_operand(e.a, o), dst);
      default:
        throw_unsupported("an arithmetic operator on boolean tensors (expression operator " +
                          std::to_string(static_cast<int>(e.op)) + ")");
    }
  }

  Access int_node(const Expr& e, Ops& o) {
    Dtype t = e.dtype;
    Access x = o.typed_tile(operand(e.a, o), t);
    if (e.b < 0) {
      switch (e.op) {
        case ExprOp::kNeg:
          return o.int_binary(AluOp::kSubtract, o.int_constant(0, t), x);
        case ExprOp::kAbs:
          return o.int_binary(AluOp::kMax, x, o.int_binary(AluOp::kSubtract, o.int_constant(0, t), x));
        case ExprOp::kSign: {
          Access positive = o.scalar(x, AluOp::kGreater, 0);
          Access d = o.temp(t);
          o.fused(x, AluOp::kLess, TileBuilder::imm(0), AluOp::kSubtract, positive, true, d);
          return d;
        }
        case ExprOp::kRelu:
          return o.int_binary(AluOp::kMax, x, o.int_constant(0, t));
        case ExprOp::kSquare:
          return o.int_binary(AluOp::kMultiply, x, x);
        case ExprOp::kBitNot:
          return o.int_binary(AluOp::kBitXor, x, o.int_constant(-1, t));
        case ExprOp::kFloor:
        case ExprOp::kCeil:
        case ExprOp::kRound:
        case ExprOp::kTrunc:
          return x;
        default:
          throw_unsupported(
              "an operator on integer tensors that is defined for floating point (expression operator " +
              std::to_string(static_cast<int>(e.op)) + ")");
      }
    }
    Access y = o.typed_tile(operand(e.b, o), t);
    if (auto op = arithmetic_op(e.op)) return o.int_binary(*op, x, y);
    switch (e.op) {
      case ExprOp::kFloorDiv:
        return o.int_divide_round(x, y, true, false);
      case ExprOp::kTruncDiv:
      case ExprOp::kDiv:
        return o.int_divide_round(x, y, false, false);
      case ExprOp::kRemainder:
        return o.int_divide_round(x, y, true, true);
      case ExprOp::kFmod:
        return o.int_divide_round(x, y, false, true);
      case ExprOp::kPow:
        return o.int_power(x, y);
      case ExprOp::kBitAnd:
        return o.int_binary(AluOp::kBitAnd, x, y);
      case ExprOp::kBitOr:
        return o.int_binary(AluOp::kBitOr, x, y);
      case ExprOp::kBitXor:
        return o.int_binary(AluOp::kBitXor, x, y);
      case ExprOp::kShl:
        return o.int_binary(AluOp::kShiftLeft, x, y);
      case ExprOp::kShr:
        return o.int_shift_right(x, y);
      default:
        throw_unsupported("expression operator " + std::to_string(static_cast<int>(e.op)) +
                          " on integer tensors");
    }
  }

  Access float_arithmetic(const Expr& e, AluOp op, Ops& o, const Access& dst) {
    bool column_a = &o == &full_ && scalar_like(e.a);
    bool column_b = &o == &full_ && scalar_like(e.b);
    auto basic = {ExprOp::kMul, ExprOp::kAdd, ExprOp::kSub};
    if (e.a != e.b && !column_a && !column_b) {
      // (x op0 s) op y in one instruction.
      int32_t inner = foldable(e.a, o, basic) ? e.a : foldable(e.b, o, basic) ? e.b : -1;
      if (inner >= 0) {
        int32_t other = inner == e.a ? e.b : e.a;
        Access y = tile_operand(other, o);
        Folded f = fold(inner);
        bool reverse1 = inner == e.b;
        if (!(f.tile.space == isa::Space::kPsum && y.space == isa::Space::kPsum)) {
          Access d = o.target(dst, Dtype::kF32);
          isa::Instruction i;
          i.opcode = isa::Opcode::kScalarTensorTensor;
          i.engine = Engine::kVector;
          i.dst = d;
          i.src0 = f.tile;
          i.src1 = y;
          i.op0 = f.op;
          i.op1 = op;
          i.imm0 = f.scalar;
          if (f.reverse) i.flags |= isa::kFlagReverse0;
          if (reverse1) i.flags |= isa::kFlagReverse1;
          b_.emit(std::move(i));
          return d;
        }
        Access d = o.temp(Dtype::kF32);
        b_.tensor_scalar(d, f.tile, f.op, f.scalar, AluOp::kNone, {}, f.reverse);
        return o.binary(op, reverse1 ? Ops::of(y) : Ops::of(d), reverse1 ? Ops::of(d) : Ops::of(y), dst);
      }
    } else if (column_a != column_b) {
      // (x op0 s0) op s1 in one instruction.
      int32_t inner = column_a ? e.b : e.a;
      if (foldable(inner, o, basic)) {
        ScalarOperand s1 = o.as_scalar(operand(column_a ? e.a : e.b, o));
        Folded f = fold(inner);
        Access d = o.target(dst, Dtype::kF32);
        b_.tensor_scalar(d, f.tile, f.op, f.scalar, op, s1, f.reverse, column_a);
        return d;
      }
    }
    return o.binary(op, operand(e.a, o), operand(e.b, o), dst);
  }

  ScalarOperand negated(const ScalarOperand& s) {
    if (s.kind == ScalarOperand::Kind::kImmediate) return TileBuilder::imm(-s.value);
    Access column = s.pointer;
    column.num_partitions = static_cast<uint16_t>(tiles_.partitions);
    return TileBuilder::column(one_.scalar(column, AluOp::kMultiply, -1));
  }

  // A product, a sum or a difference with a scalar is the activation's scale or bias; a sum of the results
  // over the whole row comes with it.
  Access activation(int32_t n, const Expr& e, ActFunc func, Ops& o, const Access& dst) {
    ScalarOperand scale, bias;
    Access x;
    if (foldable(e.a, o, {ExprOp::kMul, ExprOp::kAdd, ExprOp::kSub})) {
      ExprOp inner_op = exprs_[e.a].op;
      Folded inner = fold(e.a);
      x = inner.tile;
      if (inner_op == ExprOp::kMul) {
        scale = inner.scalar;
      } else if (inner_op == ExprOp::kAdd) {
        bias = inner.scalar;
      } else if (inner.reverse) {
        scale = TileBuilder::imm(-1);
        bias = inner.scalar;
      } else {
        bias = negated(inner.scalar);
      }
    } else {
      x = tile_operand(e.a, o);
    }
    Access d = o.target(dst, Dtype::kF32);
    b_.activation(d, x, func, scale, bias, n == summed_.node ? &summed_.sum : nullptr);
    return d;
  }

  Access float_node(int32_t n, const Expr& e, Ops& o, const Access& dst) {
    if (auto op = arithmetic_op(e.op)) return float_arithmetic(e, *op, o, dst);
    if (auto f = activation_func(e.op)) {
      return activation(n, e, *f, o, dst);
    }
    if (e.b >= 0) {
      Src x = operand(e.a, o), y = operand(e.b, o);
      if (e.op == ExprOp::kDiv) return o.divide(x, y, dst, invariant_[e.b]);
      if (e.op == ExprOp::kPow) return power(x, y, o, dst);
      return finish(o, binary_composite(e.op, x, y, o), dst);
    }
    Access x = tile_operand(e.a, o);
    switch (e.op) {
      case ExprOp::kNeg:
        return o.scalar(x, AluOp::kMultiply, -1, dst);
      case ExprOp::kAbs:
        return o.act(ActFunc::kAbs, x, {}, {}, dst);
      case ExprOp::kRelu:  // max(0, x): of equal zeros the second is taken
        return o.binary(AluOp::kMax, Ops::constant(0), Ops::of(x), dst);
      case ExprOp::kSquare:
        return x.space == isa::Space::kPsum ? o.act(ActFunc::kSquare, x, {}, {}, dst)
                                            : o.binary(AluOp::kMultiply, Ops::of(x), Ops::of(x), dst);
      case ExprOp::kReciprocal: {
        Access d = o.target(dst, Dtype::kF32);
        b_.reciprocal(d, x);
        return d;
      }
      case ExprOp::kExp2: {
        Access d = o.target(dst, Dtype::kF32);
        b_.tensor_scalar(d, x, AluOp::kPower, TileBuilder::imm(2), AluOp::kNone, {}, true);
        return d;
      }
      case ExprOp::kLog2:
        return o.scalar(o.act(ActFunc::kLog, x), AluOp::kMultiply, 1.44269504088896f, dst);
      case ExprOp::kLog10:
        return o.scalar(o.act(ActFunc::kLog, x), AluOp::kMultiply, 0.434294481903252f, dst);
      default:
        return finish(o, unary_composite(e.op, x, o), dst);
    }
  }

  Access finish(Ops& o, const Access& x, const Access& dst) {
    return dst.present() ? o.cast(x, dst.dtype, dst) : x;
  }

  static Access unary_composite(ExprOp op, const Access& x, Ops& o) {
    switch (op) {
      case ExprOp::kSign:
        return o.sign(x);
      case ExprOp::kExpm1:
        return o.expm1(x);
      case ExprOp::kLog1p:
        return o.log1p(x);
      case ExprOp::kSin:
        return o.sine(x, false);
      case ExprOp::kCos:
        return o.sine(x, true);
      case ExprOp::kTan:
        return o.tangent(x);
      case ExprOp::kAsin:
        return o.asin(x);
      case ExprOp::kAcos:
        return o.acos(x);
      case ExprOp::kAtan:
        return o.atan(x);
      case ExprOp::kSinh:
        return o.sinh(x);
      case ExprOp::kCosh:
        return o.cosh(x);
      case ExprOp::kAsinh:
        return o.asinh(x);
      case ExprOp::kAcosh:
        return o.acosh(x);
      case ExprOp::kAtanh:
        return o.atanh(x);
      case ExprOp::kErfc:
        return o.erfc(x, false);
      case ExprOp::kErfcx:
        return o.erfc(x, true);
      case ExprOp::kFloor:
        return o.floor(x);
      case ExprOp::kCeil:
        return o.ceil(x);
      case ExprOp::kRound:
        return o.round_even(x);
      case ExprOp::kTrunc:
        return o.trunc(x);
      default:
        throw_unsupported("expression operator " + std::to_string(static_cast<int>(op)) +
                          " on floating-point tensors");
    }
  }

  static Access binary_composite(ExprOp op, const Src& x, const Src& y, Ops& o) {
    switch (op) {
      case ExprOp::kAtan2:
        return o.atan2(x, y);
      case ExprOp::kCopySign:
        return o.or_bits(o.abs(o.typed_tile(x, Dtype::kF32)), o.sign_bits(o.typed_tile(y, Dtype::kF32)));
      case ExprOp::kFloorDiv:
        return o.divide_round(x, y, true);
      case ExprOp::kTruncDiv:
        return o.divide_round(x, y, false);
      case ExprOp::kRemainder:
        return o.remainder(x, y, true);
      case ExprOp::kFmod:
        return o.remainder(x, y, false);
      default:
        throw_unsupported("expression operator " + std::to_string(static_cast<int>(op)) +
                          " on floating-point tensors");
    }
  }

  Access power(const Src& x, const Src& y, Ops& o, const Access& dst) {
    if (y.kind == Src::Kind::kConst && x.tile()) {
      if (y.value == 1) return finish(o, x.access, dst);
      if (y.value == 2) return o.binary(AluOp::kMultiply, x, x, dst);
      if (y.value == 3) return o.binary(AluOp::kMultiply, Ops::of(o.binary(AluOp::kMultiply, x, x)), x, dst);
    }
    return o.binary(AluOp::kPower, x, y, dst);
  }

  TileBuilder& b_;
  const std::vector<Expr>& exprs_;
  const ExprTiles& tiles_;
  Ops full_, row_, one_;
  bool row_is_column_ = true;
  std::vector<std::optional<Src>> values_;
  std::vector<int> users_;
  std::vector<Level> level_;
  std::vector<int> depth_;       // reductions on the longest way to the inputs
  std::vector<bool> invariant_;  // made of parameters and constants alone
  struct Summed {
    int32_t node = -1;  // whose activation also writes `sum`
    Access sum;
  } summed_;
  int32_t into_node_ = -1;
  Access into_;
};

}  // namespace

std::vector<Access> emit_expr(TileBuilder& tile, const std::vector<Expr>& exprs,
                              std::span<const int32_t> roots, const ExprTiles& tiles,
                              std::span<const Access> into, const std::function<void(size_t)>& done) {
  Emitter emitter(tile, exprs, roots, tiles);
  std::vector<Access> results;
  for (size_t r = 0; r < roots.size(); ++r) {
    results.push_back(emitter.emit_root(roots[r], r < into.size() ? into[r] : Access{}));
    if (done) done(r);
  }
  return results;
}

}  // namespace trnsim::compiler
