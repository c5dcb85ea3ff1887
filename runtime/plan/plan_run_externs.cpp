// Library calls of a plan that go through Python: PyTorch's C interface does not offer the op.
#include "frame.h"
#include "plan.h"

#include <cstring>

namespace frameloom {

namespace {

PyObject *number_object(const void *data, bool is_float) {
    uint64_t bits = reinterpret_cast<uintptr_t>(data);
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return is_float ? PyFloat_FromDouble(value) : PyLong_FromLongLong((int64_t)bits);
}

class PythonCall {
  public:
    explicit PythonCall(Frame &frame) : frame(frame), program(frame.program) {}

    bool run(const Extern &call) {
        PyObject *args = PyTuple_New((Py_ssize_t)call.positional), *kwargs = PyDict_New(),
                 *returned = nullptr;
        bool good = args && kwargs;
        for (size_t i = 0; i < call.arguments.size() && good; i++) {
            PyObject *value = argument(call.arguments[i]);
            if (i < call.positional) {
                good = value != nullptr;
                if (good) PyTuple_SET_ITEM(args, (Py_ssize_t)i, value);
            } else {
                good = set_named(kwargs, call.names[i - call.positional], value);
            }
        }
        if (good && call.out_form) good = set_out(call, kwargs);
        if (good) returned = PyObject_Call(call.native ? call.native : call.function, args, kwargs);
        Py_XDECREF(args);
        Py_XDECREF(kwargs);
        good = returned && (call.out_form || take_results(call, returned));
        Py_XDECREF(returned);
        return good;
    }

  private:
    Frame &frame;
    const Program &program;

    // Returns a new reference; nullptr with an exception set.
    PyObject *argument(const Argument &source) {
        if (source.kind == Argument::OBJECT) return Py_NewRef(source.object);
        if (source.kind == Argument::INPUT) return Py_NewRef(frame.inputs[source.number]);
        if (source.kind == Argument::NUMBER)
            return number_object(frame.data[source.number], program.buffers[source.number].is_float);
        if (source.kind == Argument::SIZE)
            return PyLong_FromLongLong(program.sizes.values[(size_t)source.number]);
        if (source.kind == Argument::VIEW) {
            Tensor *tensor = frame.view(source.number, false);
            return tensor ? Py_XNewRef(tensor_object(tensor)) : nullptr;
        }
        Py_ssize_t count = (Py_ssize_t)source.items.size();
        PyObject *result = source.kind == Argument::LIST ? PyList_New(count) : PyTuple_New(count);
        for (Py_ssize_t i = 0; i < count && result; i++) {
            PyObject *item = argument(source.items[i]);
            if (item == nullptr)
                Py_CLEAR(result);
            else if (source.kind == Argument::LIST)
                PyList_SET_ITEM(result, i, item);
            else
                PyTuple_SET_ITEM(result, i, item);
        }
        return result;
    }

    static bool set_named(PyObject *kwargs, const std::string &name, PyObject *value) {
        bool good = value && PyDict_SetItemString(kwargs, name.c_str(), value) == 0;
        Py_XDECREF(value);
        return good;
    }

    bool set_out(const Extern &call, PyObject *kwargs) {
        bool together = call.out_names.size() != call.results.size(); // as a tuple, under one name
        PyObject *all = PyTuple_New(together ? (Py_ssize_t)call.results.size() : 0);
        bool good = all != nullptr;
        for (size_t i = 0; i < call.results.size() && good; i++) {
            Tensor *tensor = frame.view(call.result_views[i], false);
            PyObject *object = tensor ? Py_XNewRef(tensor_object(tensor)) : nullptr;
            good = object != nullptr;
            if (!together)
                good = set_named(kwargs, call.out_names[i], object);
            else if (good)
                PyTuple_SET_ITEM(all, (Py_ssize_t)i, object);
        }
        if (good && together) good = set_named(kwargs, call.out_names[0], Py_NewRef(all));
        Py_XDECREF(all);
        return good;
    }

    bool take_results(const Extern &call, PyObject *returned) {
        bool several = PyTuple_Check(returned) || PyList_Check(returned);
        size_t count = several ? (size_t)PySequence_Fast_GET_SIZE(returned) : 1;
        for (size_t i = 0; i < call.results.size(); i++) {
            if (call.results[i] < 0) continue;
            if (i >= count) {
                PyErr_Format(PyExc_RuntimeError, "%R returned %zu results, planned were %zu", call.function,
                             count, call.results.size());
                return false;
            }
            Tensor tensor{};
            PyObject *result = several ? PySequence_Fast_GET_ITEM(returned, (Py_ssize_t)i) : returned;
            if (!tensor_adopt(Py_NewRef(result), &tensor)) return false;
            frame.put(call.results[i], tensor);
        }
        return frame.adopt(call);
    }
};

} // namespace

bool host::call(Frame &frame, const Extern &call) { return PythonCall(frame).run(call); }

} // namespace frameloom
