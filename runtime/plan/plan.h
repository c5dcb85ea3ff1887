// The Python type Plan: a program of the executor that plan_build.cpp parses from runtime/spec.py's
// PlanSpec.
//
// Objects in the Program are borrowed from the spec, which the Plan keeps alive.
#pragma once

#include "python_tensors.h"

#include "hot_shapes.h"
#include "scratch.h"

namespace frameloom {

struct Plan {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *spec;
    Program *program;
    Scratch *scratch;      // kept between calls; nullptr if none was made or a call uses it
    HotShapes *hot_shapes; // nullptr if sizes are not counted
    Py_ssize_t calls;
};

// nullptr with an exception set.
std::unique_ptr<Program> program_parse(PyObject *spec);
PyObject *plan_run(Plan *plan, PyObject *const *inputs, size_t nargsf, PyObject *names);
// Takes the inputs out of the list, and frees each after the last step that needs it.
PyObject *plan_consume(Plan *plan, PyObject *list);
PyObject *shim_names(PyObject *module, PyObject *ignored); // plan_build_shims.cpp
extern PyType_Spec plan_type_spec;

} // namespace frameloom
