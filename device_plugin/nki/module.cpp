// trnsim._tile: tile programs from Python. Names of dtypes, operators and functions are those of the
// assembler.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "device_plugin/compiler/error.h"
#include "device_plugin/compiler/tile.h"
#include "isa/container.h"
#include "isa/names.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace trnsim::compiler {
namespace {

template <typename Value>
Value named(std::optional<Value> v, const std::string& text, const char* what,
            std::vector<std::string_view> names) {
  if (v) return *v;
  std::string_view near = isa::nearest_name(text, names);
  std::string message = std::string("user error: '") + text + "' is not a " + what;
  if (!near.empty()) message += "; did you mean '" + std::string(near) + "'?";
  throw py::value_error(message);
}
Dtype dtype(const std::string& s) { return named(isa::dtype_from_name(s), s, "dtype", isa::dtype_names()); }
AluOp alu(const std::string& s) {
  if (s.empty()) return AluOp::kNone;
  return named(isa::alu_op_from_name(s), s, "operator", isa::alu_op_names());
}
ActFunc act(const std::string& s) {
  return named(isa::act_func_from_name(s), s, "activation function", isa::act_func_names());
}
isa::TensorKind kind(const std::string& s) {
  return named(isa::tensor_kind_from_name(s), s, "tensor kind", {"input", "output", "constant", "scratch"});
}

// A number, a column or None.
ScalarOperand scalar(const py::object& o) {
  if (o.is_none()) return {};
  if (py::isinstance<Access>(o)) return TileBuilder::column(o.cast<Access>());
  return TileBuilder::imm(o.cast<float>());
}

std::vector<int64_t> sizes(const Access& a) { return {a.size.begin(), a.size.begin() + a.num_dims}; }
std::vector<int64_t> steps(const Access& a) { return {a.step.begin(), a.step.begin() + a.num_dims}; }

isa::AffinePattern affine(int64_t base, int32_t partition_step, const std::vector<int32_t>& step) {
  if (step.size() > 4) throw py::value_error("user error: an affine pattern has at most 4 steps");
  isa::AffinePattern p;
  p.base = base;
  p.partition_step = partition_step;
  std::copy(step.begin(), step.end(), p.step.begin());
  return p;
}

void bind_access(py::module_& m) {
  py::class_<Access>(m, "Access", "Elements of a tile or of an HBM tensor, in visiting order")
      .def_property_readonly("space", [](const Access& a) { return std::string(isa::name(a.space)); })
      .def_property_readonly("dtype", [](const Access& a) { return std::string(isa::dtype_name(a.dtype)); })
      .def_property_readonly("partitions", [](const Access& a) { return int{a.num_partitions}; })
      .def_property_readonly("start_partition", [](const Access& a) { return int{a.start_partition}; })
      .def_readonly("tensor", &Access::tensor)
      .def_readonly("offset", &Access::offset)
      .def_property_readonly("sizes", &sizes)
      .def_property_readonly("steps", &steps)
      .def("slice", &slice, "dim"_a, "begin"_a, "count"_a)
      .def("slice_partitions", &slice_partitions, "begin"_a, "count"_a)
      .def("reshape", &reshape, "dims"_a)
      .def("broadcast", &broadcast, "dim"_a, "count"_a)
      .def(
          "pattern",
          [](const Access& a, const std::vector<int64_t>& step, const std::vector<int64_t>& size,
             int64_t offset) {
            size_t limit = a.space == isa::Space::kHbm ? 5 : 4;
            if (step.size() != size.size() || step.size() > limit) {
              throw py::value_error("user error: a pattern needs as many steps as sizes, at most " +
                                    std::to_string(limit));
            }
            Access r = a;
            r.num_dims = static_cast<uint8_t>(step.size());
            for (size_t i = 0; i < step.size(); ++i) {
              if (size[i] < 1) throw py::value_error("user error: sizes of a pattern are at least 1");
              r.step[i] = step[i];
              r.size[i] = static_cast<uint32_t>(size[i]);
            }
            r.offset += offset * static_cast<int64_t>(isa::dtype_bytes(a.dtype));
            return r;
          },
          "step"_a, "size"_a, "offset"_a = 0,
          "Free dims by steps and sizes in elements, from `offset` elements on")
      .def(
          "view",
          [](const Access& a, const std::string& name) {
            Access r = a;
            r.dtype = dtype(name);
            if (isa::dtype_bytes(r.dtype) != isa::dtype_bytes(a.dtype)) {
              throw py::value_error("user error: a view needs a dtype of the same size");
            }
            return r;
          },
          "dtype"_a, "The same bytes as another dtype of equal size");
}

void bind_movement(py::class_<TileBuilder>& c) {
  c.def("load", &TileBuilder::load, "dst"_a, "src"_a)
      .def("store", &TileBuilder::store, "dst"_a, "src"_a)
      .def("dma", &TileBuilder::dma, "dst"_a, "src"_a)
      .def("gather", &TileBuilder::gather, "dst"_a, "src_rows"_a, "index"_a)
      .def("scatter", &TileBuilder::scatter, "dst_rows"_a, "src"_a, "index"_a, "accumulate"_a = false)
      .def("copy", &TileBuilder::copy, "dst"_a, "src"_a)
      .def("memset", &TileBuilder::memset, "dst"_a, "value"_a)
      .def(
          "iota",
          [](TileBuilder& b, const Access& dst, int64_t base, int32_t partition_step,
             const std::vector<int32_t>& step) { b.iota(dst, affine(base, partition_step, step)); },
          "dst"_a, "base"_a = 0, "partition_step"_a = 0, "step"_a = std::vector<int32_t>{1})
      .def(
          "affine_select",
          [](TileBuilder& b, const Access& dst, const Access& src, const std::string& cmp, float fill,
             int64_t base, int32_t partition_step, const std::vector<int32_t>& step) {
            b.affine_select(dst, src, affine(base, partition_step, step), alu(cmp), fill);
          },
          "dst"_a, "src"_a, "cmp"_a, "fill"_a, "base"_a = 0, "partition_step"_a = 0,
          "step"_a = std::vector<int32_t>{1});
}

void bind_compute(py::class_<TileBuilder>& c) {
  c.def(
       "tensor_tensor",
       [](TileBuilder& b, const Access& dst, const Access& x, const Access& y, const std::string& op) {
         b.tensor_tensor(dst, x, y, alu(op));
       },
       "dst"_a, "a"_a, "b"_a, "op"_a)
      .def(
          "tensor_scalar",
          [](TileBuilder& b, const Access& dst, const Access& x, const std::string& op0, const py::object& s0,
             const std::string& op1, const py::object& s1, bool reverse0, bool reverse1) {
            b.tensor_scalar(dst, x, alu(op0), scalar(s0), alu(op1), scalar(s1), reverse0, reverse1);
          },
          "dst"_a, "src"_a, "op0"_a, "operand0"_a, "op1"_a = "", "operand1"_a = py::none(),
          "reverse0"_a = false, "reverse1"_a = false)
      .def(
          "scalar_tensor_tensor",
          [](TileBuilder& b, const Access& dst, const Access& x, const std::string& op0, const py::object& s0,
             const std::string& op1,
             const Access& y) { b.scalar_tensor_tensor(dst, x, alu(op0), scalar(s0), alu(op1), y); },
          "dst"_a, "a"_a, "op0"_a, "operand0"_a, "op1"_a, "b"_a)
      .def(
          "activation",
          [](TileBuilder& b, const Access& dst, const Access& src, const std::string& func,
             const py::object& scale, const py::object& bias, const std::optional<Access>& row_sum) {
            b.activation(dst, src, act(func), scalar(scale), scalar(bias), row_sum ? &*row_sum : nullptr);
          },
          "dst"_a, "src"_a, "func"_a, "scale"_a = py::none(), "bias"_a = py::none(), "row_sum"_a = py::none())
      .def("reciprocal", &TileBuilder::reciprocal, "dst"_a, "src"_a)
      .def("copy_predicated", &TileBuilder::copy_predicated, "dst"_a, "src"_a, "predicate"_a)
      .def(
          "reduce",
          [](TileBuilder& b, const Access& dst, const Access& src, const std::string& op, int dims) {
            b.reduce(dst, src, alu(op), dims);
          },
          "dst"_a, "src"_a, "op"_a, "trailing_dims"_a = 1)
      .def(
          "partition_reduce",
          [](TileBuilder& b, const Access& dst, const Access& src, const std::string& op) {
            b.partition_reduce(dst, src, alu(op));
          },
          "dst"_a, "src"_a, "op"_a)
      .def(
          "scan",
          [](TileBuilder& b, const Access& dst, const Access& x, const Access& y, const std::string& op0,
             const std::string& op1,
             const py::object& initial) { b.scan(dst, x, y, alu(op0), alu(op1), scalar(initial)); },
          "dst"_a, "a"_a, "b"_a, "op0"_a, "op1"_a, "initial"_a)
      .def("bn_stats", &TileBuilder::bn_stats, "dst"_a, "src"_a)
      .def("bn_aggr", &TileBuilder::bn_aggr, "dst"_a, "src"_a)
      .def("max8", &TileBuilder::max8, "dst"_a, "src"_a)
      .def("max_index8", &TileBuilder::max_index8, "dst"_a, "src"_a, "values"_a)
      .def("match_replace8", &TileBuilder::match_replace8, "dst"_a, "src"_a, "values"_a, "replacement"_a)
      .def("philox", &TileBuilder::philox, "dst"_a, "state"_a, "base"_a = 0)
      .def(
          "matmul",
          [](TileBuilder& b, const Access& dst, const Access& stationary, const Access& moving,
             bool accumulate) { b.matmul(dst, stationary, moving, accumulate); },
          "dst"_a, "stationary"_a, "moving"_a, "accumulate"_a = false)
      .def("transpose", &TileBuilder::transpose, "dst"_a, "src"_a);
}

}  // namespace
}  // namespace trnsim::compiler

PYBIND11_MODULE(_tile, m) {
  using namespace trnsim::compiler;
  m.doc() = "Builds tile programs: instructions on logical SBUF and PSUM tiles in program order.";
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const CompileError& e) {
      PyObject* type = e.kind() == CompileError::Kind::kUserError     ? PyExc_ValueError
                       : e.kind() == CompileError::Kind::kUnsupported ? PyExc_NotImplementedError
                                                                      : PyExc_RuntimeError;
      PyErr_SetString(type, e.what());
    }
  });
  bind_access(m);
  py::class_<TileBuilder> builder(m, "TileBuilder");
  builder
      .def(py::init([](const std::string& name, const std::string& target) {
             TileOptions options;
             options.target = target;
             return std::make_unique<TileBuilder>(name, options);
           }),
           "name"_a, "target"_a = "trn2")
      .def(
          "tensor",
          [](TileBuilder& b, const std::string& name, const std::string& tensor_kind, const std::string& type,
             const std::vector<int64_t>& shape, const py::bytes& constant) {
            std::string_view bytes = constant;
            return b.tensor(name, kind(tensor_kind), dtype(type), shape, 0, {bytes.begin(), bytes.end()});
          },
          "name"_a, "kind"_a, "dtype"_a, "shape"_a, "constant"_a = py::bytes())
      .def("alias", &TileBuilder::alias, "a"_a, "b"_a)
      .def(
          "sbuf",
          [](TileBuilder& b, int p, std::vector<int64_t> d, const std::string& t) {
            return b.sbuf(p, d, dtype(t));
          },
          "partitions"_a, "dims"_a, "dtype"_a)
      .def(
          "psum",
          [](TileBuilder& b, int p, std::vector<int64_t> d, const std::string& t) {
            return b.psum(p, d, dtype(t));
          },
          "partitions"_a, "dims"_a, "dtype"_a = "fp32")
      .def(
          "param",
          [](TileBuilder& b, int slot, const std::string& t) { return b.param(slot, dtype(t)).pointer; },
          "slot"_a, "dtype"_a = "fp32")
      .def_property_readonly("num_instructions", &TileBuilder::num_instructions)
      .def_property_readonly("peak_sbuf_bytes", &TileBuilder::peak_sbuf_bytes)
      .def("set_location", &TileBuilder::set_location, "file"_a, "line"_a, "what"_a = "")
      .def("note", &TileBuilder::note, "key"_a, "value"_a)
      .def("add_work", &TileBuilder::add_work, "flops"_a, "hbm_bytes"_a)
      .def("text", &TileBuilder::text)
      .def(
          "finish",
          [](TileBuilder& b) {
            std::vector<uint8_t> bytes = trnsim::isa::write_container(b.finish());
            return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          },
          "Runs the back half: the bytes of a program container");
  bind_movement(builder);
  bind_compute(builder);
}
