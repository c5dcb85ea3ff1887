// Loads generated libraries and finds functions in them.
//
// A library stays loaded as long as the object that load_library returns is alive; plans that use
// its addresses keep this object.  It is loaded with RTLD_LOCAL, so that kernels of the same name
// in several libraries do not conflict.
#include "library.h"

#include "cuda.h"
#include "python_tensors.h"

#include <dlfcn.h>

namespace frameloom {

namespace {

constexpr const char *LIBRARY = "frameloom.library";

void close_library(PyObject *library) { dlclose(PyCapsule_GetPointer(library, LIBRARY)); }

} // namespace

PyObject *load_library(PyObject *, PyObject *path) {
    PyObject *bytes = nullptr;
    if (!PyUnicode_FSConverter(path, &bytes)) return nullptr;
    void *handle;
    Py_BEGIN_ALLOW_THREADS
    handle = dlopen(PyBytes_AS_STRING(bytes), RTLD_NOW | RTLD_LOCAL);
    Py_END_ALLOW_THREADS
    Py_DECREF(bytes);
    if (handle == nullptr) {
        const char *reason = dlerror();
        return PyErr_Format(PyExc_OSError, "%s", reason ? reason : "the library cannot be loaded");
    }
    PyObject *library = PyCapsule_New(handle, LIBRARY, close_library);
    if (library == nullptr) dlclose(handle);
    return library;
}

PyObject *library_symbol(PyObject *, PyObject *args) {
    PyObject *object;
    const char *name;
    if (!PyArg_ParseTuple(args, "O!s", &PyCapsule_Type, &object, &name)) return nullptr;
    void *library = PyCapsule_GetPointer(object, LIBRARY);
    if (library == nullptr) return nullptr;
    void *address = dlsym(library, name);
    if (address) return PyLong_FromVoidPtr(address);
    return PyErr_Format(PyExc_AttributeError, "the library exports no %s", name);
}

PyObject *load_cubin(PyObject *, PyObject *args) {
    const char *data;
    Py_ssize_t size;
    PyObject *symbol;
    int shared, extra, threads, device;
    if (!PyArg_ParseTuple(args, "y#Uiiii", &data, &size, &symbol, &shared, &extra, &threads, &device))
        return nullptr;
    const char *name = PyUnicode_AsUTF8(symbol);
    if (python_torch() == nullptr || name == nullptr) return nullptr;
    const GpuFunction *made = gpu_load(data, name, shared, extra, threads, device);
    return made ? PyLong_FromVoidPtr(const_cast<GpuFunction *>(made)) : nullptr;
}

PyObject *find_torch_symbol(PyObject *, PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    if (text == nullptr || python_torch() == nullptr) return nullptr;
    return PyLong_FromVoidPtr(torch_symbol(text));
}

} // namespace frameloom
