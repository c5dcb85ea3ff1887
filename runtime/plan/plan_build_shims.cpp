// Decides whether a library call goes through PyTorch's C interface: whether the table of the executor
// has the op, with arguments of these kinds.
#include "plan_build.h"

namespace frameloom {

namespace {

// Reads the items of a list or tuple; false if one of them does not fit.
template <typename Take> bool each_item(PyObject *object, Take take) {
    if (!PyList_Check(object) && !PyTuple_Check(object)) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); i++)
        if (!take(PySequence_Fast_GET_ITEM(object, i))) return false;
    return true;
}

bool take_integer(PyObject *object, int64_t *value, ShimArgument *argument) {
    int size;
    if (!PyLong_CheckExact(object) && !is_size(object)) return false;
    bool good = read_int(object, value, &size);
    argument->sizes.push_back(size);
    return good;
}

bool take_fallback(const ShimParameter &parameter, ShimArgument *argument) {
    if (!parameter.has_fallback) return false;
    ShimValue &value = argument->value;
    if (parameter.fallback == "None")
        value.present = false;
    else
        value.integer = (int64_t)(value.number = std::stod(parameter.fallback));
    return true;
}

} // namespace

bool Parser::shim_view(PyObject *object, ShimArgument *argument) {
    if (!is_view(object)) return false;
    argument->views.push_back(view(object));
    return true;
}

// False if the object does not fit the type of the parameter, or with an exception set.
bool Parser::shim_argument(PyObject *object, ShimArgument *argument) {
    ShimValue &value = argument->value;
    switch (argument->type) {
    case 'O':
        value.present = object != Py_None;
        return object == Py_None || shim_view(object, argument);
    case 'T':
        return shim_view(object, argument);
    case 'L':
        return each_item(object, [&](PyObject *item) { return shim_view(item, argument); });
    case 'M':
        return each_item(object, [&](PyObject *item) {
            if (item == Py_None) argument->views.push_back(-1);
            return item == Py_None || shim_view(item, argument);
        });
    case 'N':
        value.present = false;
        return object == Py_None;
    case 'B':
        value.present = object != Py_None;
        value.flag = object == Py_True;
        return object == Py_None || PyBool_Check(object);
    case 'I':
        return each_item(object, [&](PyObject *item) {
            argument->integers.push_back(0);
            return take_integer(item, &argument->integers.back(), argument);
        });
    case 'D':
        value.present = object != Py_None;
        if (object == Py_None) return true;
        [[fallthrough]];
    case 'd':
        if (!PyFloat_Check(object) && !PyLong_Check(object)) return false;
        value.number = PyFloat_AsDouble(object);
        return !PyErr_Occurred();
    case 'b':
        if (!PyBool_Check(object)) return false;
        value.integer = object == Py_True;
        return true;
    default:
        return take_integer(object, &value.integer, argument);
    }
}

void Parser::bind_shim(const std::string &target, const py::tuple &args, const py::dict &kwargs,
                       Extern *call) {
    const Shim *shim = torch_api.fast ? shim_find(target) : nullptr;
    /* Results in out form need a C function that writes to given tensors. */
    if (shim == nullptr || (call->out_form && !shim->out) || call->results.size() != (size_t)shim->results)
        return;
    std::string symbol = "aoti_torch_" + builder.device_of(call->arguments) + "_" + shim->symbol;
    void *function = torch_symbol(symbol.c_str());
    std::vector<ShimParameter> parameters = shim_parameters(*shim);
    std::vector<ShimArgument> arguments;
    if (function == nullptr || args.size() > parameters.size()) return;
    size_t named = 0;
    for (size_t i = 0; i < parameters.size(); i++) {
        ShimArgument argument{};
        argument.type = parameters[i].type;
        PyObject *object = i < args.size() ? PyTuple_GET_ITEM(args.ptr(), (Py_ssize_t)i)
                                           : PyDict_GetItemString(kwargs.ptr(), parameters[i].name.c_str());
        named += object && i >= args.size();
        if (!(object ? shim_argument(object, &argument) : take_fallback(parameters[i], &argument))) {
            if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
                throw py::error_already_set();
            PyErr_Clear(); // a number beyond 64 bits
            return;
        }
        arguments.push_back(std::move(argument));
    }
    if (named == kwargs.size()) // else an argument that the row does not know
        call->shim = ShimCall{shim, function, std::move(arguments)};
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
