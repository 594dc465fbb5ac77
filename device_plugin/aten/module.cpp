// trnsim._C: the thin Python face of libtrnsim_torch.so. Loading it registers the device.
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <exception>

#include "device_plugin/aten/api.h"
#include "device_plugin/aten/device_use.h"

namespace py = pybind11;
namespace api = trnsim::aten::api;

namespace {

// c10's errors derive from std::exception; pybind11 would show their C++ backtrace. Keep the message.
std::string first_part(const std::string& text) {
  const size_t at = text.find("\nException raised from");
  return at == std::string::npos ? text : text.substr(0, at);
}

// The display of progress: a Python function that clears it, and whether there is something to clear.
PyObject* clear_display = nullptr;
std::atomic<bool> display_shown{false};

void wait_ended() {
  if (!display_shown.exchange(false)) return;
  const py::gil_scoped_acquire gil;
  py::reinterpret_borrow<py::object>(clear_display)();
}

PyObject* class_of(const std::exception& e) {
  if (dynamic_cast<const c10::IndexError*>(&e) != nullptr) return PyExc_IndexError;
  if (dynamic_cast<const c10::ValueError*>(&e) != nullptr) return PyExc_ValueError;
  if (dynamic_cast<const c10::TypeError*>(&e) != nullptr) return PyExc_TypeError;
  if (dynamic_cast<const c10::NotImplementedError*>(&e) != nullptr) return PyExc_NotImplementedError;
  return PyExc_RuntimeError;
}

// Lets Ctrl-C end a wait for the device. Python handles signals in the main thread only.
void check_signals() {
  static thread_local const bool is_main = syscall(SYS_gettid) == getpid();
  if (!is_main || Py_IsInitialized() == 0) return;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace

void bind_graphs(py::module_& m);  // graph_module.cpp

PYBIND11_MODULE(_C, m) {
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const py::builtin_exception&) {
      throw;
    } catch (const py::error_already_set&) {
      throw;
    } catch (const std::exception& e) {
      PyErr_SetString(class_of(e), first_part(e.what()).c_str());
    }
  });
  const auto nogil = py::call_guard<py::gil_scoped_release>();
  static const trnsim::aten::Interpreter kPython{
      .check_signals = &check_signals,
      .is_thread = [] { return Py_IsInitialized() != 0 && PyGILState_GetThisThreadState() != nullptr; },
      .holds_lock = [] { return Py_IsInitialized() != 0 && PyGILState_Check() == 1; },
  };
  api::set_interpreter(&kPython);

  m.def("configure", &api::configure, nogil);
  m.def("runtime_report_json", &api::runtime_report_json, nogil);
  m.def("config_json", &api::config_json, nogil);
  m.def("reset_report", &api::reset_report, nogil);
  m.def("simulated_ps", &api::simulated_ps, nogil);
  m.def("fallbacks", [] {
    py::list list;
    for (const auto& f : api::fallbacks()) list.append(py::make_tuple(f.op, f.reason, f.count));
    return list;
  });
  m.def("caches", [] {
    const auto c = api::caches();
    return py::make_tuple(c.hits, c.misses, c.compiles, c.disk_hits, c.compile_us);
  });
  m.def("lowered_ops", &api::lowered_ops);

  m.def("watch_waits", [](py::object clear) {
    clear_display = clear.release().ptr();
    api::watch_waits(&wait_ended);
  });
  m.def("display_shown", [] { display_shown = true; });
  m.def("progress", [] {
    const auto p = api::progress();
    return py::make_tuple(p.wait_s, p.entries, p.simulated_ps);
  });

  bind_graphs(m);

  m.def("clear_op_tracking", &api::clear_op_tracking);
  m.def("executed_ops", &api::executed_ops);
  m.def("fallback_ops", &api::fallback_ops);

  m.def("device_count", &api::device_count, nogil);
  m.def("device_problem", &api::device_problem, nogil);
  m.def("is_initialized", &api::is_initialized);
  m.def("in_bad_fork", &api::in_bad_fork);
  m.def("init", &api::init, nogil);
  m.def("shutdown", &api::shutdown, nogil);
  m.def("current_device", &api::current_device);
  m.def("set_device", &api::set_device);
  m.def("exchange_device", &api::exchange_device);
  m.def("synchronize", &api::synchronize, nogil);
  m.def("hbm_bytes", &api::hbm_bytes, nogil);
  m.def("target", &api::target);

  m.def("memory_stats", &api::memory_stats);
  m.def("empty_cache", &api::empty_cache, nogil);
  m.def("reset_peak_memory_stats", &api::reset_peak_memory_stats);
  m.def("reset_accumulated_memory_stats", &api::reset_accumulated_memory_stats);
  m.def("mem_get_info", &api::mem_get_info, nogil);

  m.def("manual_seed", &api::manual_seed);
  m.def("seed", &api::seed);
  m.def("initial_seed", &api::initial_seed);
  m.def("rng_state", &api::rng_state);
  m.def("set_rng_state", &api::set_rng_state);
}
