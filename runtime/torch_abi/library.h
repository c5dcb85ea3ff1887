// Functions of the module for shared libraries; see library.cpp.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace frameloom {

PyObject *load_library(PyObject *module, PyObject *path);
PyObject *library_symbol(PyObject *module, PyObject *args);
PyObject *find_torch_symbol(PyObject *module, PyObject *name);
// load_cubin(data, symbol, shared, extra, threads, device) -> handle
PyObject *load_cubin(PyObject *module, PyObject *args);
PyObject *cached_cast(PyObject *module, PyObject *args); // casts.cpp

} // namespace frameloom
