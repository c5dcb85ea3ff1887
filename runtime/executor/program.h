// A program: what a plan does in every call, as plain data.  A host fills it in, check.cpp completes it,
// and steps.cpp runs it.
//
// Objects in a Program are borrowed, unless a comment says otherwise: the host keeps them alive.
#pragma once

#include "chain.h"
#include "cuda.h"
#include "shims.h"
#include "sizes.h"
#include "tensors.h"

#include <memory>
#include <string>
#include <vector>

namespace frameloom {

constexpr uintptr_t GPU_ALIGNMENT = 16; // kernels are compiled for pointers with this alignment
constexpr uintptr_t DRAW_ALIGNMENT = 32;

struct Buffer {
    enum Kind { INPUT, OUTPUT, ARENA, TRANSIENT, EXTERN, CONSTANT, NUMBER } kind;
    Layout layout;
    int64_t offset;        // ARENA: bytes into the scratch memory of its device
    int offset_size = -1;  // the size that gives `offset`; -1: it is fixed
    Object *constant;      // CONSTANT
    std::string device;    // "cpu"
    int arena = -1;        // ARENA: number in Program::arenas
    bool is_float = false; // NUMBER: a float64, else an int64

    bool is_sized() const { return offset_size >= 0 || (layout.is_sized()); }
};

// The scratch memory on one device, or a table of addresses.  A table keeps its content between
// calls.
struct Arena {
    Layout layout; // of bytes on its device: a vector, whose size is set when it is allocated
    int64_t bytes;
    bool on_gpu, is_table, is_sized = false;
};

struct View {
    int buffer;
    Layout layout;
    int64_t offset; // in elements of the view
    bool whole;     // the buffer itself
    int offset_size = -1;
};

struct Kernel {
    int (*function)(void *const *buffers, const int64_t *sizes); // returns not 0 if memory runs out
    std::vector<int> buffers;
    bool leaves_lock;
    int64_t bytes_moved;
    int bytes_size = -1;
    std::vector<int> sizes;
    std::vector<int64_t> values; // of `sizes`
};

// A kernel on a GPU.
struct Launch {
    const GpuFunction *function; // for pointers, and sizes in `even`, that are multiples of 16
    std::vector<int> buffers;
    std::vector<int> doubtful; // those of `buffers` whose alignment is unknown
    unsigned grid[3];
    int64_t extents[3]; // the grid before it is checked
    int grid_sizes[3] = {-1, -1, -1};
    std::vector<std::pair<int, bool>> sizes; // parameters after the pointers; whether passed as 32 bits
    std::vector<void *> values;              // of `sizes`
    std::vector<int> even;                   // sizes that must be multiples of 16 for `function`
    bool uneven = false;                     // one of them is not
    int limited = -1;                        // size that must be at most `most` for `function`
    int64_t most = 0;
    bool beyond = false;                          // it is larger
    Object *longer = nullptr;                     // loads the function for any such size; or nullptr
    mutable const GpuFunction *longest = nullptr; // what it returned
    bool skipped = false;                         // the grid has no blocks
    std::string name;
    Object *unaligned = nullptr;                // loads the function for any pointers and sizes; or nullptr
    mutable const GpuFunction *other = nullptr; // what it returned
};

// Consecutive launches on one device.
struct LaunchRun {
    std::vector<int> launches;
    std::unique_ptr<Chain> chain; // as one graph, for pointers that are multiples of 16
};

// One kernel over many rows of buffers.  It takes a table with a row of addresses for each, which
// is written when an address has changed, and two tensors that never change
// (codegen/triton/list_text.py).
struct List {
    struct Place {
        int buffer;
        int64_t bytes; // after its first element
    };
    const GpuFunction *function;
    int table, fixed, blocks;  // buffers
    std::vector<Place> places; // row by row
    size_t columns;
    int64_t extents[3]; // the grid before it is checked
    unsigned grid[3];
    std::string name;
};

// An argument of a library call: a tensor, a constant, or a container that holds tensors.
struct Argument {
    enum Kind { VIEW, INPUT, NUMBER, SIZE, OBJECT, LIST, TUPLE } kind;
    int number; // of the view, input, buffer or size
    Object *object;
    std::vector<Argument> items;
};

struct Extern {
    Object *function;
    Object *native; // owned: the builtin that an OpOverload of PyTorch calls; nullptr for other functions
    std::vector<Argument> arguments; // positional, then named
    size_t positional;
    std::vector<std::string> names; // of the named arguments
    std::vector<std::string> out_names;
    std::vector<int> results;      // buffers, -1: not used
    std::vector<int> result_views; // out form: a view of each whole result
    bool out_form, leaves_lock;
    int sizes = -1; // the group of sizes that are known after it
    ShimCall shim;
};

// Raises an error if a kernel on the CPU has set the flag: an index was out of range.
struct Check {
    int buffer;
    Object *exception, *message;
};

// Reads sizes from an int64 tensor in the CPU's memory.
struct Read {
    int buffer;
    int sizes = -1; // the group of sizes that are known after it
};

// Reserves random numbers of a generator: the buffers get its seed and offset.
struct Draw {
    Object *get_seed, *get_offset, *set_offset; // methods of the generator
    int64_t increment;
    int seed, offset; // buffers
    int device;       // a call must not be recorded on its stream; -1: not checked
    int aligned;      // buffer whose address must be a multiple of 32; -1: none
};

// Computes a number before the steps run (numbers.cpp).
struct NumberStep {
    enum Op {
        ADD,
        SUB,
        MUL,
        TRUEDIV,
        FLOORDIV,
        MOD,
        POW,
        NEG,
        ABS,
        MIN,
        MAX,
        SINGLE,
        NARROW,
        FLOAT,
        INT,
        FLOOR,
        CEIL,
        SQRT,
        EXP,
        EXPM1,
        LOG,
        LOG2,
        LOG10,
        LOG1P,
        SIN,
        COS,
        TAN,
        TANH,
        READ_F32,
        READ_F64,
        READ_I32,
        READ_I64, // READ: of a tensor and an index of an element
        DIM,
        STRIDE // DIM, STRIDE: of a tensor and a dimension
    } op;
    bool of_floats;
    int result;
    int operands[2]; // buffers; negative: a constant
    uint64_t constants[2];
    size_t count;
};

struct Step {
    // After program_check, a RUN replaces each LAUNCH.
    enum Kind { KERNEL, LAUNCH, RUN, LIST, EXTERN, CHECK, DRAW, READ } kind;
    int number;            // index in kernels, launches, runs, lists, externs, checks, draws or reads
    std::vector<int> born; // TRANSIENT buffers and large outputs that are first used here
    std::vector<int> dead_buffers, dead_views;      // TRANSIENT and EXTERN: last used here
    std::vector<int> dead_inputs, dead_input_views; // likewise, for calls that own their inputs
    bool restarts = false; // nothing was changed before: a call that fails here restarts
};

struct Output {
    enum Kind { VIEW, INPUT, CONSTANT, SIZE } kind;
    int number; // view, input or size
    Object *constant;
    int first = -1;         // the earlier output with which it shares its object
    int base = -1;          // the view of the buffer of which it is made a view; -1: none
    bool is_view = false;   // a view even if no other output shares its memory
    bool recorded = false;  // whether a view is made in the caller's gradient mode
    Object *lazy = nullptr; // a tuple of functions that are applied to it in order
    int writes = -1;        // how many autograd counts; -1: as they are
};

struct Program {
    int input_count = 0;
    bool owned = false; // calls are expected to own their inputs
    std::vector<Buffer> buffers;
    std::vector<View> views;
    std::vector<Kernel> kernels;
    std::vector<Launch> launches;
    std::vector<LaunchRun> runs;
    std::vector<List> lists;
    std::vector<Extern> externs;
    std::vector<Check> checks;
    std::vector<Read> reads;
    std::vector<Draw> draws;
    std::vector<Step> steps;
    std::vector<NumberStep> numbers;
    std::vector<int> number_inputs;
    Object *refused = nullptr; // the class of the error for calls whose numbers cannot be computed
    std::vector<Output> outputs;
    std::vector<int> tensor_inputs; // inputs that are used as tensors, not only as objects
    std::vector<int> unused;        // inputs that are not used at all
    std::vector<int> addressed;     // inputs and constants whose address a kernel needs
    std::vector<int> made;          // OUTPUT buffers that are allocated before the steps
    std::vector<int> scratch;       // ARENA buffers
    std::vector<Arena> arenas;      // one per device, and one per table
    int64_t arena_bytes = 0;        // of all arenas
    int arena_bytes_size = -1;
    Sizes sizes;
    std::vector<int> keys;         // sizes that decide all others
    Object *steady = nullptr;      // called with values of `keys` that come often; or nullptr
    bool in_use = false;           // with sizes: a call uses it
    std::unique_ptr<Program> next; // with sizes: a copy for a call while this one is in use
    bool keeps_scratch = false;    // there is an arena, or a C function that may need views
    bool calls_torch = false;      // it does something that autograd may record: a library call, or a view
    int widest_kernel = 0, widest_launch = 0;
    Object *otherwise = nullptr; // called instead, or nullptr, if the plan cannot draw random numbers
    // `restart` is called if a step that restarts raises, and raises another exception.  It gets
    // the exception and the result of `remember`, which is called before the steps; or None.
    // nullptr: no step restarts.
    Object *restart = nullptr, *remember = nullptr;

    Program() = default;
    Program(const Program &) = delete;
    ~Program() {
        for (Extern &call : externs)
            if (call.native) host::release(call.native);
    }
};

// Calls `visit` for each size on which a part of a program depends.
template <typename Visit> void each_size(const Layout &layout, Visit visit) {
    for (const std::vector<int> *sizes : {&layout.shape_sizes, &layout.stride_sizes})
        for (int size : *sizes)
            if (size >= 0) visit(size);
}

template <typename Visit> void each_size(const Buffer &buffer, Visit visit) {
    each_size(buffer.layout, visit);
    if (buffer.offset_size >= 0) visit(buffer.offset_size);
}

template <typename Visit> void each_size(const View &view, Visit visit) {
    each_size(view.layout, visit);
    if (view.offset_size >= 0) visit(view.offset_size);
}

template <typename Visit> void each_size(const Launch &launch, Visit visit) {
    for (const auto &[size, narrow] : launch.sizes) visit(size);
    for (int size : launch.even) visit(size);
    if (launch.limited >= 0) visit(launch.limited);
    for (int size : launch.grid_sizes)
        if (size >= 0) visit(size);
}

// Checks the program as a whole, and finds what calls need to know.  The numbers of a program do not
// move in memory any more.  False with an error set.
bool program_check(Program *program);
constexpr int64_t LOCK_BYTES =
    256 << 10; // kernels that move fewer bytes finish before another thread could use the lock
int64_t argument_bytes(const Program &program, const Argument &argument); // of its tensors
// The most blocks that a GPU allows in a direction of a grid.
constexpr int64_t most_blocks(int direction) { return direction ? 65535 : INT32_MAX; }
// Numbers: 64 bits, stored where other buffers have their address.
bool number_op(const std::string &name, NumberStep *step);
bool int_op(int op, int64_t a, int64_t b, int64_t *result);                  // false: refused
bool number_run(const NumberStep &step, const Tensor *tensors, void **data); // false: refused

} // namespace frameloom
