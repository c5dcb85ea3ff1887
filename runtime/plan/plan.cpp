// The Python type Plan: owns the spec, the program that is made from it, and the scratch memory
// kept between calls.
#include "plan.h"

#include <structmember.h>

#include <cstddef>

namespace frameloom {

namespace {

PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"spec", nullptr};
    PyObject *spec;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char **>(names), &spec)) return nullptr;
    std::unique_ptr<Program> program = program_parse(spec);
    if (program == nullptr) return nullptr;
    Plan *plan = reinterpret_cast<Plan *>(type->tp_alloc(type, 0));
    if (plan == nullptr) return nullptr;
    plan->vectorcall = reinterpret_cast<vectorcallfunc>(plan_run);
    plan->spec = Py_NewRef(spec);
    if (program->steady) plan->hot_shapes = new HotShapes;
    plan->program = program.release();
    return reinterpret_cast<PyObject *>(plan);
}

int plan_traverse(Plan *plan, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(plan));
    Py_VISIT(plan->spec);
    return plan->hot_shapes ? plan->hot_shapes->traverse(visit, arg) : 0;
}

// The program borrows from the spec, so both are freed together.  A running call keeps the plan
// alive, so none runs here.
int plan_clear(Plan *plan) {
    delete plan->scratch;
    plan->scratch = nullptr;
    delete plan->program;
    plan->program = nullptr;
    delete plan->hot_shapes;
    plan->hot_shapes = nullptr;
    Py_CLEAR(plan->spec);
    return 0;
}

void plan_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    plan_clear(reinterpret_cast<Plan *>(self));
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *plan_specialize(Plan *plan, PyObject *args) {
    PyObject *values, *other;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &values, Py_TYPE(plan), &other)) return nullptr;
    if (plan->hot_shapes == nullptr)
        return PyErr_Format(PyExc_ValueError, "this plan never asked for another");
    if (!plan->hot_shapes->specialize(values, other)) return nullptr;
    delete plan->scratch; // calls with other sizes may never need it again
    plan->scratch = nullptr;
    return Py_NewRef(Py_None);
}

PyObject *plan_arena_bytes(Plan *plan, void *) {
    return PyLong_FromLongLong(plan->program ? plan->program->arena_bytes : 0);
}

PyMethodDef methods[] = {
    {"consume", reinterpret_cast<PyCFunction>(plan_consume), METH_O,
     "A call with the inputs in a list, which is emptied: each input is let go of after its last use."},
    {"specialize", reinterpret_cast<PyCFunction>(plan_specialize), METH_VARARGS,
     "specialize(values, plan): calls whose sizes have these values, as `steady` of the spec got them, run "
     "that plan."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"calls", T_PYSSIZET, offsetof(Plan, calls), READONLY, "how often it ran"},
    {"spec", T_OBJECT, offsetof(Plan, spec), READONLY, "what it was built from"},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Plan, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef getset[] = {
    {"arena_bytes", reinterpret_cast<getter>(plan_arena_bytes), nullptr, "size of the scratch memory",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char *>("A flat program over tensors, run natively: plan(*inputs) -> tuple.")},
    {Py_tp_new, reinterpret_cast<void *>(plan_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(plan_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void *>(plan_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(plan_clear)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, getset},
    {0, nullptr},
};

} // namespace

PyType_Spec plan_type_spec = {
    "frameloom.runtime._runtime.Plan",
    sizeof(Plan),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    slots,
};

} // namespace frameloom
