// Library calls of a plan: through PyTorch's C interface if it has the op, else through Python.
#include "plan_frame.h"

#include <alloca.h>

#include <utility>

namespace frameloom {

// Makes the returned tensors of a library call fit the planned layouts.
bool Frame::adopt(const Extern &call) {
    if (call.sizes >= 0 && !find_sizes((size_t)call.sizes)) return false;
    for (int number : call.results)
        if (number >= 0 && !adopt(number)) return false;
    return true;
}

bool Frame::adopt(int number) {
    const Layout &layout = program.buffers[number].layout;
    Tensor *tensor = &tensors[number];
    int matches = tensor_matches(tensor, layout);
    if (matches < 0) return false;
    if (matches == 0 && !tensor_restride(tensor, layout)) return false;
    if (!tensor_data(*tensor, &data[number])) return false;
    /* A result that is a view of scratch memory is copied, as later steps overwrite this memory. */
    return !in_scratch(data[number]) ||
           (tensor_restride(tensor, layout) && tensor_data(*tensor, &data[number]));
}

bool Frame::in_scratch(const void *address) const {
    for (size_t i = 0; i < program.arenas.size() && scratch; i++) {
        const char *start = static_cast<const char *>(scratch->memory[i].base);
        if (start && address >= start && address < start + scratch->memory[i].bytes) return true;
    }
    return false;
}

// Returns 1 if done, 0 if the C function reported an error (Python then raises it), -1 with an
// exception set.
int Frame::run_shim(const Extern &call) {
    const ShimCall &shim = call.shim;
    size_t count = shim.arguments.size(), lists = 0;
    for (const ShimArgument &argument : shim.arguments)
        lists += argument.is_list() ? argument.views.size() : 0;
    ShimValue values[16];
    Handle *list = static_cast<Handle *>(alloca((lists + 1) * sizeof(Handle)));
    const Handle **optional = static_cast<const Handle **>(alloca((lists + 1) * sizeof(Handle *)));
    for (size_t i = 0; i < count; i++) {
        const ShimArgument &argument = shim.arguments[i];
        values[i] = argument.value;
        if (argument.type == 'I') {
            values[i].integers = argument.integers.data();
            values[i].count = (int64_t)argument.integers.size();
        } else if (argument.is_list()) {
            values[i].tensors = list;
            values[i].optionals = optional;
            values[i].count = (int64_t)argument.views.size();
        }
        for (int number : argument.views) {
            Tensor *tensor = number < 0 ? nullptr : view(number, true);
            if (number >= 0 && tensor == nullptr) return -1;
            if (tensor && tensor->handle == nullptr) return 0;
            values[i].tensor = tensor ? tensor->handle : nullptr;
            if (!argument.is_list()) continue;
            *list = values[i].tensor;
            *optional++ = tensor ? list : nullptr;
            list++;
        }
    }
    Handle results[SHIM_RESULTS] = {};
    Tensor fresh{};
    if (call.out_form) {
        for (size_t i = 0; i < call.results.size(); i++) {
            Tensor *tensor = view(call.result_views[i], true);
            if (tensor == nullptr) return -1;
            results[i] = tensor->handle;
        }
    } else if (shim.shim->out) {
        if (call.results[0] < 0) return 1; // nothing uses the only result
        if (!tensor_empty(program.buffers[call.results[0]].layout, &fresh)) return -1;
        results[0] = fresh.handle;
    }
    PyThreadState *state = call.release_gil ? PyEval_SaveThread() : nullptr;
    int32_t error = shim.shim->invoke(shim.function, values, results);
    if (state) PyEval_RestoreThread(state);
    if (error || call.out_form) {
        fresh.release();
        return error == 0;
    }
    for (size_t i = 0; i < call.results.size(); i++) {
        Tensor tensor = shim.shim->out ? fresh : Tensor{results[i], nullptr, results[i] != nullptr, false};
        put(call.results[i], tensor);
    }
    return adopt(call) ? 1 : -1;
}

// Stores a result; number -1: nothing uses it.
void Frame::put(int number, Tensor tensor) {
    if (number >= 0) std::swap(tensors[number], tensor);
    tensor.release();
}

// Returns a new reference; nullptr with an exception set.
PyObject *Frame::argument(const Argument &source) {
    if (source.kind == Argument::OBJECT) return Py_NewRef(source.object);
    if (source.kind == Argument::INPUT) return Py_NewRef(inputs[source.number]);
    if (source.kind == Argument::NUMBER)
        return number_object(data[source.number], program.buffers[source.number].is_float);
    if (source.kind == Argument::SIZE)
        return PyLong_FromLongLong(program.sizes.values[(size_t)source.number]);
    if (source.kind == Argument::VIEW) {
        Tensor *tensor = view(source.number, false);
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

bool Frame::set_named(PyObject *kwargs, const std::string &name, PyObject *value) {
    bool good = value && PyDict_SetItemString(kwargs, name.c_str(), value) == 0;
    Py_XDECREF(value);
    return good;
}

bool Frame::set_out(const Extern &call, PyObject *kwargs) {
    PyObject *all = PyTuple_New((Py_ssize_t)call.results.size());
    bool good = all != nullptr;
    for (size_t i = 0; i < call.results.size() && good; i++) {
        Tensor *tensor = view(call.result_views[i], false);
        PyObject *object = tensor ? tensor_object(tensor) : nullptr;
        good = object != nullptr;
        if (good) PyTuple_SET_ITEM(all, (Py_ssize_t)i, Py_NewRef(object));
    }
    if (good && call.out_names.size() > 1)
        for (size_t i = 0; i < call.out_names.size() && good; i++)
            good = set_named(kwargs, call.out_names[i], Py_NewRef(PyTuple_GET_ITEM(all, (Py_ssize_t)i)));
    else if (good)
        good = set_named(kwargs, call.out_names[0],
                         Py_NewRef(call.results.size() == 1 ? PyTuple_GET_ITEM(all, 0) : all));
    Py_XDECREF(all);
    return good;
}

bool Frame::take_results(const Extern &call, PyObject *returned) {
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
        put(call.results[i], tensor);
    }
    return adopt(call);
}

bool Frame::run_python(const Extern &call) {
    PyObject *args = PyTuple_New((Py_ssize_t)call.positional), *kwargs = PyDict_New(), *returned = nullptr;
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

bool Frame::run_extern(const Extern &call) {
    if (call.shim.shim) {
        int done = run_shim(call);
        if (done != 0) return done > 0;
    }
    return run_python(call);
}

} // namespace frameloom
