// Ints of a plan that may differ from call to call: SizeCall and SizeRef of runtime/spec.py.
//
// Wherever the spec may have a SizeRef there is a number in the Program itself, so that the steps run as if
// it had always been that number.  A call reads the few sizes that others follow from; only if one differs
// from the last call's are the others computed, and the numbers in the Program changed.  Such a Program
// belongs to one call at a time.
#pragma once

#include "tensors.h"

#include <vector>

namespace frameloom {

struct Program;

struct Size {
    enum Kind { SHAPE, STRIDES, OFFSET, NUMBER, CONST, COMPUTED, AFTER, ITEM } kind;
    int op = 0; // NumberStep::Op of those that are computed
    int operands[2] = {0, 0};
    size_t count = 0;
    int step = -1; // after which it is known; -1: when a call begins
};

// The sizes that are read from one tensor or number.
struct SizeSource {
    Size::Kind kind;
    int buffer;
    std::vector<std::pair<int, int>> wanted; // dimension, size
    int rank = 0;                            // dimensions that the tensor has at least
    std::vector<int64_t> room;
};

struct SizePlace {
    int64_t *at;
    int size;
};

// What becomes known at one time, and what depends on it.
struct SizeGroup {
    int step; // of AFTER and ITEM
    std::vector<SizeSource> sources;
    std::vector<int> computed; // sizes, in order
    std::vector<SizePlace> places;
    std::vector<Layout *> layouts;
    std::vector<int> views, kernels, launches, externs, scratch;
    bool known = false; // the Program is as the sizes read last say
};

struct Sizes {
    std::vector<Size> all;
    std::vector<int64_t> values;
    std::vector<SizeGroup> groups; // the first: what is known when a call begins
    uint64_t stamp = 0;            // another one for every change

    bool any() const { return !all.empty(); }
};

// Once everything else of the program is parsed and will stay where it is; false with an exception set.
bool sizes_bind(Program *program);
// 1: brought up to date, 0: these sizes have to be refused, -1: exception.  `tensors` and `data`: per buffer.
int sizes_update(Program *program, SizeGroup *group, const Tensor *tensors, void *const *data);

// 1: the inputs' sizes are those that the program has been brought up to date with, 0: they are not,
// -1: exception.
int sizes_same(Program *program, PyObject *const *inputs);

} // namespace frameloom
