// Decides whether a library call goes through PyTorch's C interface: whether the table of the executor
// has the op, with arguments of these kinds.
#include "plan_build.h"

namespace frameloom {

namespace {

struct Binder {
    PyObject *view_type;
    ViewNumber view_number;
    void *context;

    bool is_view(PyObject *object) const { return Py_TYPE(object) == (PyTypeObject *)view_type; }

    bool add_view(PyObject *object, ShimArgument *argument) const {
        int number = is_view(object) ? view_number(context, object) : -1;
        if (number >= 0) argument->views.push_back(number);
        return number >= 0;
    }

    // Reads the items of a list or tuple; false if one of them does not fit.
    template <typename Take> static bool each(PyObject *object, Take take) {
        if (!PyList_Check(object) && !PyTuple_Check(object)) return false;
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); i++)
            if (!take(PySequence_Fast_GET_ITEM(object, i))) return false;
        return true;
    }

    bool take(PyObject *object, ShimArgument *argument) const {
        ShimValue &value = argument->value;
        switch (argument->type) {
        case 'O':
            if (object == Py_None) {
                value.present = false;
                return true;
            }
            return add_view(object, argument);
        case 'T':
            return add_view(object, argument);
        case 'L':
            return each(object, [&](PyObject *item) { return add_view(item, argument); });
        case 'M':
            return each(object, [&](PyObject *item) {
                if (item == Py_None) argument->views.push_back(-1);
                return item == Py_None || add_view(item, argument);
            });
        case 'N':
            value.present = false;
            return object == Py_None;
        case 'B':
            value.present = object != Py_None;
            value.flag = object == Py_True;
            return object == Py_None || PyBool_Check(object);
        case 'I':
            return each(object, [&](PyObject *item) {
                argument->integers.push_back(0);
                return integer(item, &argument->integers.back(), argument);
            });
        case 'D':
            if (object == Py_None) {
                value.present = false;
                return true;
            }
            [[fallthrough]];
        case 'd':
            if (!PyFloat_Check(object) && !PyLong_Check(object)) return false;
            value.number = PyFloat_AsDouble(object);
            return true;
        case 'b':
            if (!PyBool_Check(object)) return false;
            value.integer = object == Py_True;
            return true;
        default:
            return integer(object, &value.integer, argument);
        }
    }

    static bool integer(PyObject *object, int64_t *value, ShimArgument *argument) {
        int size;
        if (!PyLong_CheckExact(object) && !is_size(object)) return false;
        bool good = read_int(object, value, &size);
        argument->sizes.push_back(size);
        if (!good && PyErr_ExceptionMatches(PyExc_OverflowError)) PyErr_Clear();
        return good;
    }

    static bool take_fallback(const ShimParameter &parameter, ShimArgument *argument) {
        if (!parameter.has_fallback) return false;
        ShimValue &value = argument->value;
        if (parameter.fallback == "None")
            value.present = false;
        else
            value.integer = (int64_t)(value.number = std::stod(parameter.fallback));
        return true;
    }
};

} // namespace

bool shim_bind(const std::string &target, const std::string &device, PyObject *args, PyObject *kwargs,
               bool out_form, size_t results, PyObject *view_type, ViewNumber view_number, void *context,
               ShimCall *call) {
    const Shim *shim = torch_api.fast ? shim_find(target) : nullptr;
    /* Results in out form need a C function that writes to given tensors. */
    if (shim == nullptr || (out_form && !shim->out) || results != (size_t)shim->results) return true;
    void *function = torch_symbol(("aoti_torch_" + device + "_" + shim->symbol).c_str());
    if (function == nullptr) return true;
    Binder binder{view_type, view_number, context};
    std::vector<ShimParameter> parameters = shim_parameters(*shim);
    std::vector<ShimArgument> arguments;
    if (PyTuple_GET_SIZE(args) > (Py_ssize_t)parameters.size()) return true;
    Py_ssize_t named = 0;
    for (size_t i = 0; i < parameters.size(); i++) {
        ShimArgument argument{};
        argument.type = parameters[i].type;
        PyObject *object = (Py_ssize_t)i < PyTuple_GET_SIZE(args)
                               ? PyTuple_GET_ITEM(args, i)
                               : PyDict_GetItemString(kwargs, parameters[i].name.c_str());
        named += object && (Py_ssize_t)i >= PyTuple_GET_SIZE(args);
        if (!(object ? binder.take(object, &argument) : Binder::take_fallback(parameters[i], &argument)))
            return !PyErr_Occurred();
        arguments.push_back(std::move(argument));
    }
    if (PyErr_Occurred()) { /* an integer beyond 64 bits */
        PyErr_Clear();
        return true;
    }
    if (named != PyDict_GET_SIZE(kwargs)) return true; /* an argument that the row does not know */
    *call = ShimCall{shim, function, std::move(arguments)};
    return true;
}

PyObject *shim_names(PyObject *, PyObject *) {
    PyObject *names = PyList_New(0);
    for (const char *target : shim_targets()) {
        PyObject *name = names ? PyUnicode_FromString(target) : nullptr;
        if (name == nullptr || PyList_Append(names, name) < 0) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

} // namespace frameloom
