// Graph recording and compiled graphs for Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "device_plugin/aten/graph_program.h"
#include "device_plugin/aten/graph_recorder.h"

namespace py = pybind11;
using trnsim::aten::CallNumber;
using trnsim::aten::GraphProgram;
using trnsim::aten::Recorder;

namespace {

CallNumber number_of(py::handle value) {
  CallNumber number;
  if (PyFloat_Check(value.ptr())) {
    number.real = PyFloat_AS_DOUBLE(value.ptr());
  } else if (PyLong_Check(value.ptr())) {  // bool too
    number.is_integer = true;
    number.integer = py::cast<int64_t>(value);
  } else {
    const at::Tensor& t = THPVariable_Unpack(value.ptr());
    number.is_integer = c10::isIntegralType(t.scalar_type(), true);
    if (number.is_integer)
      number.integer = t.item<int64_t>();
    else
      number.real = t.item<double>();
  }
  return number;
}

py::list run(GraphProgram& program, const py::list& tensors, const py::list& numbers) {
  std::vector<at::Tensor> arguments;
  arguments.reserve(tensors.size());
  for (py::handle t : tensors) {
    if (!THPVariable_Check(t.ptr())) throw py::type_error("user error: a compiled graph takes tensors");
    arguments.push_back(THPVariable_Unpack(t.ptr()));
  }
  std::vector<CallNumber> values;
  values.reserve(numbers.size());
  for (py::handle n : numbers) values.push_back(number_of(n));
  std::vector<at::Tensor> results;
  {
    const py::gil_scoped_release nogil;
    results = program(arguments, values);
  }
  py::list out(results.size());
  for (size_t i = 0; i < results.size(); ++i)
    out[i] = results[i].defined() ? py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(results[i])))
                                  : py::none();
  return out;
}

}  // namespace

void bind_graphs(py::module_& m) {
  const auto nogil = py::call_guard<py::gil_scoped_release>();
  py::class_<GraphProgram, std::shared_ptr<GraphProgram>>(m, "GraphProgram")
      .def("__call__", &run)
      .def_property_readonly("name", [](const GraphProgram& self) { return self.name; })
      .def_property_readonly("num_nodes", &GraphProgram::num_nodes)
      .def_property_readonly("compiled", &GraphProgram::compiled)
      .def_property_readonly("compile_us", &GraphProgram::compile_us);

  py::class_<Recorder>(m, "GraphRecorder")
      .def(py::init([](const std::string& name, int device) {
        return std::make_unique<Recorder>(name, static_cast<c10::DeviceIndex>(device));
      }))
      .def("begin", &Recorder::begin)
      .def("end", &Recorder::end)
      .def("input", [](Recorder& self, at::ScalarType dtype, const std::vector<int64_t>& sizes,
                       const std::vector<int64_t>& strides,
                       int64_t storage_offset) { return self.input(dtype, sizes, strides, storage_offset); })
      .def("number", &Recorder::number)
      .def("locate", &Recorder::locate)
      .def(
          "finish",
          [](Recorder& self, const std::vector<std::optional<at::Tensor>>& results) {
            std::vector<at::Tensor> tensors;
            for (const auto& t : results) tensors.push_back(t.value_or(at::Tensor()));
            return self.finish(tensors);
          },
          nogil)
      .def("refusals", [](const Recorder& self) {
        py::list list;
        for (const auto& r : self.refusals()) list.append(py::make_tuple(r.tag, r.op, r.reason));
        return list;
      });
}
