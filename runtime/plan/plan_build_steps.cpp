// Parses kernels, launches, lists of kernels, checks, draws and reads.
#include "plan_build.h"

#include <algorithm>

namespace frameloom {

bool Parser::kernel_step(PyObject *item) {
    Kernel kernel{};
    long long address;
    PyObject *buffers = field(item, "buffers"), *sizes = field(item, "sizes");
    if (!number(item, "address", &address) ||
        !sized_number(item, "bytes_moved", &kernel.bytes_moved, &kernel.bytes_size) || !buffers || !sizes)
        return false;
    if (address == 0 || !PyTuple_Check(buffers))
        return wrong("a kernel has an address and a tuple of buffers");
    kernel.function = reinterpret_cast<int (*)(void *const *, const int64_t *)>((uintptr_t)address);
    kernel.release_gil = kernel.bytes_moved >= GIL_BYTES;
    if (!buffer_numbers(buffers, &kernel.buffers)) return false;
    if (!size_numbers(sizes, &kernel.sizes)) return false;
    kernel.values.resize(kernel.sizes.size());
    program->widest_kernel = std::max(program->widest_kernel, (int)kernel.buffers.size());
    program->steps.push_back({Step::KERNEL, (int)program->kernels.size(), {}, {}, {}, {}, {}});
    program->kernels.push_back(std::move(kernel));
    return true;
}

// `sizes` gets the sizes in the grid, or -1; if it is null, the grid may have none.
bool Parser::grid_of(PyObject *grid, int64_t *extents, int *sizes) {
    if (!PyTuple_Check(grid) || PyTuple_GET_SIZE(grid) != 3) return wrong("a grid has three directions");
    for (int i = 0; i < 3; i++) {
        int size;
        if (!read_int(PyTuple_GET_ITEM(grid, i), &extents[i], &size)) return false;
        bool sized = size >= 0 && sizes;
        if (!sized && (extents[i] <= 0 || extents[i] > most_blocks(i)))
            return wrong("a grid has 1 to 2147483647 blocks in the first and 1 to 65535 in other directions");
        if (sizes) sizes[i] = size;
    }
    return true;
}

// Parses the sizes that a kernel on a GPU takes, each as 32 or 64 bits.
bool Parser::launch_sizes(PyObject *sizes, Launch *launch) const {
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

// Parses (size, most), or None.
bool Parser::launch_limit(PyObject *limit, Launch *launch) const {
    if (limit == Py_None) return true;
    if (!PyTuple_Check(limit) || PyTuple_GET_SIZE(limit) != 2 || launch->longer == Py_None)
        return wrong("the limit of a launch is a size and a number, and there is a function beyond");
    launch->most = PyLong_AsLongLong(PyTuple_GET_ITEM(limit, 1));
    return !PyErr_Occurred() && size_number(PyTuple_GET_ITEM(limit, 0), &launch->limited);
}

bool Parser::launch_step(PyObject *item) {
    Launch launch{};
    long long function;
    PyObject *buffers = field(item, "buffers"), *grid = field(item, "grid"), *sizes = field(item, "sizes");
    PyObject *even = field(item, "even"), *limit = field(item, "limit");
    launch.name = field(item, "name");
    launch.unaligned = field(item, "unaligned");
    launch.longer = field(item, "longer");
    if (!number(item, "function", &function) || !buffers || !grid || !sizes || !even || !limit ||
        !launch.longer || !launch.name || !launch.unaligned)
        return false;
    if (function == 0 || !PyTuple_Check(buffers) || !PyUnicode_Check(launch.name))
        return wrong("a launch has a loaded function, a tuple of buffers and a name");
    launch.function = reinterpret_cast<const GpuFunction *>((uintptr_t)function);
    if (!buffer_numbers(buffers, &launch.buffers)) return false;
    if (!grid_of(grid, launch.extents, launch.grid_sizes) || !launch_sizes(sizes, &launch)) return false;
    if (!size_numbers(even, &launch.even) || !launch_limit(limit, &launch)) return false;
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

bool Parser::list_step(PyObject *item) {
    List list{};
    long long function, columns;
    PyObject *places = field(item, "places"), *grid = field(item, "grid");
    PyObject *table = field(item, "table"), *fixed = field(item, "fixed"), *blocks = field(item, "blocks");
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
        return wrong("a list has rows of as many places each as it has columns, and a table of that size");
    int64_t extents[3];
    if (!grid_of(grid, extents, nullptr)) return false;
    for (int i = 0; i < 3; i++) list.grid[i] = (unsigned)extents[i];
    program->widest_launch = std::max(program->widest_launch, 3 + list.function->extra);
    program->steps.push_back({Step::LIST, (int)program->lists.size(), {}, {}, {}, {}, {}});
    program->lists.push_back(std::move(list));
    return true;
}

bool Parser::check_step(PyObject *item) {
    Check check{};
    PyObject *buffer = field(item, "buffer");
    check.exception = field(item, "exception");
    check.message = field(item, "message");
    if (!buffer || !check.exception || !check.message || !buffer_number(buffer, &check.buffer)) return false;
    if (!PyExceptionClass_Check(check.exception)) return wrong("a check raises an exception class");
    program->steps.push_back({Step::CHECK, (int)program->checks.size(), {}, {}, {}, {}, {}});
    program->checks.push_back(check);
    return true;
}

bool Parser::draw_step(PyObject *item) {
    Draw draw{};
    long long increment, device;
    PyObject *seed = field(item, "seed"), *offset = field(item, "offset"), *aligned = field(item, "aligned");
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

bool Parser::read_step(PyObject *item) {
    Read read{};
    PyObject *buffer = field(item, "buffer");
    if (!buffer || !buffer_number(buffer, &read.buffer)) return false;
    PyObject *dtype = program->buffers[read.buffer].layout.dtype_object;
    bool is_float = true;
    if (!dtype || !number_dtype(dtype, &is_float) || is_float) return wrong("sizes are read from int64");
    program->steps.push_back({Step::READ, (int)program->reads.size(), {}, {}, {}, {}, {}});
    program->reads.push_back(read);
    return true;
}

} // namespace frameloom
