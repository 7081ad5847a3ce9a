// smddp_tf._core: the engine's interface for the Python package.
#include <nanobind/nanobind.h>

#include "python/bindings.h"
#include "python/errors.h"

namespace {

// Sets the reason on the exception. `type` is the exception's class, which outlives the module.
void SetEngineError(const std::exception_ptr& error, void* type) {
  try {
    std::rethrow_exception(error);
  } catch (const smddp::EngineError& engine_error) {
    const nanobind::handle cls(static_cast<PyObject*>(type));
    nanobind::object made = cls(engine_error.what());
    made.attr("reason") = smddp::NameOf(engine_error.reason());
    PyErr_SetObject(cls.ptr(), made.ptr());
  }
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The engine of smddp_tf: sessions, plans, process sets, and requests on memory.";
  nanobind::set_leak_warnings(false);  // tracebacks hold requests beyond the interpreter's end
  nanobind::exception<smddp::EngineError> type(m, "EngineError", PyExc_RuntimeError);
  type.attr("reason") = smddp::NameOf(smddp::Reason::kInternal);
  nanobind::register_exception_translator(SetEngineError, type.ptr());
  smddp::BindControl(m);
  smddp::BindMemory(m);
}
