// Ints of a plan that may differ from call to call: SizeCall and SizeRef of runtime/spec.py.
//
// Where the spec has a SizeRef, the Program has a plain number, so that the steps need no special
// code. A call reads the few sizes on which the others depend.  Only if one differs from the last
// call, the others are computed, and the numbers in the Program are changed.  So only one call at a
// time uses such a Program.
#pragma once

#include "tensors.h"

#include <vector>

namespace frameloom {

struct Program;

struct Size {
    enum Kind { SHAPE, STRIDES, OFFSET, NUMBER, CONST, COMPUTED, AFTER, ITEM } kind;
    int op = 0; // COMPUTED: a NumberStep::Op
    int operands[2] = {0, 0};
    size_t count = 0;
    int step = -1; // it is known after this step; -1: when a call begins
};

// The sizes that are read from one tensor or number.
struct SizeSource {
    Size::Kind kind;
    int buffer;
    std::vector<std::pair<int, int>> wanted; // dimension, size
    int rank = 0;                            // the tensor must have at least so many dimensions
    std::vector<int64_t> room;
};

struct SizePlace {
    int64_t *at;
    int size;
};

// Sizes that become known at the same time, and what depends on them.
struct SizeGroup {
    int step; // after which they are known; -1: when a call begins
    std::vector<SizeSource> sources;
    std::vector<int> computed; // sizes, in order
    std::vector<SizePlace> places;
    std::vector<Layout *> layouts;
    std::vector<int> views, kernels, launches, externs;
    bool known = false; // whether the Program is up to date with the sizes that were read last
};

struct Sizes {
    std::vector<Size> all;
    std::vector<int64_t> values;
    std::vector<SizeGroup> groups; // the first: sizes that are known when a call begins
    uint64_t stamp = 0;            // a new value for every change

    bool any() const { return !all.empty(); }
};

// Finds what depends on each size.  Must be called when the rest of the program is parsed and does
// not move in memory any more.  False with an error set.
bool sizes_bind(Program *program);
// Updates the program.  Returns 1 if done, 0 if these sizes must be refused, -1 with an error
// set. `tensors` and `data`: per buffer.
int sizes_update(Program *program, SizeGroup *group, const Tensor *tensors, void *const *data);

// Returns 1 if the inputs have the sizes of the last update, 0 if not, -1 with an error set.
int sizes_same(Program *program, Object *const *inputs);

} // namespace frameloom
