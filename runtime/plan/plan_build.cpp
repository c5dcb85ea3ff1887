// Parses a plan as a whole, its buffers, views and outputs.
#include "plan_build.h"

#include <algorithm>
#include <map>
#include <new>

namespace frameloom {

Parser::Parser(py::handle spec, Program *program) : spec(spec), program(program) {
    py::module_ types = py::module_::import("frameloom.runtime.spec");
    view_type = types.attr("ViewSpec");
    input_type = types.attr("InputSpec");
    number_type = types.attr("NumberSpec");
    py::object uint8 = py::module_::import("torch").attr("uint8");
    py::tuple one = py::make_tuple(1);
    require(layout_parse(one.ptr(), one.ptr(), uint8.ptr(), nullptr, &byte_layout), "bytes have a layout");
    byte_layout.shape_object = byte_layout.strides_object = nullptr; // `one` does not live as long
}

void Parser::parse() {
    options();
    each("buffers", [&](py::handle item) { buffer(item); });
    inputs_come_first();
    each("numbers", [&](py::handle item) { number_step(item); });
    each("sizes", [&](py::handle item) { size(item); });
    can_refuse();
    program->keys = size_numbers(spec, "keys");
    long long restarting = number(spec, "restarting"); // how many of the first steps
    each("steps", [&](py::handle item) {
        step(item);
        program->steps.back().restarts = restarting-- > 0;
    });
    each("outputs", [&](py::handle item) { output(item); });
    share_bases();
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

int Parser::buffer_number(py::handle object) const {
    long long value = PyLong_Check(object.ptr()) ? number(object) : -1;
    require(value >= 0 && value < (long long)program->buffers.size(),
            "a plan names a buffer that it does not have");
    return (int)value;
}

std::vector<int> Parser::buffer_numbers(const py::tuple &numbers) const {
    std::vector<int> result;
    for (py::handle number : numbers) result.push_back(buffer_number(number));
    return result;
}

int Parser::arena_for(const Layout &layout) {
    for (size_t i = 0; i < program->arenas.size(); i++)
        if (!program->arenas[i].is_table && program->arenas[i].layout.device_type == layout.device_type &&
            program->arenas[i].layout.device_index == layout.device_index)
            return (int)i;
    return new_arena(layout, false);
}

int Parser::new_arena(const Layout &layout, bool is_table) {
    Layout bytes = byte_layout;
    bytes.device_type = layout.device_type;
    bytes.device_index = layout.device_index;
    bytes.device_object = layout.device_object;
    if (layout.device_type < 0) bytes.dtype = -1; // made through Python
    program->arenas.push_back({std::move(bytes), 0, false, is_table});
    return (int)program->arenas.size() - 1;
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
    if (dtype == Py_None) {
        require(result.kind == Buffer::INPUT, "only an input can do without a dtype"); // it is passed through
    } else {
        require(layout_parse(field(item, "shape"), field(item, "strides"), dtype, device, &result.layout),
                "a buffer has a shape, strides, a dtype and a device");
        result.device = py::handle(device).attr("type").cast<std::string>();
    }
    if (result.kind == Buffer::NUMBER) result.is_float = is_float(dtype);
    if (result.kind == Buffer::ARENA) place_in_arena(&result, is_table);
    program->buffers.push_back(std::move(result));
}

void Parser::place_in_arena(Buffer *buffer, bool is_table) {
    int64_t bytes;
    bool sized = buffer->is_sized() || program->arena_bytes_size >= 0;
    require(!is_table || !buffer->is_sized(), "a table has one size in all calls");
    bool fits = buffer->layout.span(&bytes) && buffer->offset >= 0;
    fits = fits && (!bytes || is_table || sized || buffer->offset + bytes <= program->arena_bytes);
    require(fits, "a buffer lies outside of the plan's scratch memory");
    program->scratch.push_back((int)program->buffers.size());
    buffer->arena = is_table ? new_arena(buffer->layout, true) : arena_for(buffer->layout);
    Arena &arena = program->arenas[buffer->arena];
    arena.bytes = std::max(arena.bytes, buffer->offset + bytes);
    arena.on_gpu = is_table || buffer->device == "cuda";
    arena.is_sized |= sized && !is_table;
}

bool Parser::is_float(py::handle dtype) {
    std::string name = py::str(dtype);
    require(name == "torch.float64" || name == "torch.int64", "a number is an int64 or a float64");
    return name == "torch.float64";
}

void Parser::inputs_come_first() const {
    constexpr const char *RULE = "a plan's inputs are its first buffers";
    require(program->input_count >= 0 && program->input_count <= (int)program->buffers.size(), RULE);
    for (size_t i = 0; i < program->buffers.size(); i++) {
        bool first = (int)i < program->input_count;
        if (first && program->buffers[i].kind == Buffer::NUMBER)
            program->number_inputs.push_back((int)i);
        else
            require((program->buffers[i].kind == Buffer::INPUT) == first, RULE);
    }
}

int Parser::view(py::handle item) {
    View result{};
    sized_number(item, "offset", &result.offset, &result.offset_size);
    result.buffer = buffer_number(item, "buffer");
    require(layout_parse(field(item, "shape"), field(item, "strides"), field(item, "dtype"), nullptr,
                         &result.layout),
            "a view has a shape, strides and a dtype");
    const Buffer &base = program->buffers[result.buffer];
    result.whole = result.offset == 0 && result.offset_size < 0 && result.layout.same_layout(base.layout);
    for (int i : views_of[result.buffer]) {
        const View &other = program->views[i];
        if (other.offset == result.offset && other.offset_size == result.offset_size &&
            other.layout.same_layout(result.layout))
            return i;
    }
    return add_view(std::move(result));
}

int Parser::add_view(View &&view) {
    int number = (int)program->views.size();
    views_of[view.buffer].push_back(number);
    program->views.push_back(std::move(view));
    return number;
}

int Parser::whole(int buffer) {
    for (int i : views_of[buffer])
        if (program->views[i].whole) return i;
    return add_view(View{buffer, program->buffers[buffer].layout, 0, true});
}

void Parser::output(py::handle item) {
    Output result{};
    if (is_view(item)) {
        result.kind = Output::VIEW;
        result.number = view(item);
        Buffer::Kind kind = program->buffers[program->views[result.number].buffer].kind;
        require(kind != Buffer::ARENA && kind != Buffer::TRANSIENT,
                "scratch memory is overwritten by the next call: it cannot be returned");
    } else if (PyLong_Check(item.ptr())) {
        result.kind = Output::INPUT;
        result.number = buffer_number(item);
        require(result.number < program->input_count, "a plan returns an input that it does not have");
    } else {
        require(PyTuple_Check(item.ptr()) && PyTuple_GET_SIZE(item.ptr()) == 1,
                "an output is a view, the number of an input, or a 1-tuple of a constant");
        int64_t value;
        result.constant = PyTuple_GET_ITEM(item.ptr(), 0);
        result.kind = is_size(result.constant) ? Output::SIZE : Output::CONSTANT;
        if (result.kind == Output::SIZE)
            require(read_int(result.constant, &value, &result.number), "an output is a size that there is");
    }
    program->outputs.push_back(result);
}

// Returns, of outputs over one buffer, the one of which the others are views: the one that is the
// whole buffer, or the only one that is not a view for the program, whose shape may differ from the
// buffer's.
const Output *Parser::base_among(const Program &program, const std::vector<Output *> &outputs) {
    const Output *alone = nullptr;
    size_t count = 0;
    for (const Output *output : outputs) {
        if (output->is_view || output->lazy) continue;
        if (program.views[output->number].whole) return output;
        alone = output;
        count++;
    }
    return count == 1 && outputs.size() > 1 ? alone : nullptr;
}

// Makes outputs that share memory views of one tensor, as in eager: of one that is returned, too,
// or else of one that is not returned.
void Parser::share_bases() {
    py::object views = spec.attr("views"), recorded = spec.attr("recorded_views");
    py::dict repeated = spec.attr("repeated"), lazy = spec.attr("lazy");
    std::map<int, std::vector<Output *>> sharing;
    for (size_t i = 0; i < program->outputs.size(); i++) {
        Output &output = program->outputs[i];
        if (output.kind != Output::VIEW) continue;
        py::int_ at(i);
        output.is_view = views.contains(at);
        output.recorded = recorded.contains(at);
        if (lazy.contains(at)) output.lazy = py::object(lazy[at]).ptr();
        if (repeated.contains(at)) {
            output.first = (int)number(py::object(repeated[at]));
            require(output.first >= 0 && output.first < (int)i,
                    "an output repeats one that does not come before it");
        }
        if (output.first < 0 && program->views[output.number].buffer >= program->input_count)
            sharing[program->views[output.number].buffer].push_back(&output);
    }
    for (auto &[buffer, outputs] : sharing) {
        if (outputs.size() < 2 && !outputs[0]->is_view) continue;
        const Output *seen = base_among(*program, outputs);
        int base = seen ? seen->number : whole(buffer);
        for (Output *output : outputs) output->base = output == seen ? -1 : base;
    }
}

std::unique_ptr<Program> program_parse(PyObject *spec) try {
    auto program = std::make_unique<Program>();
    if (python_torch() == nullptr) return nullptr;
    Parser(spec, program.get()).parse();
    return program_check(program.get()) ? std::move(program) : nullptr;
} catch (py::error_already_set &error) {
    error.restore();
    return nullptr;
} catch (const py::builtin_exception &error) {
    error.set_error();
    return nullptr;
} catch (const std::bad_alloc &) {
    PyErr_NoMemory();
    return nullptr;
}

} // namespace frameloom
