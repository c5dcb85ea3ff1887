// Counts which sizes many calls have.
#include "hot_shapes.h"

#include "plan.h"

namespace frameloom {

PyObject *HotShapes::record(PyObject *plan, const Program &program) {
    const Sizes &sizes = program.sizes;
    if (sizes.stamp != stamp) {
        std::vector<int64_t> values;
        for (int key : program.keys) values.push_back(sizes.values[(size_t)key]);
        stamp = sizes.stamp;
        latest = find(values);
        if (latest == nullptr && requests < MOST) {
            latest = admit();
            if (latest) latest->values = std::move(values);
        }
    }
    if (latest == nullptr) return nullptr;
    PyObject *own = latest->plan; // read now: `request` may run other calls, which change `latest`
    if (!latest->requested && ++latest->calls == OFTEN && requests < MOST) request(plan, program, latest);
    return own;
}

HotShapes::Entry *HotShapes::find(const std::vector<int64_t> &values) {
    for (Entry &entry : entries)
        if (entry.calls && entry.values == values) return &entry;
    return nullptr;
}

// Returns a free entry for new sizes.  If there is none, it decreases by one the count of each entry
// for which no plan was requested (Misra and Gries, Finding repeated elements, 1982): only sizes of
// more than one in nine calls stay.
HotShapes::Entry *HotShapes::admit() {
    for (Entry &entry : entries)
        if (entry.calls == 0) return &entry;
    for (Entry &entry : entries)
        if (!entry.requested) entry.calls--;
    return nullptr;
}

void HotShapes::request(PyObject *plan, const Program &program, Entry *entry) {
    entry->requested = true;
    requests++;
    PyObject *values = tuple_of(entry->values);
    PyObject *done = values ? PyObject_CallFunctionObjArgs(program.steady, plan, values, nullptr) : nullptr;
    Py_XDECREF(values);
    Py_XDECREF(done);
    if (done == nullptr) PyErr_WriteUnraisable(plan); // the call itself continues
}

bool HotShapes::specialize(PyObject *values, PyObject *other) {
    std::vector<int64_t> wanted;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i++)
        wanted.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(values, i)));
    if (PyErr_Occurred()) return false;
    Entry *entry = find(wanted);
    if (entry) Py_XSETREF(entry->plan, Py_NewRef(other));
    return entry || wrong("a plan never had these sizes");
}

int HotShapes::traverse(visitproc visit, void *arg) const {
    for (const Entry &entry : entries) Py_VISIT(entry.plan);
    return 0;
}

void HotShapes::clear() {
    for (Entry &entry : entries) Py_CLEAR(entry.plan);
}

} // namespace frameloom
