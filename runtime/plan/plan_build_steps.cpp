// Parses kernels, launches, lists of kernels, checks, draws and reads.
#include "plan_build.h"

#include <utility>

namespace frameloom {

void Parser::step(py::handle item) {
    using Parse = void (Parser::*)(py::handle);
    static const std::pair<const char *, Parse> steps[] = {
        {"KernelCall", &Parser::kernel_step}, {"LaunchCall", &Parser::launch_step},
        {"ListCall", &Parser::list_step},     {"CheckCall", &Parser::check_step},
        {"DrawCall", &Parser::draw_step},     {"ReadCall", &Parser::read_step},
        {"ExternCall", &Parser::extern_step},
    };
    std::string type = py::type::handle_of(item).attr("__name__").cast<std::string>();
    for (const auto &[name, parse] : steps)
        if (type == name) return (this->*parse)(item);
    refuse("a step is a call of a kernel, launch, list, check, draw, read or library function");
}

void Parser::kernel_step(py::handle item) {
    constexpr const char *RULE = "a kernel has an address and a tuple of buffers";
    Kernel kernel{};
    long long address = number(item, "address");
    sized_number(item, "bytes_moved", &kernel.bytes_moved, &kernel.bytes_size);
    kernel.function = reinterpret_cast<int (*)(void *const *, const int64_t *)>((uintptr_t)address);
    kernel.buffers = buffer_numbers(items(item, "buffers", RULE));
    kernel.sizes = size_numbers(item, "sizes");
    builder.add(std::move(kernel));
}

void Parser::grid_of(py::handle item, int64_t *extents, int *sizes) {
    constexpr const char *RULE = "a grid has three directions";
    py::tuple grid = items(item, "grid", RULE);
    require(grid.size() == 3, RULE);
    for (int i = 0; i < 3; i++)
        require(read_int(PyTuple_GET_ITEM(grid.ptr(), i), &extents[i], &sizes[i]), RULE);
}

void Parser::launch_sizes(py::handle item, Launch *launch) const {
    constexpr const char *RULE = "a launch takes a size as i32 or i64";
    for (py::handle entry : items(item, "sizes", "the sizes of a launch are a tuple")) {
        require(PyTuple_Check(entry.ptr()) && PyTuple_GET_SIZE(entry.ptr()) == 2, RULE);
        std::string type = text(PyTuple_GET_ITEM(entry.ptr(), 1), RULE);
        require(type == "i32" || type == "i64", RULE);
        launch->sizes.emplace_back(size_number(PyTuple_GET_ITEM(entry.ptr(), 0)), type == "i32");
    }
}

// Parses (size, most), or None.
void Parser::launch_limit(py::handle item, Launch *launch) const {
    PyObject *limit = field_or_null(item, "limit");
    if (limit == nullptr) return;
    require(PyTuple_Check(limit) && PyTuple_GET_SIZE(limit) == 2,
            "the limit of a launch is a size and a number");
    launch->limited = size_number(PyTuple_GET_ITEM(limit, 0));
    launch->most = number(PyTuple_GET_ITEM(limit, 1));
}

void Parser::launch_step(py::handle item) {
    constexpr const char *RULE = "a launch has a loaded function, a tuple of buffers and a name";
    Launch launch{};
    long long function = number(item, "function");
    launch.name = text(field(item, "name"), RULE);
    launch.unaligned = field_or_null(item, "unaligned");
    launch.longer = field_or_null(item, "longer");
    launch.function = reinterpret_cast<const GpuFunction *>((uintptr_t)function);
    launch.buffers = buffer_numbers(items(item, "buffers", RULE));
    grid_of(item, launch.extents, launch.grid_sizes);
    launch_sizes(item, &launch);
    launch.even = size_numbers(item, "even");
    launch_limit(item, &launch);
    builder.add(std::move(launch));
}

void Parser::list_step(py::handle item) {
    constexpr const char *RULE = "a list has a loaded function, a tuple of places and a name";
    List list{};
    long long function = number(item, "function"), columns = number(item, "columns");
    list.name = text(field(item, "name"), RULE);
    list.table = buffer_number(item, "table");
    list.fixed = buffer_number(item, "fixed");
    list.blocks = buffer_number(item, "blocks");
    list.function = reinterpret_cast<const GpuFunction *>((uintptr_t)function);
    for (py::handle place : items(item, "places", RULE)) {
        require(PyTuple_Check(place.ptr()) && PyTuple_GET_SIZE(place.ptr()) == 2,
                "a place in a list is a buffer and a number of bytes");
        int buffer = buffer_number(PyTuple_GET_ITEM(place.ptr(), 0));
        list.places.push_back({buffer, number(PyTuple_GET_ITEM(place.ptr(), 1))});
    }
    list.columns = (size_t)columns;
    int sizes[3];
    grid_of(item, list.extents, sizes);
    builder.add(std::move(list));
}

void Parser::check_step(py::handle item) {
    Check check{};
    check.buffer = buffer_number(item, "buffer");
    check.exception = field(item, "exception");
    check.message = field(item, "message");
    require(PyExceptionClass_Check(check.exception), "a check raises an exception class");
    builder.add(std::move(check));
}

void Parser::draw_step(py::handle item) {
    Draw draw{};
    draw.get_seed = field(item, "get_seed");
    draw.get_offset = field(item, "get_offset");
    draw.set_offset = field(item, "set_offset");
    draw.seed = buffer_number(item, "seed");
    draw.offset = buffer_number(item, "offset");
    draw.aligned = field_or_null(item, "aligned") ? buffer_number(item, "aligned") : -1;
    draw.increment = number(item, "increment");
    draw.device = (int)number(item, "device");
    builder.add(std::move(draw));
}

void Parser::read_step(py::handle item) {
    Read read{};
    read.buffer = buffer_number(item, "buffer");
    PyObject *dtype = program->buffers[read.buffer].layout.dtype_object;
    require(dtype && !is_float(dtype), "sizes are read from int64");
    builder.add(std::move(read));
}

} // namespace frameloom
