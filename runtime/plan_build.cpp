// Parses a PlanSpec (runtime/spec.py) into a Program: numbers in range, every object of the kind that it has
// to be.  What concerns the program as a whole is in plan_check.cpp.
#include "plan.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace frameloom {

namespace {

// A strong reference that lets go by itself.
struct Ref {
    PyObject *object;
    explicit Ref(PyObject *owned) : object(owned) {}
    Ref(const Ref &) = delete;
    ~Ref() { Py_XDECREF(object); }
    explicit operator bool() const { return object != nullptr; }
};

class Parser {
  public:
    Parser(PyObject *spec, Program *program) : spec(spec), program(program) {}

    bool parse() {
        Ref module(PyImport_ImportModule("frameloom.runtime.spec"));
        if (!module) return false;
        Ref view(PyObject_GetAttrString(module.object, "ViewSpec")),
            input(PyObject_GetAttrString(module.object, "InputSpec"));
        Ref kernel(PyObject_GetAttrString(module.object, "KernelCall")),
            launch(PyObject_GetAttrString(module.object, "LaunchCall")),
            list(PyObject_GetAttrString(module.object, "ListCall")),
            check(PyObject_GetAttrString(module.object, "CheckCall")),
            draw(PyObject_GetAttrString(module.object, "DrawCall")),
            number_spec(PyObject_GetAttrString(module.object, "NumberSpec"));
        if (!view || !input || !kernel || !launch || !list || !check || !draw || !number_spec) return false;
        number_type = number_spec.object;
        view_type = view.object;
        input_type = input.object;
        long long inputs;
        if (!number(spec, "n_inputs", &inputs) ||
            !sized_number(spec, "arena_bytes", &program->arena_bytes, &program->arena_bytes_size))
            return false;
        program->input_count = (int)inputs;
        PyObject *owned = field(spec, "owned");
        program->owned = owned == Py_True;
        program->otherwise = field(spec, "otherwise");
        program->refused = field(spec, "refused");
        if (program->otherwise == nullptr || program->refused == nullptr) return false;
        return each("buffers", [&](PyObject *item) { return buffer(item); }) && inputs_come_first() &&
               each("numbers", [&](PyObject *item) { return number_step(item); }) &&
               each("sizes", [&](PyObject *item) { return size(item); }) && can_refuse() &&
               each("steps",
                    [&](PyObject *item) {
                        PyObject *type = (PyObject *)Py_TYPE(item);
                        return type == kernel.object   ? kernel_step(item)
                               : type == launch.object ? launch_step(item)
                               : type == list.object   ? list_step(item)
                               : type == check.object  ? check_step(item)
                               : type == draw.object   ? draw_step(item)
                                                       : extern_step(item);
                    }) &&
               each("outputs", [&](PyObject *item) { return output(item); }) && program_check(program);
    }

  private:
    PyObject *spec;
    Program *program;
    PyObject *view_type = nullptr, *input_type = nullptr, *number_type = nullptr;

    static bool wrong(const char *what) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, what);
        return false;
    }

    // A field of one of spec.py's dataclasses, borrowed: the object keeps it.
    static PyObject *field(PyObject *object, const char *name) {
        PyObject *value = PyObject_GetAttrString(object, name);
        Py_XDECREF(value);
        return value;
    }

    static bool number(PyObject *object, const char *name, long long *result) {
        PyObject *value = field(object, name);
        *result = value ? PyLong_AsLongLong(value) : -1;
        return value && !PyErr_Occurred();
    }

    static bool sized_number(PyObject *object, const char *name, int64_t *result, int *size) {
        PyObject *value = field(object, name);
        return value && read_int(value, result, size);
    }

    template <typename Take> bool each(const char *name, Take take) {
        PyObject *items = field(spec, name);
        if (items == nullptr || !PyTuple_Check(items)) return wrong("the fields of a plan are tuples");
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++)
            if (!take(PyTuple_GET_ITEM(items, i))) return false;
        return true;
    }

    bool buffer_number(PyObject *object, int *result) const {
        long long value = PyLong_Check(object) ? PyLong_AsLongLong(object) : -1;
        if (value < 0 || value >= (long long)program->buffers.size())
            return wrong("a plan names a buffer that it does not have");
        *result = (int)value;
        return true;
    }

    bool buffer_numbers(PyObject *tuple, std::vector<int> *result) const {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
            int number;
            if (!buffer_number(PyTuple_GET_ITEM(tuple, i), &number)) return false;
            result->push_back(number);
        }
        return true;
    }

    // Number of the arena on the device of `layout`, made at its first buffer.
    int arena_for(const Layout &layout) {
        for (size_t i = 0; i < program->arenas.size(); i++)
            if (!program->arenas[i].is_table && program->arenas[i].device_type == layout.device_type &&
                program->arenas[i].device_index == layout.device_index)
                return (int)i;
        return new_arena(layout, false);
    }

    int new_arena(const Layout &layout, bool is_table) {
        program->arenas.push_back(
            {layout.device_type, layout.device_index, layout.device_object, 0, false, is_table});
        return (int)program->arenas.size() - 1;
    }

    bool buffer(PyObject *item) {
        static const char *const kinds[] = {"input",  "output",   "arena",  "transient",
                                            "extern", "constant", "number", "table"};
        Buffer result{};
        PyObject *kind = field(item, "kind"), *shape = field(item, "shape"),
                 *strides = field(item, "strides");
        PyObject *dtype = field(item, "dtype"), *device = field(item, "device");
        if (!kind || !shape || !strides || !dtype || !device) return false;
        int at = 0;
        while (at < 8 && PyUnicode_CompareWithASCIIString(kind, kinds[at]) != 0) at++;
        if (at == 8)
            return wrong("a buffer is an input, output, arena, transient, extern, constant, number or table");
        bool is_table = at == 7;
        result.kind = is_table ? Buffer::ARENA : (Buffer::Kind)at;
        result.constant = field(item, "constant");
        if (!result.constant || !sized_number(item, "offset", &result.offset, &result.offset_size))
            return false;
        /* An input that is only handed through has neither dtype nor device. */
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

    static bool number_dtype(PyObject *dtype, bool *is_float) {
        Ref text(PyObject_Str(dtype));
        if (!text) return false;
        *is_float = PyUnicode_CompareWithASCIIString(text.object, "torch.float64") == 0;
        return *is_float || PyUnicode_CompareWithASCIIString(text.object, "torch.int64") == 0 ||
               wrong("a number is an int64 or a float64");
    }

    bool inputs_come_first() const {
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

    // Number of the view; equal views share one.  -1 with an exception set.
    int view(PyObject *item) {
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
        for (size_t i = 0; i < program->views.size(); i++) {
            const View &other = program->views[i];
            if (other.buffer == result.buffer && other.offset == result.offset &&
                other.offset_size == result.offset_size && other.layout.same_form(result.layout))
                return (int)i;
        }
        program->views.push_back(std::move(result));
        return (int)program->views.size() - 1;
    }

    bool is_view(PyObject *object) const { return Py_TYPE(object) == (PyTypeObject *)view_type; }
    bool is_number(PyObject *object) const { return Py_TYPE(object) == (PyTypeObject *)number_type; }
    bool is_input(PyObject *object) const { return Py_TYPE(object) == (PyTypeObject *)input_type; }

    bool kernel_step(PyObject *item) {
        Kernel kernel{};
        long long address;
        PyObject *buffers = field(item, "buffers"), *sizes = field(item, "sizes");
        if (!number(item, "address", &address) ||
            !sized_number(item, "bytes_moved", &kernel.bytes_moved, &kernel.bytes_size) || !buffers || !sizes)
            return false;
        if (address == 0 || !PyTuple_Check(buffers) || !PyTuple_Check(sizes))
            return wrong("a kernel has an address and tuples of buffers and sizes");
        kernel.function = reinterpret_cast<void (*)(void *const *, const int64_t *)>((uintptr_t)address);
        kernel.release_gil = kernel.bytes_moved >= GIL_BYTES;
        if (!buffer_numbers(buffers, &kernel.buffers)) return false;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sizes); i++) {
            int size;
            if (!size_number(PyTuple_GET_ITEM(sizes, i), &size)) return false;
            kernel.sizes.push_back(size);
        }
        kernel.values.resize(kernel.sizes.size());
        program->widest_kernel = std::max(program->widest_kernel, (int)kernel.buffers.size());
        program->steps.push_back({Step::KERNEL, (int)program->kernels.size(), {}, {}, {}, {}, {}});
        program->kernels.push_back(std::move(kernel));
        return true;
    }

    // `sizes` are those that stand in the grid, -1: none; with a null, none may.
    static bool grid_of(PyObject *grid, int64_t *extents, int *sizes) {
        if (!PyTuple_Check(grid) || PyTuple_GET_SIZE(grid) != 3) return wrong("a grid has three directions");
        for (int i = 0; i < 3; i++) {
            int size;
            if (!read_int(PyTuple_GET_ITEM(grid, i), &extents[i], &size)) return false;
            bool sized = size >= 0 && sizes;
            if (!sized && (extents[i] <= 0 || extents[i] > most_blocks(i)))
                return wrong(
                    "a grid has 1 to 2147483647 blocks in the first and 1 to 65535 in other directions");
            if (sizes) sizes[i] = size;
        }
        return true;
    }

    // The sizes that a kernel on a GPU takes, each as 32 or 64 bits.
    bool launch_sizes(PyObject *sizes, Launch *launch) const {
        if (!PyTuple_Check(sizes)) return wrong("the sizes of a launch are a tuple");
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sizes); i++) {
            PyObject *item = PyTuple_GET_ITEM(sizes, i);
            int size;
            if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2 ||
                !PyUnicode_Check(PyTuple_GET_ITEM(item, 1)))
                return wrong("a launch takes a size as i32 or i64");
            PyObject *type = PyTuple_GET_ITEM(item, 1);
            bool narrow = PyUnicode_CompareWithASCIIString(type, "i32") == 0;
            if (!narrow && PyUnicode_CompareWithASCIIString(type, "i64") != 0)
                return wrong("a launch takes a size as i32 or i64");
            if (!size_number(PyTuple_GET_ITEM(item, 0), &size)) return false;
            launch->sizes.emplace_back(size, narrow);
        }
        launch->values.resize(launch->sizes.size());
        return true;
    }

    bool launch_step(PyObject *item) {
        Launch launch{};
        long long function;
        PyObject *buffers = field(item, "buffers"), *grid = field(item, "grid"),
                 *sizes = field(item, "sizes");
        launch.name = field(item, "name");
        launch.unaligned = field(item, "unaligned");
        if (!number(item, "function", &function) || !buffers || !grid || !sizes || !launch.name ||
            !launch.unaligned)
            return false;
        if (function == 0 || !PyTuple_Check(buffers) || !PyUnicode_Check(launch.name))
            return wrong("a launch has a loaded function, a tuple of buffers and a name");
        launch.function = reinterpret_cast<const GpuFunction *>((uintptr_t)function);
        if (!buffer_numbers(buffers, &launch.buffers)) return false;
        if (!grid_of(grid, launch.extents, launch.grid_sizes) || !launch_sizes(sizes, &launch)) return false;
        for (int i = 0; i < 3; i++) launch.grid[i] = (unsigned)launch.extents[i];
        /* Scratch memory and fresh tensors are aligned for any access. */
        for (int number : launch.buffers) {
            Buffer::Kind kind = program->buffers[number].kind;
            if (kind == Buffer::INPUT || kind == Buffer::EXTERN || kind == Buffer::CONSTANT)
                launch.doubtful.push_back(number);
        }
        int width = (int)(launch.buffers.size() + launch.sizes.size()) + launch.function->extra;
        program->widest_launch = std::max(program->widest_launch, width);
        program->steps.push_back({Step::LAUNCH, (int)program->launches.size(), {}, {}, {}, {}, {}});
        program->launches.push_back(std::move(launch));
        return true;
    }

    bool list_step(PyObject *item) {
        List list{};
        long long function, columns;
        PyObject *places = field(item, "places"), *grid = field(item, "grid");
        PyObject *table = field(item, "table"), *fixed = field(item, "fixed"),
                 *blocks = field(item, "blocks");
        list.name = field(item, "name");
        if (!number(item, "function", &function) || !number(item, "columns", &columns) || !places || !grid ||
            !table || !fixed || !blocks || !list.name || !buffer_number(table, &list.table) ||
            !buffer_number(fixed, &list.fixed) || !buffer_number(blocks, &list.blocks))
            return false;
        if (function == 0 || !PyTuple_Check(places) || !PyUnicode_Check(list.name))
            return wrong("a list has a loaded function, a tuple of places and a name");
        list.function = reinterpret_cast<const GpuFunction *>((uintptr_t)function);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); i++) {
            PyObject *place = PyTuple_GET_ITEM(places, i);
            List::Place made{};
            if (!PyTuple_Check(place) || PyTuple_GET_SIZE(place) != 2 ||
                !buffer_number(PyTuple_GET_ITEM(place, 0), &made.buffer))
                return wrong("a place in a list is a buffer and a number of bytes");
            made.bytes = PyLong_AsLongLong(PyTuple_GET_ITEM(place, 1));
            if (PyErr_Occurred()) return false;
            list.places.push_back(made);
        }
        list.columns = (size_t)columns;
        const Buffer &room = program->buffers[list.table];
        int64_t words = (int64_t)list.places.size();
        if (columns <= 0 || words == 0 || words % columns || room.kind != Buffer::ARENA ||
            !program->arenas[room.arena].is_table || room.layout.elements() != words)
            return wrong(
                "a list has rows of as many places each as it has columns, and a table of that size");
        int64_t extents[3];
        if (!grid_of(grid, extents, nullptr)) return false;
        for (int i = 0; i < 3; i++) list.grid[i] = (unsigned)extents[i];
        program->widest_launch = std::max(program->widest_launch, 3 + list.function->extra);
        program->steps.push_back({Step::LIST, (int)program->lists.size(), {}, {}, {}, {}, {}});
        program->lists.push_back(std::move(list));
        return true;
    }

    bool number_step(PyObject *item) {
        NumberStep step{};
        PyObject *op = field(item, "op"), *result = field(item, "result"),
                 *operands = field(item, "operands"), *constants = field(item, "constants");
        const char *name = op ? PyUnicode_AsUTF8(op) : nullptr;
        if (!name || !result || !operands || !constants || !buffer_number(result, &step.result)) return false;
        if (!number_op(name, &step) || program->buffers[step.result].kind != Buffer::NUMBER ||
            !PyTuple_Check(operands) || PyTuple_GET_SIZE(operands) > 2 || !PyTuple_Check(constants))
            return wrong("a number is computed by a known op of one or two operands");
        bool is_read = step.op >= NumberStep::READ_F32;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operands); i++) {
            long long at = PyLong_AsLongLong(PyTuple_GET_ITEM(operands, i));
            if (at == -1 && PyErr_Occurred()) return false;
            if (at < 0) {
                void *bits;
                if (~at >= PyTuple_GET_SIZE(constants) ||
                    !number_bits(PyTuple_GET_ITEM(constants, (Py_ssize_t)~at), !is_read && step.of_floats,
                                 &bits))
                    return wrong("a constant of another type than the number computed with it");
                step.operands[i] = -1;
                step.constants[i] = (uint64_t)reinterpret_cast<uintptr_t>(bits);
                continue;
            }
            if (!buffer_number(PyTuple_GET_ITEM(operands, i), &step.operands[i])) return false;
            const Buffer &given = program->buffers[step.operands[i]];
            bool fits = is_read ? given.kind == Buffer::INPUT && given.device == "cpu"
                                : given.kind == Buffer::NUMBER && given.is_float == step.of_floats;
            if (!fits) return wrong("a number is computed from numbers of one type, or read from an input");
        }
        step.count = (size_t)PyTuple_GET_SIZE(operands);
        program->numbers.push_back(step);
        return true;
    }

    bool can_refuse() const {
        bool needed = !program->numbers.empty() || !program->number_inputs.empty() || program->sizes.any();
        return !needed || PyExceptionClass_Check(program->refused) ||
               wrong("a plan with numbers or sizes has an exception for those that it cannot compute");
    }

    bool size_number(PyObject *object, int *result) const {
        long long value = PyLong_Check(object) ? PyLong_AsLongLong(object) : -1;
        if (value < 0 || value >= (long long)program->sizes.all.size())
            return wrong("a plan names a size that it does not have");
        *result = (int)value;
        return true;
    }

    bool size(PyObject *item) {
        static const char *const kinds[] = {"dim", "stride", "offset", "number", "const", "", "after"};
        static const size_t counts[] = {2, 2, 1, 1, 1, 0, 3};
        Size size{};
        PyObject *op = field(item, "op"), *operands = field(item, "operands");
        const char *name = op ? PyUnicode_AsUTF8(op) : nullptr;
        if (!name || !operands) return false;
        size.kind = Size::COMPUTED;
        for (int i = 0; i < 7; i++)
            if (std::strcmp(name, kinds[i]) == 0) size.kind = (Size::Kind)i;
        NumberStep step{};
        size_t wanted = counts[size.kind];
        if (size.kind == Size::COMPUTED) {
            if (!number_op(std::string(name) + "_i", &step) || !int_op_known(step.op))
                return wrong("a size is read, or computed by a known op");
            wanted = step.op == NumberStep::NEG ? 1 : 2;
        }
        size.op = step.op;
        long long given[3] = {};
        if (!PyTuple_Check(operands) || (size_t)PyTuple_GET_SIZE(operands) != wanted)
            return wrong("a size has other operands than its op takes");
        for (size_t i = 0; i < wanted; i++) given[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(operands, i));
        if (PyErr_Occurred()) return false;
        program->sizes.values.push_back(size.kind == Size::CONST ? given[0] : 0);
        if (size.kind == Size::CONST) wanted = 0;
        size.count = wanted;
        if (size.kind == Size::AFTER) {
            size.step = (int)given[0];
            size.operands[0] = (int)given[1];
            size.operands[1] = (int)given[2];
        } else {
            for (size_t i = 0; i < wanted; i++) size.operands[i] = (int)given[i];
        }
        for (size_t i = 0; i < wanted && size.kind == Size::COMPUTED; i++)
            if (given[i] < 0 || given[i] >= (long long)program->sizes.all.size())
                return wrong("a size is computed from one that is not there yet");
        program->sizes.all.push_back(size);
        return true;
    }

    static bool int_op_known(NumberStep::Op op) {
        return op == NumberStep::ADD || op == NumberStep::SUB || op == NumberStep::MUL ||
               op == NumberStep::FLOORDIV || op == NumberStep::MOD || op == NumberStep::MAX ||
               op == NumberStep::MIN || op == NumberStep::NEG;
    }

    bool check_step(PyObject *item) {
        Check check{};
        PyObject *buffer = field(item, "buffer");
        check.exception = field(item, "exception");
        check.message = field(item, "message");
        if (!buffer || !check.exception || !check.message || !buffer_number(buffer, &check.buffer))
            return false;
        if (!PyExceptionClass_Check(check.exception)) return wrong("a check raises an exception class");
        program->steps.push_back({Step::CHECK, (int)program->checks.size(), {}, {}, {}, {}, {}});
        program->checks.push_back(check);
        return true;
    }

    bool draw_step(PyObject *item) {
        Draw draw{};
        long long increment, device;
        PyObject *seed = field(item, "seed"), *offset = field(item, "offset"),
                 *aligned = field(item, "aligned");
        draw.get_seed = field(item, "get_seed");
        draw.get_offset = field(item, "get_offset");
        draw.set_offset = field(item, "set_offset");
        if (!seed || !offset || !aligned || !draw.get_seed || !draw.get_offset || !draw.set_offset ||
            !number(item, "increment", &increment) || !number(item, "device", &device) ||
            !buffer_number(seed, &draw.seed) || !buffer_number(offset, &draw.offset))
            return false;
        draw.aligned = -1;
        if (aligned != Py_None && !buffer_number(aligned, &draw.aligned)) return false;
        if (program->buffers[draw.seed].kind != Buffer::NUMBER ||
            program->buffers[draw.offset].kind != Buffer::NUMBER ||
            (draw.aligned >= 0 && program->buffers[draw.aligned].kind != Buffer::INPUT) || increment < 0)
            return wrong("a draw gives two numbers, and may ask how an input is aligned");
        if (program->otherwise == Py_None) return wrong("a plan with draws has something to call otherwise");
        draw.increment = increment;
        draw.device = (int)device;
        program->steps.push_back({Step::DRAW, (int)program->draws.size(), {}, {}, {}, {}, {}});
        program->draws.push_back(draw);
        return true;
    }

    // Whether a container holds a tensor, or a number that varies, at any depth: only then is it built anew
    // in every call.
    bool holds_tensor(PyObject *object) const {
        if (is_view(object) || is_input(object) || is_number(object) || is_size(object)) return true;
        if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) return false;
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); i++)
            if (holds_tensor(PySequence_Fast_GET_ITEM(object, i))) return true;
        return false;
    }

    bool argument(PyObject *object, Argument *result) {
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

    bool extern_arguments(PyObject *args, PyObject *kwargs, Extern *call) {
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

    bool extern_results(PyObject *results, Extern *call) {
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

    int whole(int buffer) {
        for (size_t i = 0; i < program->views.size(); i++)
            if (program->views[i].buffer == buffer && program->views[i].whole) return (int)i;
        program->views.push_back(View{buffer, program->buffers[buffer].layout, 0, true});
        return (int)program->views.size() - 1;
    }

    // The keyword names under which results are passed: the schema's where the function has one.
    bool out_names(Extern *call) {
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

    // What an OpOverload's Python-level __call__ passes on to, new reference; nullptr for anything else.
    static PyObject *native_function(PyObject *function) {
        Ref module(PyImport_ImportModule("torch._ops"));
        Ref type(module ? PyObject_GetAttrString(module.object, "OpOverload") : nullptr);
        bool overload = type && Py_TYPE(function) == (PyTypeObject *)type.object;
        PyObject *native = overload ? PyObject_GetAttrString(function, "_op") : nullptr;
        PyErr_Clear();
        return native;
    }

    bool extern_step(PyObject *item) {
        Extern call{};
        PyObject *target = field(item, "target"), *args = field(item, "args"),
                 *kwargs = field(item, "kwargs"), *results = field(item, "results");
        PyObject *out_form = field(item, "out_form");
        call.function = field(item, "function");
        if (!target || !args || !kwargs || !results || !out_form || !call.function) return false;
        const char *name = PyUnicode_AsUTF8(target);
        if (name == nullptr || !PyTuple_Check(args) || !PyDict_Check(kwargs) || !PyTuple_Check(results))
            return wrong(
                "a library call has a tuple of arguments, a dict of named ones, and a tuple of results");
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
                [](void *parser, PyObject *object) { return static_cast<Parser *>(parser)->view(object); },
                this, &call.shim))
            return false;
        program->steps.push_back({Step::EXTERN, (int)program->externs.size(), {}, {}, {}, {}, {}});
        call.native = native_function(call.function);
        program->externs.push_back(std::move(call));
        return true;
    }

    // Device of the tensors, beside which numbers may be on the CPU.
    void find_device(const Argument &argument, std::string *device) const {
        if (argument.kind == Argument::VIEW) {
            const std::string &here = program->buffers[program->views[argument.number].buffer].device;
            if (device->empty() || here != "cpu") *device = here;
        }
        for (const Argument &item : argument.items) find_device(item, device);
    }

    bool output(PyObject *item) {
        Output result{};
        if (is_view(item)) {
            result.kind = Output::VIEW;
            result.number = view(item);
            if (result.number < 0) return false;
            for (size_t i = program->outputs.size(); i-- > 0;)
                if (program->outputs[i].kind == Output::VIEW && program->outputs[i].number == result.number)
                    result.repeats = (int)i;
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
            if (result.kind == Output::SIZE && !read_int(result.constant, &value, &result.number))
                return false;
        } else {
            return wrong("an output is a view, the number of an input, or a 1-tuple of a constant");
        }
        program->outputs.push_back(result);
        return true;
    }
};

} // namespace

std::unique_ptr<Program> program_parse(PyObject *spec) try {
    auto program = std::make_unique<Program>();
    if (torch_api() == nullptr || !Parser(spec, program.get()).parse()) return nullptr;
    return program;
} catch (const std::bad_alloc &) {
    PyErr_NoMemory();
    return nullptr;
}

} // namespace frameloom
