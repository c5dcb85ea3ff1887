// What calls of a plan keep for later calls: scratch memory, and views of it; see scratch.cpp.
#pragma once

#include "program.h"

namespace frameloom {

struct ScratchMemory {
    Tensor tensor{};
    void *base = nullptr;   // null: none was made
    void *stream = nullptr; // on a GPU: the stream of the call that used it; only its order makes reuse safe
    int64_t bytes = 0;
    int64_t most = 0; // with symbolic sizes: the most that the last `calls` calls needed
    int calls = 0;
    int64_t kept = 0;            // on a GPU: bytes that are kept between calls
    std::vector<uint64_t> words; // the content of a table

    void release();
};

// What calls keep for later calls; one call uses it at a time.
struct Scratch {
    std::vector<ScratchMemory> memory; // per arena
    // Views of the memory, and views of inputs and constants for C functions.  The latter own
    // nothing: they are used again as long as the tensor has the same address, and only while it is
    // alive.
    std::vector<Tensor> views;
    std::vector<void *> addresses;
    uint64_t stamp = 0; // of the sizes for which the views were made
    Scratch(size_t arenas, size_t count) : memory(arenas), views(count), addresses(count) {}
    ~Scratch();
    // Allocates memory for every arena; false with an error set.
    bool take(const Program &program);
    // Frees, after a call, memory that is too large to keep.
    void give_back(const Program &program);
    // Releases the views whose sizes have changed.
    void forget(const SizeGroup &group);

  private:
    void drop(const Program &program, int arena); // frees its memory and the views of it
};

// Brings a list's table up to date (lists.cpp); `data` has the address of every buffer.
bool list_fill(const List &list, void *const *data, ScratchMemory *table, Gpu *gpu);

} // namespace frameloom
