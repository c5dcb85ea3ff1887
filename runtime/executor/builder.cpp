// Adds buffers, numbers, sizes, views and outputs to a Program; builder_steps.cpp adds steps.
#include "builder.h"

#include <algorithm>
#include <map>

namespace frameloom {

int Builder::known_buffer(long long number) const {
    require(number >= 0 && number < (long long)program->buffers.size(),
            "a plan names a buffer that it does not have");
    return (int)number;
}

int Builder::known_size(long long number) const {
    require(number >= 0 && number < (long long)program->sizes.all.size(),
            "a plan names a size that it does not have");
    return (int)number;
}

int Builder::arena_for(const Layout &layout) {
    for (size_t i = 0; i < program->arenas.size(); i++)
        if (!program->arenas[i].is_table && program->arenas[i].layout.device_type == layout.device_type &&
            program->arenas[i].layout.device_index == layout.device_index)
            return (int)i;
    return new_arena(layout, false);
}

int Builder::new_arena(const Layout &layout, bool is_table) {
    Layout bytes = byte;
    bytes.device_type = layout.device_type;
    bytes.device_index = layout.device_index;
    bytes.device_object = layout.device_object;
    if (layout.device_type < 0) bytes.dtype = -1; // the host makes it
    program->arenas.push_back({std::move(bytes), 0, false, is_table});
    return (int)program->arenas.size() - 1;
}

void Builder::add(Buffer &&buffer, bool is_table) {
    require(buffer.layout.has_dtype() || buffer.kind == Buffer::INPUT,
            "only an input can do without a dtype"); // it is passed through
    if (buffer.kind == Buffer::ARENA) place_in_arena(&buffer, is_table);
    program->buffers.push_back(std::move(buffer));
}

void Builder::place_in_arena(Buffer *buffer, bool is_table) {
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

void Builder::end_buffers() {
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

void Builder::add(NumberStep step) {
    require(program->buffers[known_buffer(step.result)].kind == Buffer::NUMBER,
            "a number is computed by a known op of one or two operands");
    bool is_read = step.op >= NumberStep::READ_F32;
    if (is_read) known_buffer(step.operands[0]);
    for (size_t i = 0; i < step.count; i++) {
        if (step.operands[i] < 0) continue;
        const Buffer &given = program->buffers[known_buffer(step.operands[i])];
        bool fits = is_read
                        ? given.kind == Buffer::INPUT && (given.device == "cpu" || step.op >= NumberStep::DIM)
                        : given.kind == Buffer::NUMBER && given.is_float == step.of_floats;
        require(fits, "a number is computed from numbers of one type, or read from an input");
    }
    require(step.op < NumberStep::DIM ||
                step.constants[1] < program->buffers[step.operands[0]].layout.shape.size(),
            "a number is the size or stride of a dimension that there is");
    program->numbers.push_back(step);
}

void Builder::add(Size size, int64_t value) {
    for (size_t i = 0; i < size.count && size.kind == Size::COMPUTED; i++)
        require(size.operands[i] >= 0 && size.operands[i] < (int)program->sizes.all.size(),
                "a size is computed from one that is not there yet");
    program->sizes.values.push_back(value);
    program->sizes.all.push_back(size);
}

int Builder::add(View &&view) {
    const Buffer &base = program->buffers[known_buffer(view.buffer)];
    view.whole = view.offset == 0 && view.offset_size < 0 && view.layout.same_layout(base.layout);
    for (int i : views_of[view.buffer]) {
        const View &other = program->views[i];
        if (other.offset == view.offset && other.offset_size == view.offset_size &&
            other.layout.same_layout(view.layout))
            return i;
    }
    return place(std::move(view));
}

int Builder::place(View &&view) {
    int number = (int)program->views.size();
    views_of[view.buffer].push_back(number);
    program->views.push_back(std::move(view));
    return number;
}

int Builder::whole(int buffer) {
    for (int i : views_of[buffer])
        if (program->views[i].whole) return i;
    return place(View{buffer, program->buffers[buffer].layout, 0, true});
}

void Builder::add(Output output) {
    if (output.kind == Output::VIEW) {
        Buffer::Kind kind = program->buffers[program->views[output.number].buffer].kind;
        require(kind != Buffer::ARENA && kind != Buffer::TRANSIENT,
                "scratch memory is overwritten by the next call: it cannot be returned");
    }
    require(output.kind != Output::INPUT || known_buffer(output.number) < program->input_count,
            "a plan returns an input that it does not have");
    require(output.first < (int)program->outputs.size(),
            "an output repeats one that does not come before it");
    program->outputs.push_back(output);
}

// Returns, of outputs over one buffer, the one of which the others are views: the one that is the
// whole buffer, or the only one that is not a view for the program, whose shape may differ from the
// buffer's.
const Output *Builder::base_among(const std::vector<Output *> &outputs) const {
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
void Builder::share_bases() {
    std::map<int, std::vector<Output *>> sharing;
    for (Output &output : program->outputs) {
        if (output.kind != Output::VIEW || output.first >= 0) continue;
        int buffer = program->views[output.number].buffer;
        if (buffer >= program->input_count) sharing[buffer].push_back(&output);
    }
    for (auto &[buffer, outputs] : sharing) {
        if (outputs.size() < 2 && !outputs[0]->is_view) continue;
        const Output *seen = base_among(outputs);
        int base = seen ? seen->number : whole(buffer);
        for (Output *output : outputs) output->base = output == seen ? -1 : base;
    }
}

bool Builder::finish(long long restarting) {
    for (Step &step : program->steps) step.restarts = restarting-- > 0;
    share_bases();
    return program_check(program);
}

} // namespace frameloom
