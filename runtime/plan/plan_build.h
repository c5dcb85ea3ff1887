// Parses a PlanSpec (runtime/spec.py) into a Program, and checks the ranges of numbers and the
// types of objects.  plan_check.cpp checks the program as a whole.
#pragma once

#include "plan.h"

#include <unordered_map>

namespace frameloom {

// A strong reference that is released by the destructor.
struct Ref {
    PyObject *object;
    explicit Ref(PyObject *owned) : object(owned) {}
    Ref(const Ref &) = delete;
    ~Ref() { Py_XDECREF(object); }
    explicit operator bool() const { return object != nullptr; }
};

class Parser {
  public:
    Parser(PyObject *spec, Program *program) : spec(spec), program(program) {}
    bool parse();

  private:
    PyObject *spec;
    Program *program;
    std::unordered_map<int, std::vector<int>> views_of; // by buffer
    PyObject *view_type = nullptr, *input_type = nullptr, *number_type = nullptr;

    // Returns a field of one of spec.py's dataclasses, borrowed: the object keeps it alive.
    static PyObject *field(PyObject *object, const char *name) {
        PyObject *value = PyObject_GetAttrString(object, name);
        Py_XDECREF(value);
        return value;
    }

    static bool number(PyObject *object, const char *name, long long *result) {
        PyObject *value = field(object, name);
        *result = value ? PyLong_AsLongLong(value) : -1;
        return value && !PyErr_Occurred();
    }

    static bool sized_number(PyObject *object, const char *name, int64_t *result, int *size) {
        PyObject *value = field(object, name);
        return value && read_int(value, result, size);
    }

    template <typename Take> bool each(const char *name, Take take) {
        PyObject *items = field(spec, name);
        if (items == nullptr || !PyTuple_Check(items)) return wrong("the fields of a plan are tuples");
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++)
            if (!take(PyTuple_GET_ITEM(items, i))) return false;
        return true;
    }

    bool buffer_number(PyObject *object, int *result) const {
        long long value = PyLong_Check(object) ? PyLong_AsLongLong(object) : -1;
        if (value < 0 || value >= (long long)program->buffers.size())
            return wrong("a plan names a buffer that it does not have");
        *result = (int)value;
        return true;
    }

    bool buffer_numbers(PyObject *tuple, std::vector<int> *result) const {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
            int number;
            if (!buffer_number(PyTuple_GET_ITEM(tuple, i), &number)) return false;
            result->push_back(number);
        }
        return true;
    }

    bool is_view(PyObject *object) const { return Py_TYPE(object) == (PyTypeObject *)view_type; }
    bool is_number(PyObject *object) const { return Py_TYPE(object) == (PyTypeObject *)number_type; }
    bool is_input(PyObject *object) const { return Py_TYPE(object) == (PyTypeObject *)input_type; }

    // plan_build.cpp
    // Returns the number of the arena on the device of `layout`; makes it for the first buffer.
    int arena_for(const Layout &layout);
    int new_arena(const Layout &layout, bool is_table);
    bool buffer(PyObject *item);
    static bool number_dtype(PyObject *dtype, bool *is_float);
    bool inputs_come_first() const;
    // Returns the number of the view, which equal views share; -1 with an exception set.
    int view(PyObject *item);
    int add_view(View &&view);
    int whole(int buffer);
    const Output *base_among(const std::vector<Output *> &outputs);
    bool share_bases();
    bool output(PyObject *item);

    // plan_build_numbers.cpp
    bool number_step(PyObject *item);
    bool can_refuse() const;
    bool size_number(PyObject *object, int *result) const;
    bool size_numbers(PyObject *tuple, std::vector<int> *result) const;
    bool size(PyObject *item);
    static bool int_op_known(NumberStep::Op op);

    // plan_build_steps.cpp
    bool kernel_step(PyObject *item);
    // `sizes` gets the sizes in the grid, or -1; if it is null, the grid may have none.
    static bool grid_of(PyObject *grid, int64_t *extents, int *sizes);
    // Parses the sizes that a kernel on a GPU takes, each as 32 or 64 bits.
    bool launch_sizes(PyObject *sizes, Launch *launch) const;
    bool launch_limit(PyObject *limit, Launch *launch) const;
    bool launch_step(PyObject *item);
    bool list_step(PyObject *item);
    bool check_step(PyObject *item);
    bool draw_step(PyObject *item);
    bool read_step(PyObject *item);

    // plan_build_externs.cpp
    // Whether a container holds a tensor or a symbolic number at any depth: only then it is built
    // again in every call.
    bool holds_tensor(PyObject *object) const;
    bool argument(PyObject *object, Argument *result);
    bool extern_arguments(PyObject *args, PyObject *kwargs, Extern *call);
    bool extern_results(PyObject *results, Extern *call);
    // Finds the keyword names under which results are passed: from the schema if the function has
    // one.
    bool out_names(Extern *call);
    // Returns the builtin that an OpOverload's Python-level __call__ calls, as a new reference;
    // nullptr for other functions.
    static PyObject *native_function(PyObject *function);
    bool extern_step(PyObject *item);
    // Finds the device of the tensors.  Tensors on the CPU beside those on a GPU do not count: they
    // may be numbers.
    void find_device(const Argument &argument, std::string *device) const;
};

} // namespace frameloom
