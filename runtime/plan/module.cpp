// The extension module frameloom.runtime._runtime.  Importing it does not import PyTorch.
#include <pybind11/pybind11.h>

#include "cuda.h"
#include "library.h"
#include "plan.h"

namespace {

PyMethodDef functions[] = {
    {"load_library", frameloom::load_library, METH_O,
     "load_library(path) -> library, which is unloaded with the object"},
    {"symbol", frameloom::library_symbol, METH_VARARGS, "symbol(library, name) -> address"},
    {"torch_symbol", frameloom::find_torch_symbol, METH_O,
     "torch_symbol(name) -> address, 0 if there is none"},
    {"cached_cast", frameloom::cached_cast, METH_VARARGS,
     "cached_cast(tensor, dtype, device) -> what autocast casts it to"},
    {"load_cubin", frameloom::load_cubin, METH_VARARGS,
     "load_cubin(data, symbol, shared, extra, threads, device) -> handle"},
    {"shim_names", frameloom::shim_names, METH_NOARGS, "Ops that run through PyTorch's C interface."},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

PYBIND11_MODULE(_runtime, module) {
    module.doc() = "The native plan.";
    PyObject *type = PyType_FromSpec(&frameloom::plan_type_spec);
    if (type == nullptr || PyModule_AddFunctions(module.ptr(), functions) < 0)
        throw pybind11::error_already_set();
    module.add_object("Plan", pybind11::reinterpret_steal<pybind11::object>(type));
}
