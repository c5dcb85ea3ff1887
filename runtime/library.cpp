// Loading generated libraries and finding functions in them.
//
// A library stays loaded for the life of the process: code that is running, or a plan that holds an address,
// cannot outlive it.  It is loaded with RTLD_LOCAL, so that equally named kernels of several libraries do not
// meet.
#include "library.h"

#include "tensors.h"

#include <dlfcn.h>

namespace frameloom {

PyObject *load_library(PyObject *, PyObject *path) {
    PyObject *bytes = nullptr;
    if (!PyUnicode_FSConverter(path, &bytes)) return nullptr;
    void *handle;
    Py_BEGIN_ALLOW_THREADS
    handle = dlopen(PyBytes_AS_STRING(bytes), RTLD_NOW | RTLD_LOCAL);
    Py_END_ALLOW_THREADS
    Py_DECREF(bytes);
    if (handle) return PyLong_FromVoidPtr(handle);
    const char *reason = dlerror();
    return PyErr_Format(PyExc_OSError, "%s", reason ? reason : "the library cannot be loaded");
}

PyObject *library_symbol(PyObject *, PyObject *args) {
    PyObject *handle;
    const char *name;
    if (!PyArg_ParseTuple(args, "O!s", &PyLong_Type, &handle, &name)) return nullptr;
    void *library = PyLong_AsVoidPtr(handle);
    if (library == nullptr && PyErr_Occurred()) return nullptr;
    void *address = library ? dlsym(library, name) : nullptr;
    if (address) return PyLong_FromVoidPtr(address);
    return PyErr_Format(PyExc_AttributeError, "the library exports no %s", name);
}

PyObject *find_torch_symbol(PyObject *, PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    if (text == nullptr || torch_api() == nullptr) return nullptr;
    return PyLong_FromVoidPtr(torch_symbol(text));
}

} // namespace frameloom
