// The Python module engine_torch._backend: makes process groups for engine_torch/__init__.py, which
// registers the backend "engine" with torch.distributed.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "tools/api/torch/engine_backend.h"

namespace engine::pytorch {
namespace {

namespace py = pybind11;

// Returns why the process ends, if an exception does it: that of the main script, or that of the
// function of a multiprocessing.Process.
std::string reason_of_end() {
  const py::module_ sys = py::module_::import("sys");
  py::object error = py::getattr(sys, "last_value", py::none());
  if (error.is_none()) error = sys.attr("exc_info")()[py::int_(1)];
  if (error.is_none()) return "";
  const py::module_ builtins = py::module_::import("builtins");
  if (py::isinstance(error, builtins.attr("SystemExit"))) {
    const py::object code = error.attr("code");
    if (code.is_none() || code.equal(py::int_(0))) return "";
    return "it exited with code " + py::str(code).cast<std::string>();
  }
  const auto text = py::str(error).cast<std::string>();
  return py::str(py::type::of(error).attr("__name__")).cast<std::string>() + ": " +
         text.substr(0, std::min<std::size_t>(text.find('\n'), 200));
}

void end_of_process() {
  std::string why;
  try {
    why = reason_of_end();
  } catch (const std::exception&) {
    why = "it failed";
  }
  const py::gil_scoped_release others;
  EngineBackend::end_all(why);
}

// Called for each backend, because a child of multiprocessing starts without its parent's
// functions, and ends without those of atexit.
void note_end_of_process() {
  static pid_t noted = 0;
  if (noted == getpid()) return;
  noted = getpid();
  const py::cpp_function end(&end_of_process);
  py::module_::import("atexit").attr("register")(end);
  py::module_::import("multiprocessing.util")
      .attr("Finalize")(py::none(), end, py::arg("exitpriority") = 100);
}

c10::intrusive_ptr<c10d::Backend> create(const c10d::DistributedBackendOptions& options,
                                         const py::object& own_options) {
  TORCH_CHECK_VALUE(own_options.is_none(),
                    "the backend engine has no options: expected "
                    "pg_options=None; see docs/pytorch.md for variables");
  note_end_of_process();
  const py::gil_scoped_release others;
  return c10::make_intrusive<EngineBackend>(
      JoinRequest{
          .store = options.store,
          .rank = options.group_rank,
          .size = options.group_size,
          .timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout)},
      std::vector<std::uint64_t>(options.global_ranks_in_group.begin(),
                                 options.global_ranks_in_group.end()));
}

}  // namespace
}  // namespace engine::pytorch

PYBIND11_MODULE(_backend, m) {
  m.doc() = "Process groups of the backend \"engine\" of torch.distributed.";
  m.attr("__version__") = engine::api::version_text();
  m.attr("torch_version") = ENGINE_TORCH_VERSION;  // it was compiled for
  m.def("create", &engine::pytorch::create);
}
