// The scratch memory that calls of a plan leave for each other: an arena on every device that has
// intermediates.
//
// On a GPU its bytes are safe only in the order of one stream: a call on another stream gets fresh ones, and
// so does one that is recorded, whose memory belongs to the recording.
#include "plan.h"

#include <algorithm>

namespace frameloom {

namespace {

// Larger memory is given back after every call.  On GPUs, where there is less of it, this is what all plans
// together keep.
constexpr int64_t KEPT_ARENA = 64 << 20, KEPT_ON_GPUS = 64 << 20;
int64_t kept_on_gpus = 0; // bytes; under the GIL

// Bytes from PyTorch's own allocator: accounted for and aligned as its tensors are.
bool make_memory(const Arena &arena, int64_t size, Tensor *memory) {
    PyObject *torch = PyImport_ImportModule("torch"),
             *bytes = torch ? PyObject_GetAttrString(torch, "uint8") : nullptr;
    PyObject *shape = Py_BuildValue("(L)", (long long)size), *strides = Py_BuildValue("(i)", 1);
    Layout layout;
    bool made = bytes && shape && strides &&
                layout_parse(shape, strides, bytes, arena.device_object, &layout) &&
                tensor_empty(layout, memory);
    Py_XDECREF(torch);
    Py_XDECREF(bytes);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return made;
}

bool may_keep(const Arena &arena, ScratchMemory *memory) {
    if (!arena.on_gpu) return memory->bytes <= KEPT_ARENA;
    if (memory->base == nullptr || gpu_recording(memory->stream)) return false;
    if (memory->kept == 0 && kept_on_gpus + memory->bytes <= KEPT_ON_GPUS) {
        memory->kept = memory->bytes;
        kept_on_gpus += memory->bytes;
    }
    return memory->kept > 0;
}

// How many bytes a call takes: what is there, where it serves.  Memory that was too small grows by a quarter
// at least, so that sizes that grow bit by bit want new memory now and then only; what is over twice as large
// as any of the last calls wanted goes.
int64_t wanted_bytes(const Arena &arena, ScratchMemory *memory) {
    constexpr int LOOKED_AT = 32;
    constexpr int64_t LEAST = 4 << 10;
    if (!arena.is_sized) return arena.bytes;
    memory->most = std::max(memory->most, arena.bytes);
    if (arena.bytes > memory->bytes) {
        int64_t roomy = std::max({arena.bytes, memory->bytes + memory->bytes / 4, LEAST});
        return roomy <= KEPT_ARENA ? roomy : arena.bytes; // more than that is not kept
    }
    if (++memory->calls < LOOKED_AT) return memory->bytes;
    int64_t most = std::max(memory->most, LEAST);
    memory->calls = 0;
    memory->most = arena.bytes;
    return memory->bytes <= 2 * most ? memory->bytes : most;
}

} // namespace

void ScratchMemory::release() {
    kept_on_gpus -= kept;
    tensor.release();
    *this = ScratchMemory{};
}

Scratch::~Scratch() {
    for (Tensor &view : views) view.release();
    for (ScratchMemory &each : memory) each.release();
}

bool Scratch::take(const Program &program) {
    for (size_t i = 0; i < memory.size(); i++) {
        const Arena &arena = program.arenas[i];
        ScratchMemory &here = memory[i];
        int64_t bytes = wanted_bytes(arena, &here);
        if (here.tensor.present() && here.bytes != bytes) drop(program, (int)i);
        if (arena.on_gpu) {
            void *stream;
            if (!gpu_stream(arena.device_index, &stream)) return false;
            if (here.base && (here.stream != stream || gpu_recording(stream))) drop(program, (int)i);
            here.stream = stream;
        }
        if (here.tensor.present()) continue; /* its address is null where it has no bytes */
        here.bytes = bytes;
        if (!make_memory(arena, bytes, &here.tensor) || !tensor_data(here.tensor, &here.base)) return false;
    }
    if (stamp != program.sizes.stamp) {
        for (const SizeGroup &group : program.sizes.groups) forget(group);
        stamp = program.sizes.stamp;
    }
    return true;
}

void Scratch::forget(const SizeGroup &group) {
    for (int number : group.views) views[number].release();
}

void Scratch::give_back(const Program &program) {
    for (size_t i = 0; i < memory.size(); i++)
        if (!may_keep(program.arenas[i], &memory[i])) drop(program, (int)i);
}

void Scratch::drop(const Program &program, int arena) {
    for (size_t i = 0; i < views.size(); i++)
        if (program.buffers[program.views[i].buffer].arena == arena) views[i].release();
    memory[arena].release();
}

} // namespace frameloom
