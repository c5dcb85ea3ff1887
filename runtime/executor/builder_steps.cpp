// Adds the steps of a Program.
#include "builder.h"

#include <algorithm>

namespace frameloom {

namespace {

void find_device(const Program &program, const Argument &argument, std::string *device) {
    if (argument.kind == Argument::VIEW) {
        const std::string &here = program.buffers[program.views[argument.number].buffer].device;
        if (device->empty() || here != "cpu") *device = here;
    }
    for (const Argument &item : argument.items) find_device(program, item, device);
}

void set_grid(const int64_t *extents, const int *sizes, unsigned *grid) {
    for (int i = 0; i < 3; i++) {
        require((sizes && sizes[i] >= 0) || (extents[i] > 0 && extents[i] <= most_blocks(i)),
                "a grid has 1 to 2147483647 blocks in the first and 1 to 65535 in other directions");
        grid[i] = (unsigned)extents[i];
    }
}

} // namespace

std::string Builder::device_of(const std::vector<Argument> &arguments) const {
    std::string device;
    for (const Argument &argument : arguments) find_device(*program, argument, &device);
    return device;
}

void Builder::add(Kernel &&kernel) {
    require(kernel.function != nullptr, "a kernel has an address and a tuple of buffers");
    kernel.leaves_lock = kernel.bytes_moved >= LOCK_BYTES;
    kernel.values.resize(kernel.sizes.size());
    program->widest_kernel = std::max(program->widest_kernel, (int)kernel.buffers.size());
    add_step(Step::KERNEL, &program->kernels, std::move(kernel));
}

void Builder::add(Launch &&launch) {
    require(launch.function != nullptr, "a launch has a loaded function, a tuple of buffers and a name");
    require(launch.limited < 0 || launch.longer,
            "the limit of a launch is a size and a number, and there is a function beyond");
    set_grid(launch.extents, launch.grid_sizes, launch.grid);
    launch.values.resize(launch.sizes.size());
    /* Scratch memory and fresh tensors are aligned for any access. */
    for (int number : launch.buffers) {
        Buffer::Kind kind = program->buffers[number].kind;
        if (kind == Buffer::INPUT || kind == Buffer::EXTERN || kind == Buffer::CONSTANT)
            launch.doubtful.push_back(number);
    }
    int width = (int)(launch.buffers.size() + launch.sizes.size()) + launch.function->extra;
    program->widest_launch = std::max(program->widest_launch, width);
    add_step(Step::LAUNCH, &program->launches, std::move(launch));
}

void Builder::add(List &&list) {
    require(list.function != nullptr, "a list has a loaded function, a tuple of places and a name");
    const Buffer &room = program->buffers[list.table];
    size_t words = list.places.size();
    require(list.columns > 0 && words != 0 && words % list.columns == 0 && room.kind == Buffer::ARENA &&
                program->arenas[room.arena].is_table && room.layout.elements() == (int64_t)words,
            "a list has rows of as many places each as it has columns, and a table of that size");
    set_grid(list.extents, nullptr, list.grid);
    program->widest_launch = std::max(program->widest_launch, 3 + list.function->extra);
    add_step(Step::LIST, &program->lists, std::move(list));
}

void Builder::add(Extern &&call) {
    for (int number : call.results) {
        require(!call.out_form || number >= 0, "a call in out form names all of its results");
        if (call.out_form) call.result_views.push_back(whole(number));
        if (number < 0) continue;
        Buffer::Kind kind = program->buffers[number].kind;
        bool fits = call.out_form
                        ? kind != Buffer::EXTERN && kind != Buffer::CONSTANT && kind != Buffer::NUMBER
                        : kind == Buffer::EXTERN;
        require(fits, "a call in out form writes to inputs, outputs and scratch memory; any other fills "
                      "extern buffers");
    }
    int64_t bytes = 0;
    for (const Argument &argument : call.arguments) bytes += argument_bytes(*program, argument);
    call.leaves_lock = bytes >= LOCK_BYTES / 4;
    add_step(Step::EXTERN, &program->externs, std::move(call));
}

void Builder::add(Draw &&draw) {
    require(program->buffers[draw.seed].kind == Buffer::NUMBER &&
                program->buffers[draw.offset].kind == Buffer::NUMBER &&
                (draw.aligned < 0 || program->buffers[draw.aligned].kind == Buffer::INPUT) &&
                draw.increment >= 0,
            "a draw gives two numbers, and may ask how an input is aligned");
    require(program->otherwise, "a plan with draws has something to call otherwise");
    add_step(Step::DRAW, &program->draws, std::move(draw));
}

} // namespace frameloom
