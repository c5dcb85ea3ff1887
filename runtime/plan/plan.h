// The native plan: a program parsed from runtime/spec.py's PlanSpec (plan_build.cpp), run by plan_run.cpp.
//
// PyObjects in a Program are borrowed from the spec, which the Plan object keeps, unless a comment says
// otherwise.
#pragma once

#include "chain.h"
#include "cuda.h"
#include "regulars.h"
#include "shims.h"
#include "sizes.h"
#include "tensors.h"

#include <memory>
#include <string>
#include <vector>

namespace frameloom {

constexpr uintptr_t GPU_ALIGNMENT = 16; // of the pointers that kernels are compiled for
constexpr uintptr_t DRAW_ALIGNMENT = 32;

struct Buffer {
    enum Kind { INPUT, OUTPUT, ARENA, TRANSIENT, EXTERN, CONSTANT, NUMBER } kind;
    Layout layout;
    int64_t offset;        // ARENA: bytes into the scratch memory of its device
    int offset_size = -1;  // the size that stands there
    PyObject *constant;    // CONSTANT
    std::string device;    // "cpu"
    int arena = -1;        // ARENA: number in Program::arenas
    bool is_float = false; // NUMBER: a float64, else an int64

    bool is_sized() const { return offset_size >= 0 || (layout.dtype_object && layout.is_sized()); }
};

// The scratch memory on one device, or a table of addresses, which keeps its content between calls.
struct Arena {
    int32_t device_type, device_index;
    PyObject *device_object;
    int64_t bytes;
    bool on_gpu, is_table, is_sized = false;
};

struct View {
    int buffer;
    Layout layout;
    int64_t offset; // in elements of the view
    bool whole;     // the buffer as it is
    int offset_size = -1;
};

struct Kernel {
    int (*function)(void *const *buffers, const int64_t *sizes); // not 0: no memory
    std::vector<int> buffers;
    bool release_gil;
    int64_t bytes_moved;
    int bytes_size = -1;
    std::vector<int> sizes;
    std::vector<int64_t> values; // of them
};

// A kernel on a GPU.
struct Launch {
    const GpuFunction *function; // for pointers, and sizes of `even`, that are multiples of 16
    std::vector<int> buffers;
    std::vector<int> doubtful; // those of `buffers` that may lie anywhere
    unsigned grid[3];
    int64_t extents[3]; // the grid before it is checked
    int grid_sizes[3] = {-1, -1, -1};
    std::vector<std::pair<int, bool>> sizes; // parameters behind the pointers; whether as 32 bits
    std::vector<void *> values;              // of them
    std::vector<int> even;                   // sizes that `function` wants to be multiples of 16
    bool uneven = false;                     // one of them is none
    int limited = -1;                        // size that `function` wants to be at most `most`
    int64_t most = 0;
    bool beyond = false;        // it is more
    PyObject *longer = nullptr; // callable that gives the function for any such size, or None
    mutable const GpuFunction *longest = nullptr; // what it gave
    bool skipped = false;                         // no blocks
    PyObject *name;                               // str
    PyObject *unaligned;                          // callable that gives the function for any of them, or None
    mutable const GpuFunction *other = nullptr;   // what it gave
};

// Launches with nothing between them, on one device.
struct LaunchRun {
    std::vector<int> launches;
    std::unique_ptr<Chain> chain; // as one graph, for pointers that are multiples of 16
};

// The same kernel over many rows of buffers.  It takes a table with a row of addresses each, which is written
// when one has changed, and two tensors that never change (codegen/triton/list_text.py).
struct List {
    struct Place {
        int buffer;
        int64_t bytes; // behind its first element
    };
    const GpuFunction *function;
    int table, fixed, blocks;  // buffers
    std::vector<Place> places; // row by row
    size_t columns;
    unsigned grid[3];
    PyObject *name; // str
};

// An argument of a Python call: a tensor, a constant, or a container that holds tensors.
struct Argument {
    enum Kind { VIEW, INPUT, NUMBER, SIZE, OBJECT, LIST, TUPLE } kind;
    int number; // of the view, input, buffer or size
    PyObject *object;
    std::vector<Argument> items;
};

struct Extern {
    PyObject *function;
    PyObject *native; // strong: the builtin that an OpOverload calls; nullptr for other functions
    std::vector<Argument> arguments; // positional, then named
    size_t positional;
    std::vector<std::string> names; // of the named ones
    std::vector<std::string> out_names;
    std::vector<int> results;      // buffers, -1: not used
    std::vector<int> result_views; // out form: the whole of each result
    bool out_form, release_gil;
    int sizes = -1; // the group of sizes that are known after it
    ShimCall shim;
};

// Raises when a kernel on the CPU has left a mark: an index was out of range.
struct Check {
    int buffer;
    PyObject *exception, *message;
};

// Takes sizes out of a tensor of int64 in the CPU's memory.
struct Read {
    int buffer;
    int sizes = -1; // the group of sizes that are known after it
};

// Takes some of a generator's random numbers: the buffers become its seed and offset.
struct Draw {
    PyObject *get_seed, *get_offset, *set_offset; // methods of the generator
    int64_t increment;
    int seed, offset; // buffers
    int device;       // whose stream is looked at before a call; -1: none
    int aligned;      // buffer whose address has to be a multiple of 32; -1: none
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
        READ_I64, // of a tensor, and which element
        DIM,
        STRIDE // of a tensor, and which dimension
    } op;
    bool of_floats;
    int result;
    int operands[2]; // buffers; negative: a constant
    uint64_t constants[2];
    size_t count;
};

struct Step {
    // Once checked, RUN stands for every LAUNCH.
    enum Kind { KERNEL, LAUNCH, RUN, LIST, EXTERN, CHECK, DRAW, READ } kind;
    int number;            // in kernels, launches or runs of them, lists, externs, checks, draws or reads
    std::vector<int> born; // TRANSIENT buffers and large outputs that nothing used before
    std::vector<int> dead_buffers, dead_views; // TRANSIENT and EXTERN: nothing needs them after this step
    std::vector<int> dead_inputs, dead_input_views; // likewise, for calls that own their inputs
    bool restarts = false; // nothing is changed before: a call that fails here starts anew as plain Python
};

struct Output {
    enum Kind { VIEW, INPUT, CONSTANT, SIZE } kind;
    int number; // view, input or size
    PyObject *constant;
    int first = -1;           // the earlier output whose object it is, too
    int base = -1;            // the view of its whole buffer that it is made a view of, if it is one
    bool is_view = false;     // also where no other shares its memory
    bool recorded = false;    // whether it is made in the caller's gradient mode, where it is a view
    PyObject *lazy = nullptr; // a tuple of what is called with it, one after the other
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
    PyObject *refused = nullptr; // the exception class for calls whose numbers cannot be computed
    std::vector<Output> outputs;
    std::vector<int> tensor_inputs; // inputs of which more than the object is used
    std::vector<int> unused;        // inputs of which nothing is used, not even the object
    std::vector<int> addressed;     // inputs and constants whose address a kernel wants
    std::vector<int> made;          // OUTPUT buffers that are there from the start
    std::vector<int> scratch;       // ARENA buffers
    std::vector<Arena> arenas;      // one a device, and one a table
    int64_t arena_bytes = 0;        // of all arenas
    int arena_bytes_size = -1;
    Sizes sizes;
    std::vector<int> keys;         // sizes that decide all others
    PyObject *steady = nullptr;    // told which of their values keep coming; nullptr: nobody wants to know
    bool is_sized = false;         // it has sizes
    bool in_use = false;           // with sizes: by a call
    std::unique_ptr<Program> next; // with sizes: for a call while this one is in use
    bool keeps_scratch = false;    // there is an arena, or a C function that may want views
    bool calls_torch = false;      // what autograd may follow: a library call, or a view
    int widest_kernel = 0, widest_launch = 0;
    PyObject *otherwise = nullptr; // what is called instead where random numbers are not drawn by the plan
    // What is called with the exception of a step that restarts, and raises another one; with what
    // `remember`, if there is one, has given before the steps.  nullptr: none restarts.
    PyObject *restart = nullptr, *remember = nullptr;

    Program() = default;
    Program(const Program &) = delete;
    ~Program() {
        for (Extern &call : externs) Py_XDECREF(call.native);
    }
};

struct ScratchMemory {
    Tensor tensor{};
    void *base = nullptr;   // null: none was made
    void *stream = nullptr; // on a GPU: that of the call that used it; only this stream's order protects it
    int64_t bytes = 0;
    int64_t most = 0;            // where sizes vary: what some calls before wanted
    int calls = 0;               // how many these were
    int64_t kept = 0;            // on a GPU: bytes that are kept between calls
    std::vector<uint64_t> words; // what a table holds

    void release();
};

// What calls leave for each other; one call has it at a time.
struct Scratch {
    std::vector<ScratchMemory> memory; // per arena
    // Views of the memory, and views that C functions are given of inputs and constants.  These own nothing:
    // they serve as long as the tensor is found at the same address, where they are needed only while it is
    // alive.
    std::vector<Tensor> views;
    std::vector<void *> addresses;
    uint64_t stamp = 0; // of the sizes that the views were made for
    Scratch(size_t arenas, size_t count) : memory(arenas), views(count), addresses(count) {}
    ~Scratch();
    // Memory for every arena; false with an exception set.
    bool take(const Program &program);
    // After a call: what is not worth keeping goes back.
    void give_back(const Program &program);
    // The views that have other sizes than before.
    void forget(const SizeGroup &group);

  private:
    void drop(const Program &program, int arena); // its memory, and the views of it
};

struct Plan {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *spec;
    Program *program;
    Scratch *scratch;   // kept between calls; nullptr while none was made or a call has it
    Regulars *regulars; // nullptr where nobody wants to know
    Py_ssize_t calls;
};

// Sets an exception about the spec, if none is set; false.
inline bool wrong(const char *what) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, what);
    return false;
}
// nullptr with an exception set.
std::unique_ptr<Program> program_parse(PyObject *spec);
bool program_check(Program *program);
constexpr int64_t GIL_BYTES =
    256 << 10; // kernels that move less finish before another thread could use the GIL
int64_t argument_bytes(const Program &program, const Argument &argument); // of its tensors
// Blocks that a GPU has in a direction of a grid.
constexpr int64_t most_blocks(int direction) { return direction ? 65535 : INT32_MAX; }
// Brings a list's table up to date; `data` has the address of every buffer.
bool list_fill(const List &list, void *const *data, ScratchMemory *table, Gpu *gpu);
PyObject *plan_run(Plan *plan, PyObject *const *inputs, size_t nargsf, PyObject *names);
// Takes the inputs out of the list, and lets go of each after the last step that needs it.
PyObject *plan_consume(Plan *plan, PyObject *list);
// Numbers: 64 bits in place of a buffer's address.
bool number_op(const std::string &name, NumberStep *step);
bool int_op(int op, int64_t a, int64_t b, int64_t *result); // false: refused
bool number_bits(PyObject *object, bool is_float, void **result);
PyObject *number_object(const void *bits, bool is_float);
bool number_run(const NumberStep &step, const Tensor *tensors, void **data); // false: refused
extern PyType_Spec plan_type_spec;

} // namespace frameloom
