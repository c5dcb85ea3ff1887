// The casts of weights that autocast keeps for its own ops until a region ends.  There is no Python
// function for them, so PyTorch's C++ function is called; if it is not found, the result is None.
#include "library.h"
#include "python_tensors.h"

#include <exception>
#include <string>

namespace frameloom {

namespace {

using CachedCast = MadeTensor (*)(int8_t, Handle, int8_t);

constexpr const char *CACHED_CAST =
    "_ZN2at8autocast11cached_castEN3c1010ScalarTypeERKNS_6TensorENS1_10DeviceTypeE";

PyObject *cast(CachedCast function, int dtype, Handle tensor, int device) {
    std::string error;
    MadeTensor made{nullptr};
    // Without the GIL: the function holds a lock of its own, and may call Python while it does.
    PyThreadState *thread = PyEval_SaveThread();
    try {
        MadeTensor result = function(static_cast<int8_t>(dtype), tensor, static_cast<int8_t>(device));
        made.memory = result.memory;
    } catch (const std::exception &e) {
        error = *e.what() ? e.what() : "a cast failed";
    }
    PyEval_RestoreThread(thread);
    if (PyErr_Occurred()) return nullptr;
    if (made.memory == nullptr) {
        PyErr_SetString(PyExc_RuntimeError, error.c_str());
        return nullptr;
    }
    return python_torch()->wrap_moved(reinterpret_cast<Handle>(&made)); // it leaves nothing to free in `made`
}

} // namespace

PyObject *cached_cast(PyObject *, PyObject *args) {
    static const CachedCast function = reinterpret_cast<CachedCast>(torch_symbol(CACHED_CAST));
    PyObject *object;
    int dtype, device;
    Tensor tensor;
    if (!PyArg_ParseTuple(args, "Oii", &object, &dtype, &device)) return nullptr;
    const PythonTorch *torch = python_torch();
    if (torch == nullptr || !host::borrow(object, &tensor)) return nullptr;
    if (function == nullptr || torch->wrap_moved == nullptr) Py_RETURN_NONE;
    return cast(function, dtype, tensor.handle, device);
}

} // namespace frameloom
