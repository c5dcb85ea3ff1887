// The scratch memory that calls of a plan keep for later calls: an arena on every device that has
// intermediates.
//
// On a GPU, reuse is safe only in the order of one stream: a call on another stream gets new
// memory, and so does a call that is recorded, because its memory belongs to the recording.
#include "scratch.h"

#include <algorithm>

namespace frameloom {

namespace {

// Larger memory is freed after every call.  On GPUs, which have less memory, the limit is for all
// plans together.
constexpr int64_t KEPT_ARENA = 64 << 20, KEPT_ON_GPUS = 64 << 20;
int64_t kept_on_gpus = 0; // bytes; under the lock

// Allocates as for tensors: so the memory is counted and aligned like theirs.
bool make_memory(const Arena &arena, int64_t size, Tensor *memory) {
    Layout layout = arena.layout;
    layout.shape = {size};
    return tensor_empty(layout, memory);
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

// Returns how many bytes a call takes.  Existing memory is reused if it is large enough.  Else it
// grows by at least a quarter, so that slowly growing sizes need new memory only now and then.
// Memory that is more than twice as large as the last calls needed is replaced.
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
            if (!gpu_stream(arena.layout.device_index, &stream)) return false;
            if (here.base && (here.stream != stream || gpu_recording(stream))) drop(program, (int)i);
            here.stream = stream;
        }
        if (here.tensor.present()) continue; /* its address is null if it has no bytes */
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
