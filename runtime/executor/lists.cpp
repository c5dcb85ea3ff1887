// Writes the tables of addresses for lists of kernels.
//
// A table is written in the order of the stream, so that earlier launches have finished with it,
// and only where an address differs from the last call.
#include "scratch.h"

#include <algorithm>

namespace frameloom {

namespace {

class Writing {
  public:
    Writing(const List &list, const std::vector<uint64_t> &words, void *base, Gpu *gpu)
        : list(list), words(words), base(static_cast<uint64_t *>(base)), gpu(gpu) {}

    bool all() const {
        for (size_t at = 0; at < words.size(); at += GPU_WORDS) {
            unsigned count = (unsigned)std::min<size_t>(GPU_WORDS, words.size() - at);
            if (!gpu->write(*list.function, base + at, &words[at], count, 1, list.name)) return false;
        }
        return true;
    }

    bool column(size_t column) const {
        uint64_t part[GPU_WORDS];
        for (size_t at = column; at < words.size();) {
            uint64_t *place = base + at;
            unsigned count = 0;
            for (; count < GPU_WORDS && at < words.size(); at += list.columns) part[count++] = words[at];
            if (!gpu->write(*list.function, place, part, count, (unsigned)list.columns, list.name))
                return false;
        }
        return true;
    }

  private:
    const List &list;
    const std::vector<uint64_t> &words;
    uint64_t *base;
    Gpu *gpu;
};

size_t launches(size_t words) { return (words + GPU_WORDS - 1) / GPU_WORDS; }

} // namespace

bool list_fill(const List &list, void *const *data, ScratchMemory *table, Gpu *gpu) {
    size_t count = list.places.size();
    std::vector<uint64_t> words(count), before;
    std::vector<char> changed(list.columns);
    before.swap(table->words); // the content of the table is unknown until all is written
    for (size_t i = 0; i < count; i++) {
        const List::Place &place = list.places[i];
        words[i] = reinterpret_cast<uint64_t>(data[place.buffer]) + (uint64_t)place.bytes;
        if (before.empty() || before[i] != words[i]) changed[i % list.columns] = 1;
    }
    size_t some = (size_t)std::count(changed.begin(), changed.end(), 1);
    Writing writing(list, words, table->base, gpu);
    if (launches(count) <= some * launches(count / list.columns)) {
        if (some && !writing.all()) return false;
    } else {
        for (size_t i = 0; i < list.columns; i++)
            if (changed[i] && !writing.column(i)) return false;
    }
    table->words.swap(words);
    return true;
}

} // namespace frameloom
