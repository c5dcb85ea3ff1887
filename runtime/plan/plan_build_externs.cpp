// Parses library calls: their arguments and results, and whether the C interface supports them.
#include "plan_build.h"

namespace frameloom {

// Whether a container holds a tensor or a symbolic number at any depth: only then it is built again
// in every call.
bool Parser::holds_tensor(PyObject *object) const {
    if (is_view(object) || is_input(object) || is_number(object) || is_size(object)) return true;
    if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); i++)
        if (holds_tensor(PySequence_Fast_GET_ITEM(object, i))) return true;
    return false;
}

bool Parser::argument(PyObject *object, Argument *result) {
    *result = Argument{Argument::OBJECT, -1, object, {}};
    if (is_view(object)) {
        result->kind = Argument::VIEW;
        result->number = view(object);
        return result->number >= 0;
    }
    if (is_input(object)) {
        long long index;
        result->kind = Argument::INPUT;
        if (!number(object, "index", &index)) return false;
        result->number = (int)index;
        return (index >= 0 && index < program->input_count) ||
               wrong("a library call names an input that the plan does not have");
    }
    if (is_number(object)) {
        result->kind = Argument::NUMBER;
        PyObject *buffer = field(object, "buffer");
        if (buffer == nullptr || !buffer_number(buffer, &result->number)) return false;
        return program->buffers[result->number].kind == Buffer::NUMBER ||
               wrong("a library call is given a number that is none");
    }
    if (is_size(object)) {
        int64_t value;
        result->kind = Argument::SIZE;
        return read_int(object, &value, &result->number);
    }
    if (!holds_tensor(object)) return true;
    result->kind = PyList_CheckExact(object) ? Argument::LIST : Argument::TUPLE;
    result->items.resize(PySequence_Fast_GET_SIZE(object));
    for (size_t i = 0; i < result->items.size(); i++)
        if (!argument(PySequence_Fast_GET_ITEM(object, i), &result->items[i])) return false;
    return true;
}

bool Parser::extern_arguments(PyObject *args, PyObject *kwargs, Extern *call) {
    call->positional = (size_t)PyTuple_GET_SIZE(args);
    call->arguments.resize(call->positional + (size_t)PyDict_GET_SIZE(kwargs));
    for (size_t i = 0; i < call->positional; i++)
        if (!argument(PyTuple_GET_ITEM(args, i), &call->arguments[i])) return false;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(kwargs, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8(key);
        if (name == nullptr || !argument(value, &call->arguments[call->positional + call->names.size()]))
            return false;
        call->names.push_back(name);
    }
    return true;
}

bool Parser::extern_results(PyObject *results, Extern *call) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results); i++) {
        PyObject *item = PyTuple_GET_ITEM(results, i);
        int number = -1;
        if (item != Py_None && !buffer_number(item, &number)) return false;
        if (call->out_form && number < 0) return wrong("a call in out form names all of its results");
        if (number >= 0) {
            Buffer::Kind kind = program->buffers[number].kind;
            bool fits = call->out_form
                            ? kind != Buffer::EXTERN && kind != Buffer::CONSTANT && kind != Buffer::NUMBER
                            : kind == Buffer::EXTERN;
            if (!fits)
                return wrong("a call in out form writes to inputs, outputs and scratch memory; any other "
                             "fills extern buffers");
        }
        call->results.push_back(number);
        if (call->out_form) call->result_views.push_back(whole(number));
    }
    return true;
}

// Finds the keyword names under which results are passed: from the schema if the function has one.
bool Parser::out_names(Extern *call) {
    Ref schema(PyObject_GetAttrString(call->function, "_schema"));
    PyErr_Clear();
    Ref arguments(schema ? PyObject_GetAttrString(schema.object, "arguments") : nullptr);
    Py_ssize_t count = arguments ? PySequence_Size(arguments.object) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Ref item(PySequence_GetItem(arguments.object, i));
        Ref is_out(item ? PyObject_GetAttrString(item.object, "is_out") : nullptr);
        if (is_out.object != Py_True) continue;
        Ref name(PyObject_GetAttrString(item.object, "name"));
        const char *text = name ? PyUnicode_AsUTF8(name.object) : nullptr;
        if (text) call->out_names.push_back(text);
    }
    PyErr_Clear();
    if (call->out_names.empty()) call->out_names.push_back("out");
    return call->out_names.size() == 1 || call->out_names.size() == call->results.size() ||
           wrong("a call in out form names all of its results");
}

// Returns the builtin that an OpOverload's Python-level __call__ calls, as a new reference; nullptr
// for other functions.
PyObject *Parser::native_function(PyObject *function) {
    Ref module(PyImport_ImportModule("torch._ops"));
    Ref type(module ? PyObject_GetAttrString(module.object, "OpOverload") : nullptr);
    bool overload = type && Py_TYPE(function) == (PyTypeObject *)type.object;
    PyObject *native = overload ? PyObject_GetAttrString(function, "_op") : nullptr;
    PyErr_Clear();
    return native;
}

bool Parser::extern_step(PyObject *item) {
    Extern call{};
    PyObject *target = field(item, "target"), *args = field(item, "args"), *kwargs = field(item, "kwargs"),
             *results = field(item, "results");
    PyObject *out_form = field(item, "out_form");
    call.function = field(item, "function");
    if (!target || !args || !kwargs || !results || !out_form || !call.function) return false;
    const char *name = PyUnicode_AsUTF8(target);
    if (name == nullptr || !PyTuple_Check(args) || !PyDict_Check(kwargs) || !PyTuple_Check(results))
        return wrong("a library call has a tuple of arguments, a dict of named ones, and a tuple of results");
    call.out_form = out_form == Py_True;
    if (!extern_arguments(args, kwargs, &call) || !extern_results(results, &call) ||
        (call.out_form && !out_names(&call)))
        return false;
    std::string device;
    int64_t bytes = 0;
    for (const Argument &argument : call.arguments) {
        find_device(argument, &device);
        bytes += argument_bytes(*program, argument);
    }
    call.release_gil = bytes >= GIL_BYTES / 4;
    if (!shim_bind(
            name, device, args, kwargs, call.out_form, call.results.size(), view_type,
            [](void *parser, PyObject *object) { return static_cast<Parser *>(parser)->view(object); }, this,
            &call.shim))
        return false;
    program->steps.push_back({Step::EXTERN, (int)program->externs.size(), {}, {}, {}, {}, {}});
    call.native = native_function(call.function);
    program->externs.push_back(std::move(call));
    return true;
}

// Finds the device of the tensors.  Tensors on the CPU beside those on a GPU do not count: they may
// be numbers.
void Parser::find_device(const Argument &argument, std::string *device) const {
    if (argument.kind == Argument::VIEW) {
        const std::string &here = program->buffers[program->views[argument.number].buffer].device;
        if (device->empty() || here != "cpu") *device = here;
    }
    for (const Argument &item : argument.items) find_device(item, device);
}

} // namespace frameloom
