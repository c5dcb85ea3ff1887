// The native plan: a program parsed from runtime/spec.py's PlanSpec (plan_build.cpp), run by plan_run.cpp.
//
// PyObjects in a Program are borrowed from the spec, which the Plan object keeps, unless a comment says
// otherwise.
#pragma once

#include "shims.h"
#include "tensors.h"

#include <memory>
#include <string>
#include <vector>

namespace frameloom {

struct Buffer {
    enum Kind { INPUT, OUTPUT, ARENA, EXTERN, CONSTANT } kind;
    Layout layout;
    int64_t offset;     // ARENA: bytes into the scratch memory
    PyObject *constant; // CONSTANT
    std::string device; // "cpu"
};

struct View {
    int buffer;
    Layout layout;
    int64_t offset; // in elements of the view
    bool whole;     // the buffer as it is
};

struct Kernel {
    void (*function)(void *const *buffers, const int64_t *sizes);
    std::vector<int> buffers;
    bool release_gil;
};

// An argument of a Python call: a tensor, a constant, or a container that holds tensors.
struct Argument {
    enum Kind { VIEW, INPUT, OBJECT, LIST, TUPLE } kind;
    int number; // of the view or input
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
    ShimCall shim;
};

// Raises when a kernel has left a mark: an index was out of range.
struct Check {
    int buffer;
    PyObject *exception, *message;
};

struct Step {
    enum Kind { KERNEL, EXTERN, CHECK } kind;
    int number;                                // in kernels, externs or checks
    std::vector<int> dead_buffers, dead_views; // library results that nothing needs after this step
};

struct Output {
    enum Kind { VIEW, INPUT, CONSTANT } kind;
    int number; // view or input
    PyObject *constant;
    int repeats = -1; // the last earlier output that is the same view
};

struct Program {
    int input_count = 0;
    std::vector<Buffer> buffers;
    std::vector<View> views;
    std::vector<Kernel> kernels;
    std::vector<Extern> externs;
    std::vector<Check> checks;
    std::vector<Step> steps;
    std::vector<Output> outputs;
    std::vector<int> tensor_inputs; // inputs of which more than the object is used
    std::vector<int> addressed;     // inputs and constants whose address a kernel wants
    std::vector<int> made;          // OUTPUT buffers
    std::vector<int> scratch;       // ARENA buffers
    int64_t arena_bytes = 0;
    bool keeps_scratch = false; // there is an arena, or a C function that may want views
    int arena_buffer = -1;      // gives the device of the scratch memory
    int widest_kernel = 0;

    Program() = default;
    Program(const Program &) = delete;
    ~Program() {
        for (Extern &call : externs) Py_XDECREF(call.native);
    }
};

// What calls leave for each other; one call has it at a time.
struct Scratch {
    Tensor memory{}; // none if the plan has no arena
    void *base = nullptr;
    // Views of the memory, and views that C functions are given of inputs and constants.  These own nothing:
    // they serve as long as the tensor is found at the same address, where they are needed only while it is
    // alive.
    std::vector<Tensor> views;
    std::vector<void *> addresses;
    explicit Scratch(size_t count) : views(count), addresses(count) {}
    ~Scratch();
};

struct Plan {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *spec;
    Program *program;
    Scratch *scratch; // kept between calls; nullptr while none was made or a call has it
    Py_ssize_t calls;
};

// nullptr with an exception set.
std::unique_ptr<Program> program_parse(PyObject *spec);
PyObject *plan_run(Plan *plan, PyObject *const *inputs, size_t nargsf, PyObject *names);
extern PyType_Spec plan_type_spec;

} // namespace frameloom
