// Parses library calls: their arguments and results, and whether the C interface supports them.
#include "plan_build.h"

namespace frameloom {

namespace {

// Finds the keyword names under which results are passed: from the schema if the function has one.
std::vector<std::string> out_names(py::handle function, size_t results) {
    std::vector<std::string> names;
    if (py::hasattr(function, "_schema") && py::hasattr(function.attr("_schema"), "arguments"))
        for (py::handle argument : function.attr("_schema").attr("arguments"))
            if (py::object(argument.attr("is_out")).ptr() == Py_True)
                names.push_back(argument.attr("name").cast<std::string>());
    if (names.empty()) names.push_back("out");
    require(names.size() == 1 || names.size() == results, "a call in out form names all of its results");
    return names;
}

// Returns the builtin that an OpOverload's Python-level __call__ calls, as a new reference; nullptr
// for other functions.
PyObject *native_function(py::handle function) {
    py::object overload = py::module_::import("torch._ops").attr("OpOverload");
    return py::type::handle_of(function).is(overload) ? py::object(function.attr("_op")).release().ptr()
                                                      : nullptr;
}

} // namespace

bool Parser::holds_tensor(py::handle object) const {
    if (is_view(object) || is_input(object) || is_number(object) || is_size(object.ptr())) return true;
    if (!PyList_CheckExact(object.ptr()) && !PyTuple_CheckExact(object.ptr())) return false;
    for (py::handle item : object)
        if (holds_tensor(item)) return true;
    return false;
}

Argument Parser::argument(py::handle object) {
    Argument result{Argument::OBJECT, -1, object.ptr(), {}};
    if (is_view(object)) {
        result.kind = Argument::VIEW;
        result.number = view(object);
    } else if (is_input(object)) {
        result.kind = Argument::INPUT;
        long long index = number(object, "index");
        require(index >= 0 && index < program->input_count,
                "a library call names an input that the plan does not have");
        result.number = (int)index;
    } else if (is_number(object)) {
        result.kind = Argument::NUMBER;
        result.number = buffer_number(object, "buffer");
        require(program->buffers[result.number].kind == Buffer::NUMBER,
                "a library call is given a number that is none");
    } else if (is_size(object.ptr())) {
        int64_t value;
        result.kind = Argument::SIZE;
        require(read_int(object.ptr(), &value, &result.number), "a library call is given a size");
    } else if (holds_tensor(object)) {
        result.kind = PyList_CheckExact(object.ptr()) ? Argument::LIST : Argument::TUPLE;
        for (py::handle item : object) result.items.push_back(argument(item));
    }
    return result;
}

void Parser::extern_arguments(const py::tuple &args, const py::dict &kwargs, Extern *call) {
    call->positional = args.size();
    for (py::handle item : args) call->arguments.push_back(argument(item));
    for (const auto &[key, value] : kwargs) {
        call->names.push_back(text(key, "the names of arguments are text"));
        call->arguments.push_back(argument(value));
    }
}

void Parser::extern_step(py::handle item) {
    constexpr const char *RULE =
        "a library call has a tuple of arguments, a dict of named ones, and a tuple of results";
    Extern call{};
    std::string target = text(field(item, "target"), RULE);
    py::tuple args = items(item, "args", RULE);
    require(PyDict_Check(field(item, "kwargs")), RULE);
    py::dict kwargs = item.attr("kwargs");
    call.function = field(item, "function");
    call.out_form = field(item, "out_form") == Py_True;
    extern_arguments(args, kwargs, &call);
    for (py::handle result : items(item, "results", RULE))
        call.results.push_back(result.is_none() ? -1 : buffer_number(result));
    if (call.out_form) call.out_names = out_names(call.function, call.results.size());
    bind_shim(target, args, kwargs, &call);
    call.native = native_function(call.function);
    builder.add(std::move(call));
}

} // namespace frameloom
