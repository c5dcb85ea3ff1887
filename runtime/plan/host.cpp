// Python as the host of the executor (executor/host.h); tensors are in torch_abi/python_tensors.cpp.
#include "plan.h"

#include <cstring>

namespace frameloom {

namespace {

// Returns the type that PyTorch raises for errors of a device, a subclass of RuntimeError; new
// reference.
PyObject *device_error() {
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *type = torch ? PyObject_GetAttrString(torch, "AcceleratorError") : nullptr;
    Py_XDECREF(torch);
    if (type && PyExceptionClass_Check(type)) return type;
    Py_XDECREF(type);
    PyErr_Clear();
    return Py_NewRef(PyExc_RuntimeError);
}

bool as_number(PyObject *object, uint64_t *number) {
    if (object == nullptr) return false;
    *number = PyLong_AsUnsignedLongLongMask(object);
    Py_DECREF(object);
    return !PyErr_Occurred();
}

} // namespace

bool host::raise(Error kind, const char *text) {
    if (kind == Error::MEMORY) return PyErr_NoMemory() != nullptr;
    if (kind != Error::DEVICE) {
        PyErr_SetString(kind == Error::VALUE    ? PyExc_ValueError
                        : kind == Error::SYSTEM ? PyExc_OSError
                                                : PyExc_RuntimeError,
                        text);
        return false;
    }
    PyObject *type = device_error();
    PyErr_SetString(type, text);
    Py_DECREF(type);
    return false;
}

bool host::raise_object(PyObject *type, PyObject *value) {
    PyErr_SetObject(type, value);
    return false;
}

void host::release(PyObject *object) { Py_DECREF(object); }

bool host::read_number(PyObject *object, bool is_float, void **result) {
    uint64_t bits = 0;
    if (is_float) {
        if (!PyFloat_CheckExact(object)) return false;
        double value = PyFloat_AS_DOUBLE(object);
        std::memcpy(&bits, &value, sizeof value);
    } else {
        int overflow = 0;
        if (!PyLong_CheckExact(object)) return false;
        bits = (uint64_t)PyLong_AsLongLongAndOverflow(object, &overflow);
        if (overflow) return false;
    }
    *result = reinterpret_cast<void *>((uintptr_t)bits);
    return true;
}

void *host::leave_lock() { return PyEval_SaveThread(); }

void host::take_lock(void *left) { PyEval_RestoreThread(static_cast<PyThreadState *>(left)); }

bool host::draw(const Draw &draw, uint64_t *seed, uint64_t *offset) {
    if (!as_number(PyObject_CallNoArgs(draw.get_seed), seed) ||
        !as_number(PyObject_CallNoArgs(draw.get_offset), offset))
        return false;
    PyObject *given = PyLong_FromUnsignedLongLong(*offset + (uint64_t)draw.increment);
    PyObject *done = given ? PyObject_CallOneArg(draw.set_offset, given) : nullptr;
    Py_XDECREF(given);
    Py_XDECREF(done);
    return done != nullptr;
}

const GpuFunction *host::load_function(PyObject *by) {
    PyObject *handle = PyObject_CallNoArgs(by);
    if (handle == nullptr) return nullptr;
    void *function = PyLong_AsVoidPtr(handle);
    Py_DECREF(handle);
    return static_cast<const GpuFunction *>(function);
}

} // namespace frameloom
