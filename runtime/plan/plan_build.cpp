// Parses a plan as a whole, its buffers, views and outputs.
#include "plan_build.h"

#include <algorithm>
#include <new>

namespace frameloom {

Layout Parser::byte_layout() {
    py::object uint8 = py::module_::import("torch").attr("uint8");
    py::tuple one = py::make_tuple(1);
    Layout layout;
    require(layout_parse(one.ptr(), one.ptr(), uint8.ptr(), nullptr, &layout), "bytes have a layout");
    layout.shape_object = layout.strides_object = nullptr; // `one` does not live as long
    return layout;
}

Parser::Parser(py::handle spec, Program *program)
    : spec(spec), program(program), builder(program, byte_layout()) {
    py::module_ types = py::module_::import("frameloom.runtime.spec");
    view_type = types.attr("ViewSpec");
    input_type = types.attr("InputSpec");
    number_type = types.attr("NumberSpec");
}

bool Parser::parse() {
    options();
    each("buffers", [&](py::handle item) { buffer(item); });
    builder.end_buffers();
    each("numbers", [&](py::handle item) { number_step(item); });
    each("sizes", [&](py::handle item) { size(item); });
    can_refuse();
    program->keys = size_numbers(spec, "keys");
    each("steps", [&](py::handle item) { step(item); });
    outputs();
    return builder.finish(number(spec, "restarting")); // how many of the first steps
}

void Parser::options() {
    program->input_count = (int)number(spec, "n_inputs");
    sized_number(spec, "arena_bytes", &program->arena_bytes, &program->arena_bytes_size);
    program->owned = field(spec, "owned") == Py_True;
    program->otherwise = field_or_null(spec, "otherwise");
    program->refused = field(spec, "refused");
    program->steady = field_or_null(spec, "steady");
    program->restart = field_or_null(spec, "restart");
    program->remember = field_or_null(spec, "remember");
}

py::tuple Parser::items(py::handle object, const char *name, const char *what) {
    py::object value = object.attr(name);
    require(PyTuple_Check(value.ptr()), what);
    return value;
}

long long Parser::number(py::handle object) {
    long long value = PyLong_AsLongLong(object.ptr());
    if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
    return value;
}

std::string Parser::text(py::handle object, const char *what) {
    require(PyUnicode_Check(object.ptr()), what);
    return object.cast<std::string>();
}

void Parser::sized_number(py::handle object, const char *name, int64_t *result, int *size) {
    require(read_int(field(object, name), result, size), "a number of a plan is an int or a size");
}

std::vector<int> Parser::buffer_numbers(const py::tuple &numbers) const {
    std::vector<int> result;
    for (py::handle number : numbers) result.push_back(buffer_number(number));
    return result;
}

void Parser::buffer(py::handle item) {
    static const char *const kinds[] = {"input",  "output",   "arena",  "transient",
                                        "extern", "constant", "number", "table"};
    Buffer result{};
    std::string kind = text(field(item, "kind"), "the kind of a buffer is a name");
    size_t at = std::find(std::begin(kinds), std::end(kinds), kind) - std::begin(kinds);
    require(at < std::size(kinds),
            "a buffer is an input, output, arena, transient, extern, constant, number or table");
    bool is_table = kind == "table";
    result.kind = is_table ? Buffer::ARENA : (Buffer::Kind)at;
    result.constant = field(item, "constant");
    sized_number(item, "offset", &result.offset, &result.offset_size);
    PyObject *dtype = field(item, "dtype"), *device = field(item, "device");
    if (dtype != Py_None) {
        require(layout_parse(field(item, "shape"), field(item, "strides"), dtype, device, &result.layout),
                "a buffer has a shape, strides, a dtype and a device");
        result.device = py::handle(device).attr("type").cast<std::string>();
    }
    if (result.kind == Buffer::NUMBER) result.is_float = is_float(dtype);
    builder.add(std::move(result), is_table);
}

bool Parser::is_float(py::handle dtype) {
    std::string name = py::str(dtype);
    require(name == "torch.float64" || name == "torch.int64", "a number is an int64 or a float64");
    return name == "torch.float64";
}

int Parser::view(py::handle item) {
    View result{};
    sized_number(item, "offset", &result.offset, &result.offset_size);
    result.buffer = buffer_number(item, "buffer");
    require(layout_parse(field(item, "shape"), field(item, "strides"), field(item, "dtype"), nullptr,
                         &result.layout),
            "a view has a shape, strides and a dtype");
    return builder.add(std::move(result));
}

Output Parser::output(py::handle item) {
    Output result{};
    if (is_view(item)) {
        result.kind = Output::VIEW;
        result.number = view(item);
    } else if (PyLong_Check(item.ptr())) {
        result.kind = Output::INPUT;
        result.number = buffer_number(item);
    } else if (PyTuple_Check(item.ptr()) && PyTuple_GET_SIZE(item.ptr()) == 2) {
        result = output(PyTuple_GET_ITEM(item.ptr(), 0));
        require(result.kind == Output::VIEW, "only writes to views are counted");
        result.writes = (int)number(PyTuple_GET_ITEM(item.ptr(), 1));
    } else {
        require(PyTuple_Check(item.ptr()) && PyTuple_GET_SIZE(item.ptr()) == 1,
                "an output is a view, the number of an input, or a 1-tuple of a constant");
        int64_t value;
        result.constant = PyTuple_GET_ITEM(item.ptr(), 0);
        result.kind = is_size(result.constant) ? Output::SIZE : Output::CONSTANT;
        if (result.kind == Output::SIZE)
            require(read_int(result.constant, &value, &result.number), "an output is a size that there is");
    }
    return result;
}

void Parser::outputs() {
    py::object views = spec.attr("views"), recorded = spec.attr("recorded_views");
    py::dict repeated = spec.attr("repeated"), lazy = spec.attr("lazy");
    each("outputs", [&](py::handle item) {
        Output result = output(item);
        py::int_ at(program->outputs.size());
        if (result.kind == Output::VIEW) {
            result.is_view = views.contains(at);
            result.recorded = recorded.contains(at);
            if (lazy.contains(at)) result.lazy = py::object(lazy[at]).ptr();
            if (repeated.contains(at)) {
                result.first = (int)number(py::object(repeated[at]));
                require(result.first >= 0, "an output repeats one that does not come before it");
            }
        }
        builder.add(result);
    });
}

std::unique_ptr<Program> program_parse(PyObject *spec) try {
    auto program = std::make_unique<Program>();
    if (python_torch() == nullptr) return nullptr;
    return Parser(spec, program.get()).parse() ? std::move(program) : nullptr;
} catch (py::error_already_set &error) {
    error.restore();
    return nullptr;
} catch (const py::builtin_exception &error) {
    error.set_error();
    return nullptr;
} catch (const std::invalid_argument &error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, error.what()); // else it says more
    return nullptr;
} catch (const std::bad_alloc &) {
    PyErr_NoMemory();
    return nullptr;
}

} // namespace frameloom
