// Parses a PlanSpec (runtime/spec.py), and checks the types of objects.  The executor's Builder makes
// a Program of the parts, and checks it.
//
// Errors are C++ exceptions up to program_parse, which sets them as Python's.
#pragma once

#include <pybind11/pybind11.h>

#include "builder.h"
#include "plan.h"

namespace frameloom {

namespace py = pybind11;

class Parser {
  public:
    Parser(py::handle spec, Program *program);
    bool parse(); // false with an exception set

  private:
    py::handle spec;
    Program *program;
    Builder builder;
    py::object view_type, input_type, number_type;

    static Layout byte_layout();

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

    int buffer_number(py::handle object) const {
        return builder.known_buffer(PyLong_Check(object.ptr()) ? number(object) : -1);
    }
    int buffer_number(py::handle object, const char *name) const {
        return buffer_number(field(object, name));
    }
    std::vector<int> buffer_numbers(const py::tuple &numbers) const;
    bool is_view(py::handle object) const { return py::type::handle_of(object).is(view_type); }
    bool is_number(py::handle object) const { return py::type::handle_of(object).is(number_type); }
    bool is_input(py::handle object) const { return py::type::handle_of(object).is(input_type); }
    // plan_build.cpp
    void options();
    void buffer(py::handle item);
    static bool is_float(py::handle dtype); // else int64
    int view(py::handle item);              // returns its number, which equal views share
    void outputs();
    Output output(py::handle item);

    // plan_build_numbers.cpp
    void number_step(py::handle item);
    void can_refuse() const;
    int size_number(py::handle object) const {
        return builder.known_size(PyLong_Check(object.ptr()) ? number(object) : -1);
    }
    std::vector<int> size_numbers(py::handle object, const char *name) const;
    void size(py::handle item);

    // plan_build_steps.cpp
    void step(py::handle item);
    void kernel_step(py::handle item);
    // `sizes` gets the sizes in the grid, or -1.
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
    void extern_step(py::handle item);

    // plan_build_shims.cpp
    // Fills in the shim of `call` if the C interface supports the op, its device and these arguments.
    void bind_shim(const std::string &target, const py::tuple &args, const py::dict &kwargs, Extern *call);
    bool shim_argument(PyObject *object, ShimArgument *argument);
    bool shim_view(PyObject *object, ShimArgument *argument);
};

} // namespace frameloom
