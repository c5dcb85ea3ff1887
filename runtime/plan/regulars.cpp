// Counts which sizes many calls have.
#include "regulars.h"

#include "plan.h"

namespace frameloom {

PyObject *Regulars::meet(PyObject *plan, const Program &program) {
    const Sizes &sizes = program.sizes;
    if (sizes.stamp != stamp) {
        std::vector<int64_t> values;
        for (int key : program.keys) values.push_back(sizes.values[(size_t)key]);
        stamp = sizes.stamp;
        latest = find(values);
        if (latest == nullptr && asked < MOST) {
            latest = newcomer();
            if (latest) latest->values = std::move(values);
        }
    }
    if (latest == nullptr) return nullptr;
    PyObject *own = latest->plan; // read now: `tell` may run other calls, which change `latest`
    if (!latest->told && ++latest->calls == OFTEN && asked < MOST) tell(plan, program, latest);
    return own;
}

Regulars::Regular *Regulars::find(const std::vector<int64_t> &values) {
    for (Regular &regular : regulars)
        if (regular.calls && regular.values == values) return &regular;
    return nullptr;
}

// Returns a free entry for new sizes.  If there is none, it decreases by one the count of each entry
// for which no plan was requested (Misra and Gries, Finding repeated elements, 1982): only sizes of
// more than one in nine calls stay.
Regulars::Regular *Regulars::newcomer() {
    for (Regular &regular : regulars)
        if (regular.calls == 0) return &regular;
    for (Regular &regular : regulars)
        if (!regular.told) regular.calls--;
    return nullptr;
}

void Regulars::tell(PyObject *plan, const Program &program, Regular *regular) {
    regular->told = true;
    asked++;
    PyObject *values = PyTuple_New((Py_ssize_t)regular->values.size());
    for (size_t i = 0; i < regular->values.size() && values; i++) {
        PyObject *value = PyLong_FromLongLong(regular->values[i]);
        if (value)
            PyTuple_SET_ITEM(values, (Py_ssize_t)i, value);
        else
            Py_CLEAR(values);
    }
    PyObject *done = values ? PyObject_CallFunctionObjArgs(program.steady, plan, values, nullptr) : nullptr;
    Py_XDECREF(values);
    Py_XDECREF(done);
    if (done == nullptr) PyErr_WriteUnraisable(plan); // the call itself continues
}

bool Regulars::settle(PyObject *values, PyObject *other) {
    std::vector<int64_t> wanted;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i++)
        wanted.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(values, i)));
    if (PyErr_Occurred()) return false;
    Regular *regular = find(wanted);
    if (regular) Py_XSETREF(regular->plan, Py_NewRef(other));
    return regular || wrong("a plan never had these sizes");
}

int Regulars::traverse(visitproc visit, void *arg) const {
    for (const Regular &regular : regulars) Py_VISIT(regular.plan);
    return 0;
}

void Regulars::clear() {
    for (Regular &regular : regulars) Py_CLEAR(regular.plan);
}

} // namespace frameloom
