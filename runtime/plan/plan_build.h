// Parses a PlanSpec (runtime/spec.py) into a Program, and checks the ranges of numbers and the
// types of objects.  plan_check.cpp checks the program as a whole.
//
// Errors are C++ exceptions up to program_parse, which sets them as Python's.
#pragma once

#include <pybind11/pybind11.h>

#include "plan.h"
#include "shims.h"

#include <unordered_map>

namespace frameloom {

namespace py = pybind11;

// Throws: the spec is wrong.
[[noreturn]] inline void refuse(const char *what) {
    if (PyErr_Occurred()) throw py::error_already_set();
    throw py::value_error(what);
}

inline void require(bool good, const char *what) {
    if (!good) refuse(what);
}

// Returns the number of the view for an object of the spec; -1 with an exception set if it is no
// view.
using ViewNumber = int (*)(void *context, PyObject *view);

// Fills in `call` if the C interface supports the op, its device and these arguments; otherwise
// leaves it empty.  False with an exception set only if the spec is wrong.
bool shim_bind(const std::string &target, const std::string &device, PyObject *args, PyObject *kwargs,
               bool out_form, size_t results, PyObject *view_type, ViewNumber view_number, void *context,
               ShimCall *call);

class Parser {
  public:
    Parser(py::handle spec, Program *program);
    void parse();

  private:
    py::handle spec;
    Program *program;
    std::unordered_map<int, std::vector<int>> views_of; // by buffer
    py::object view_type, input_type, number_type;
    Layout byte_layout; // one byte on the CPU

    // Fields of spec.py's dataclasses.  The objects keep what `field` returns alive.
    static PyObject *field(py::handle object, const char *name) {
        return py::object(object.attr(name)).ptr();
    }
    static PyObject *field_or_null(py::handle object, const char *name) {
        PyObject *value = field(object, name);
        return value == Py_None ? nullptr : value;
    }
    static py::tuple items(py::handle object, const char *name, const char *what);
    static long long number(py::handle object);
    static long long number(py::handle object, const char *name) { return number(field(object, name)); }
    static std::string text(py::handle object, const char *what);
    // An int, or the number of the size that replaces it.
    static void sized_number(py::handle object, const char *name, int64_t *result, int *size);
    template <typename Take> void each(const char *name, Take take) {
        for (py::handle item : items(spec, name, "the fields of a plan are tuples")) take(item);
    }

    int buffer_number(py::handle object) const;
    int buffer_number(py::handle object, const char *name) const {
        return buffer_number(field(object, name));
    }
    std::vector<int> buffer_numbers(const py::tuple &numbers) const;
    bool is_view(py::handle object) const { return py::type::handle_of(object).is(view_type); }
    bool is_number(py::handle object) const { return py::type::handle_of(object).is(number_type); }
    bool is_input(py::handle object) const { return py::type::handle_of(object).is(input_type); }
    // Adds a step, whose own data was just added at the end of `all`.
    template <typename Item> void add(Step::Kind kind, std::vector<Item> *all, Item &&item) {
        program->steps.push_back({kind, (int)all->size(), {}, {}, {}, {}, {}});
        all->push_back(std::move(item));
    }

    // plan_build.cpp
    void options();
    // Returns the number of the arena on the device of `layout`; makes it for the first buffer.
    int arena_for(const Layout &layout);
    int new_arena(const Layout &layout, bool is_table);
    void buffer(py::handle item);
    void place_in_arena(Buffer *buffer, bool is_table);
    static bool is_float(py::handle dtype); // else int64
    void inputs_come_first() const;
    int view(py::handle item); // returns its number, which equal views share
    int add_view(View &&view);
    int whole(int buffer);
    static const Output *base_among(const Program &program, const std::vector<Output *> &outputs);
    void share_bases();
    void output(py::handle item);

    // plan_build_numbers.cpp
    void number_step(py::handle item);
    void can_refuse() const;
    int size_number(py::handle object) const;
    std::vector<int> size_numbers(py::handle object, const char *name) const;
    void size(py::handle item);

    // plan_build_steps.cpp
    void step(py::handle item);
    void kernel_step(py::handle item);
    // `sizes` gets the sizes in the grid, or -1; if it is null, the grid may have none.
    static void grid_of(py::handle item, int64_t *extents, int *sizes);
    // Parses the sizes that a kernel on a GPU takes, each as 32 or 64 bits.
    void launch_sizes(py::handle item, Launch *launch) const;
    void launch_limit(py::handle item, Launch *launch) const;
    void launch_step(py::handle item);
    void list_step(py::handle item);
    void check_step(py::handle item);
    void draw_step(py::handle item);
    void read_step(py::handle item);

    // plan_build_externs.cpp
    // Whether a container holds a tensor or a symbolic number at any depth: only then it is built
    // again in every call.
    bool holds_tensor(py::handle object) const;
    Argument argument(py::handle object);
    void extern_arguments(const py::tuple &args, const py::dict &kwargs, Extern *call);
    void extern_results(const py::tuple &results, Extern *call);
    void extern_step(py::handle item);
    // Finds the device of the tensors.  Tensors on the CPU beside those on a GPU do not count: they
    // may be numbers.
    void find_device(const Argument &argument, std::string *device) const;
};

} // namespace frameloom
