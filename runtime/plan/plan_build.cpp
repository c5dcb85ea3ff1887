// Parses a plan as a whole, its buffers, views and outputs.
#include <map>
#include "plan_build.h"

#include <algorithm>
#include <new>

namespace frameloom {

bool Parser::parse() {
    Ref module(PyImport_ImportModule("frameloom.runtime.spec"));
    if (!module) return false;
    Ref view(PyObject_GetAttrString(module.object, "ViewSpec")),
        input(PyObject_GetAttrString(module.object, "InputSpec"));
    Ref kernel(PyObject_GetAttrString(module.object, "KernelCall")),
        launch(PyObject_GetAttrString(module.object, "LaunchCall")),
        list(PyObject_GetAttrString(module.object, "ListCall")),
        check(PyObject_GetAttrString(module.object, "CheckCall")),
        draw(PyObject_GetAttrString(module.object, "DrawCall")),
        read(PyObject_GetAttrString(module.object, "ReadCall")),
        number_spec(PyObject_GetAttrString(module.object, "NumberSpec"));
    if (!view || !input || !kernel || !launch || !list || !check || !draw || !read || !number_spec)
        return false;
    number_type = number_spec.object;
    view_type = view.object;
    input_type = input.object;
    long long inputs;
    if (!number(spec, "n_inputs", &inputs) ||
        !sized_number(spec, "arena_bytes", &program->arena_bytes, &program->arena_bytes_size))
        return false;
    program->input_count = (int)inputs;
    PyObject *owned = field(spec, "owned");
    if (owned == nullptr) return false;
    program->owned = owned == Py_True;
    program->otherwise = field(spec, "otherwise");
    program->refused = field(spec, "refused");
    PyObject *steady = field(spec, "steady");
    if (program->otherwise == nullptr || program->refused == nullptr || steady == nullptr) return false;
    if (steady != Py_None) program->steady = steady;
    PyObject *restart = field(spec, "restart"), *remember = field(spec, "remember");
    long long restarting = 0; // how many of the first steps
    if (!restart || !remember || !number(spec, "restarting", &restarting)) return false;
    if (restart != Py_None) program->restart = restart;
    if (remember != Py_None) program->remember = remember;
    return each("buffers", [&](PyObject *item) { return buffer(item); }) && inputs_come_first() &&
           each("numbers", [&](PyObject *item) { return number_step(item); }) &&
           each("sizes", [&](PyObject *item) { return size(item); }) && can_refuse() &&
           size_numbers(field(spec, "keys"), &program->keys) &&
           each("steps",
                [&](PyObject *item) {
                    PyObject *type = (PyObject *)Py_TYPE(item);
                    bool good = type == kernel.object   ? kernel_step(item)
                                : type == launch.object ? launch_step(item)
                                : type == list.object   ? list_step(item)
                                : type == check.object  ? check_step(item)
                                : type == draw.object   ? draw_step(item)
                                : type == read.object   ? read_step(item)
                                                        : extern_step(item);
                    if (good) program->steps.back().restarts = restarting-- > 0;
                    return good;
                }) &&
           each("outputs", [&](PyObject *item) { return output(item); }) && share_bases() &&
           program_check(program);
}

// Returns the number of the arena on the device of `layout`; makes it for the first buffer.
int Parser::arena_for(const Layout &layout) {
    for (size_t i = 0; i < program->arenas.size(); i++)
        if (!program->arenas[i].is_table && program->arenas[i].device_type == layout.device_type &&
            program->arenas[i].device_index == layout.device_index)
            return (int)i;
    return new_arena(layout, false);
}

int Parser::new_arena(const Layout &layout, bool is_table) {
    program->arenas.push_back(
        {layout.device_type, layout.device_index, layout.device_object, 0, false, is_table});
    return (int)program->arenas.size() - 1;
}

bool Parser::buffer(PyObject *item) {
    static const char *const kinds[] = {"input",  "output",   "arena",  "transient",
                                        "extern", "constant", "number", "table"};
    Buffer result{};
    PyObject *kind = field(item, "kind"), *shape = field(item, "shape"), *strides = field(item, "strides");
    PyObject *dtype = field(item, "dtype"), *device = field(item, "device");
    if (!kind || !shape || !strides || !dtype || !device) return false;
    int at = 0;
    while (at < 8 && PyUnicode_CompareWithASCIIString(kind, kinds[at]) != 0) at++;
    if (at == 8)
        return wrong("a buffer is an input, output, arena, transient, extern, constant, number or table");
    bool is_table = at == 7;
    result.kind = is_table ? Buffer::ARENA : (Buffer::Kind)at;
    result.constant = field(item, "constant");
    if (!result.constant || !sized_number(item, "offset", &result.offset, &result.offset_size)) return false;
    /* An input that is only passed through has neither dtype nor device. */
    bool opaque = dtype == Py_None;
    if (!opaque && !layout_parse(shape, strides, dtype, device, &result.layout)) return false;
    if (opaque && result.kind != Buffer::INPUT) return wrong("only an input can do without a dtype");
    Ref type(opaque ? nullptr : PyObject_GetAttrString(device, "type"));
    const char *name = type ? PyUnicode_AsUTF8(type.object) : nullptr;
    if (!opaque && name == nullptr) return false;
    result.device = name ? name : "";
    if (result.kind == Buffer::NUMBER && !number_dtype(dtype, &result.is_float)) return false;
    int index = (int)program->buffers.size();
    if (result.kind == Buffer::ARENA) {
        int64_t bytes;
        bool sized = result.is_sized() || program->arena_bytes_size >= 0;
        if (is_table && result.is_sized()) return wrong("a table has one size in all calls");
        if (!result.layout.span(&bytes) || result.offset < 0 ||
            (bytes && !is_table && !sized && result.offset + bytes > program->arena_bytes))
            return wrong("a buffer lies outside of the plan's scratch memory");
        program->scratch.push_back(index);
        result.arena = is_table ? new_arena(result.layout, true) : arena_for(result.layout);
        Arena &arena = program->arenas[result.arena];
        arena.bytes = std::max(arena.bytes, result.offset + bytes);
        arena.on_gpu = is_table || result.device == "cuda";
        arena.is_sized |= sized && !is_table;
    }
    program->buffers.push_back(std::move(result));
    return true;
}

bool Parser::number_dtype(PyObject *dtype, bool *is_float) {
    Ref text(PyObject_Str(dtype));
    if (!text) return false;
    *is_float = PyUnicode_CompareWithASCIIString(text.object, "torch.float64") == 0;
    return *is_float || PyUnicode_CompareWithASCIIString(text.object, "torch.int64") == 0 ||
           wrong("a number is an int64 or a float64");
}

bool Parser::inputs_come_first() const {
    if (program->input_count < 0 || program->input_count > (int)program->buffers.size())
        return wrong("a plan's inputs are its first buffers");
    for (size_t i = 0; i < program->buffers.size(); i++) {
        bool first = (int)i < program->input_count;
        if (first && program->buffers[i].kind == Buffer::NUMBER)
            program->number_inputs.push_back((int)i);
        else if ((program->buffers[i].kind == Buffer::INPUT) != first)
            return wrong("a plan's inputs are its first buffers");
    }
    return true;
}

// Returns the number of the view, which equal views share; -1 with an exception set.
int Parser::view(PyObject *item) {
    View result{};
    PyObject *buffer = field(item, "buffer"), *shape = field(item, "shape"),
             *strides = field(item, "strides"), *dtype = field(item, "dtype");
    if (!buffer || !shape || !strides || !dtype ||
        !sized_number(item, "offset", &result.offset, &result.offset_size) ||
        !buffer_number(buffer, &result.buffer) ||
        !layout_parse(shape, strides, dtype, nullptr, &result.layout))
        return -1;
    const Buffer &base = program->buffers[result.buffer];
    result.whole = result.offset == 0 && result.offset_size < 0 && result.layout.same_form(base.layout);
    for (int i : views_of[result.buffer]) {
        const View &other = program->views[i];
        if (other.offset == result.offset && other.offset_size == result.offset_size &&
            other.layout.same_form(result.layout))
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

bool Parser::output(PyObject *item) {
    Output result{};
    if (is_view(item)) {
        result.kind = Output::VIEW;
        result.number = view(item);
        if (result.number < 0) return false;
        Buffer::Kind kind = program->buffers[program->views[result.number].buffer].kind;
        if (kind == Buffer::ARENA || kind == Buffer::TRANSIENT)
            return wrong("scratch memory is overwritten by the next call: it cannot be returned");
    } else if (PyLong_Check(item)) {
        result.kind = Output::INPUT;
        if (!buffer_number(item, &result.number) || result.number >= program->input_count)
            return wrong("a plan returns an input that it does not have");
    } else if (PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 1) {
        int64_t value;
        result.constant = PyTuple_GET_ITEM(item, 0);
        result.kind = is_size(result.constant) ? Output::SIZE : Output::CONSTANT;
        if (result.kind == Output::SIZE && !read_int(result.constant, &value, &result.number)) return false;
    } else {
        return wrong("an output is a view, the number of an input, or a 1-tuple of a constant");
    }
    program->outputs.push_back(result);
    return true;
}

// Returns, of outputs over one buffer, the one of which the others are views: the one that is the
// whole buffer, or the only one that is not a view for the program, whose shape may differ from the
// buffer's.
const Output *Parser::base_among(const std::vector<Output *> &outputs) {
    const Output *alone = nullptr;
    size_t count = 0;
    for (const Output *output : outputs) {
        if (output->is_view || output->lazy) continue;
        if (program->views[output->number].whole) return output;
        alone = output;
        count++;
    }
    return count == 1 && outputs.size() > 1 ? alone : nullptr;
}

// Makes outputs that share memory views of one tensor, as in eager: of one that is returned, too,
// or else of one that is not returned.
bool Parser::share_bases() {
    PyObject *told = field(spec, "views"), *recorded = field(spec, "recorded_views"),
             *repeated = field(spec, "repeated"), *lazy = field(spec, "lazy");
    if (told == nullptr || recorded == nullptr || repeated == nullptr || lazy == nullptr) return false;
    std::map<int, std::vector<Output *>> sharing;
    for (size_t i = 0; i < program->outputs.size(); i++) {
        Output &output = program->outputs[i];
        if (output.kind != Output::VIEW) continue;
        if (PyObject *number = PyLong_FromSize_t(i)) {
            output.is_view = PySet_Contains(told, number) > 0;
            output.recorded = PySet_Contains(recorded, number) > 0;
            output.lazy = PyDict_GetItemWithError(lazy, number);
            if (PyObject *first = PyDict_GetItemWithError(repeated, number)) {
                output.first = (int)PyLong_AsLong(first);
                if (output.first < 0 || output.first >= (int)i)
                    wrong("an output repeats one that does not come before it");
            }
            Py_DECREF(number);
        }
        if (PyErr_Occurred()) return false;
        if (output.first < 0 && program->views[output.number].buffer >= program->input_count)
            sharing[program->views[output.number].buffer].push_back(&output);
    }
    for (auto &[buffer, outputs] : sharing) {
        if (outputs.size() < 2 && !outputs[0]->is_view) continue;
        const Output *seen = base_among(outputs);
        int base = seen ? seen->number : whole(buffer);
        for (Output *output : outputs) output->base = output == seen ? -1 : base;
    }
    return true;
}

std::unique_ptr<Program> program_parse(PyObject *spec) try {
    auto program = std::make_unique<Program>();
    if (torch_api() == nullptr || !Parser(spec, program.get()).parse()) return nullptr;
    return program;
} catch (const std::bad_alloc &) {
    PyErr_NoMemory();
    return nullptr;
}

} // namespace frameloom
