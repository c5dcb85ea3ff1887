/* Guards: the type, and how its program is built.
 *
 * A program is a list of steps in the order of creation: a load sets the object of a node, a check tests a
 * node. guard_walk.c walks the steps (its fast paths are in guard_sections.c); guard_text.c describes
 * them.
 */
#include "guard.h"

static const GuardKind *const CHECKS[] = {
    guard_object_checks, guard_container_checks, guard_tensor_checks,
    guard_length_checks, guard_number_checks,    guard_size_checks,
};

const GuardKind *guard_kind_named(const GuardKind *rows, PyObject *name) {
    for (; rows->name; rows++)
        if (PyUnicode_CompareWithASCIIString(name, rows->name) == 0) return rows;
    return NULL;
}

/* Makes room for one more element of `size` bytes in a growing array; 0, or -1 with an exception set. */
static int reserve(void **items, Py_ssize_t count, Py_ssize_t *room, size_t size) {
    if (count < *room) return 0;
    Py_ssize_t wanted = *room ? *room * 2 : 8;
    void *larger = PyMem_Realloc(*items, wanted * size);
    if (larger == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *items = larger;
    *room = wanted;
    return 0;
}

static int append_index(Py_ssize_t **items, Py_ssize_t *count, Py_ssize_t *room, Py_ssize_t value) {
    if (reserve((void **)items, *count, room, sizeof **items) < 0) return -1;
    (*items)[(*count)++] = value;
    return 0;
}

static void step_release(Step *step) {
    Py_XDECREF(step->object);
    if (step->kind->release) step->kind->release(step);
}

/* Whether `value` is, or is an instance of, a subclass of Tensor with a __torch_function__ in Python. That of
 * Parameter is a function in C. */
static int overrides_functions(PyObject *value) {
    static PyObject *name;
    if (name == NULL) name = PyUnicode_InternFromString("__torch_function__");
    PyTypeObject *type = PyType_Check(value) ? (PyTypeObject *)value : Py_TYPE(value);
    if (type == torch_header.tensor_type || !PyType_IsSubtype(type, torch_header.tensor_type)) return 0;
    PyObject *function = name ? _PyType_Lookup(type, name) : NULL;
    return function == NULL || !PyCFunction_Check(function);
}

/* Adds a step with this key or value; 0, or -1 with an exception set. */
static int step_add(Guards *self, Step step, PyObject *value) {
    if (step.kind->take && step.kind->take(&step, value, guards_node_count(self)) < 0) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%s: a %.100s cannot be guarded in this way", step.kind->name,
                         Py_TYPE(value)->tp_name);
        return -1;
    }
    sections_free(self->sections);
    self->sections = NULL;
    if (reserve((void **)&self->steps, self->step_count, &self->step_room, sizeof(Step)) < 0) {
        step_release(&step);
        return -1;
    }
    self->steps[self->step_count++] = step;
    self->overridden |= overrides_functions(value);
    return 0;
}

static PyObject *Guards_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "", names)) return NULL;
    if (guard_no_attributes == NULL && (guard_no_attributes = PyDict_New()) == NULL) return NULL;
    Guards *self = (Guards *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->paths = PyList_New(0);
    if (self->paths == NULL) Py_CLEAR(self);
    return (PyObject *)self;
}

static int Guards_traverse(Guards *self, visitproc visit, void *arg) {
    Py_VISIT(self->paths);
    for (Py_ssize_t i = 0; i < self->step_count; i++) {
        Py_VISIT(self->steps[i].object);
        const GuardKind *kind = self->steps[i].kind;
        if (kind->traverse && kind->traverse(&self->steps[i], visit, arg)) return 1;
    }
    return global_state_traverse(self->global_state, visit, arg);
}

static int Guards_clear(Guards *self) {
    Py_ssize_t count = self->step_count;
    Step *steps = self->steps;
    GlobalState *state = self->global_state;
    sections_free(self->sections);
    self->sections = NULL;
    self->step_count = self->step_room = self->slot_count = self->fresh_count = 0;
    self->steps = NULL;
    self->global_state = NULL;
    for (Py_ssize_t i = 0; i < count; i++) step_release(&steps[i]);
    PyMem_Free(steps);
    global_state_free(state);
    return 0;
}

static void Guards_dealloc(Guards *self) {
    PyObject_GC_UnTrack(self);
    Guards_clear(self);
    Py_CLEAR(self->paths);
    PyMem_Free(self->slot_nodes);
    PyMem_Free(self->fresh_nodes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* The number of a node; -1 with an exception set if there is no such node. */
static Py_ssize_t node_of(Guards *self, PyObject *number) {
    Py_ssize_t node = PyLong_AsSsize_t(number);
    return PyErr_Occurred() || !guard_node_known(node, guards_node_count(self)) ? -1 : node;
}

static PyObject *Guards_load(Guards *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 4 || !PyUnicode_Check(args[1]) || !PyUnicode_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "load(parent, kind, key, path)");
        return NULL;
    }
    const GuardKind *kind = guard_kind_named(guard_loads, args[1]);
    if (kind == NULL) return PyErr_Format(PyExc_ValueError, "no guard loads %R", args[1]);
    Py_ssize_t parent = kind->root ? 0 : node_of(self, args[0]), node = guards_node_count(self);
    if (parent < 0) return NULL;
    if (step_add(self, (Step){.kind = kind, .node = (int32_t)node, .parent = (int32_t)parent}, args[2]) < 0 ||
        PyList_Append(self->paths, args[3]) < 0)
        return NULL;
    if (kind->fresh && append_index(&self->fresh_nodes, &self->fresh_count, &self->fresh_room, node) < 0)
        return NULL;
    return PyLong_FromSsize_t(node);
}

static PyObject *Guards_check(Guards *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs < 2 || nargs > 3 || !PyUnicode_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "check(node, kind, value=None)");
        return NULL;
    }
    Py_ssize_t node = node_of(self, args[0]);
    if (node < 0) return NULL;
    const GuardKind *kind = NULL;
    for (size_t i = 0; kind == NULL && i < Py_ARRAY_LENGTH(CHECKS); i++)
        kind = guard_kind_named(CHECKS[i], args[1]);
    if (kind == NULL) return PyErr_Format(PyExc_ValueError, "no guard checks %R", args[1]);
    if (step_add(self, (Step){.kind = kind, .node = (int32_t)node}, nargs == 3 ? args[2] : Py_None) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *Guards_global_state(Guards *self, PyObject *Py_UNUSED(ignored)) {
    GlobalState *state = global_state_new();
    if (state == NULL) return NULL;
    global_state_free(self->global_state);
    self->global_state = state;
    Py_RETURN_NONE;
}

static PyObject *Guards_slot(Guards *self, PyObject *number) {
    Py_ssize_t node = node_of(self, number);
    if (node < 0 || append_index(&self->slot_nodes, &self->slot_count, &self->slot_room, node) < 0)
        return NULL;
    return PyLong_FromSsize_t(self->slot_count - 1);
}

/* The call whose bound arguments and function are given; 0 with an exception set. */
static int call_given(PyObject *const *args, Py_ssize_t nargs, Call *call) {
    if (nargs != 2 || !PyTuple_Check(args[0]) || !PyFunction_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "expected bound arguments and a function");
        return 0;
    }
    *call =
        (Call){((PyTupleObject *)args[0])->ob_item, PyTuple_GET_SIZE(args[0]), (PyFunctionObject *)args[1]};
    return 1;
}

static PyObject *Guards_explain_failure(Guards *self, PyObject *const *args, Py_ssize_t nargs) {
    Call call;
    return call_given(args, nargs, &call) ? guards_explain(self, &call) : NULL;
}

static PyObject *Guards_passes(Guards *self, PyObject *const *args, Py_ssize_t nargs) {
    Call call;
    if (!call_given(args, nargs, &call)) return NULL;
    PyObject **slots = PyMem_Malloc((self->slot_count + 1) * sizeof *slots);
    if (slots == NULL) return PyErr_NoMemory();
    int passed = guards_pass(self, &call, slots);
    for (Py_ssize_t i = 0; passed && i < self->slot_count; i++) Py_DECREF(slots[i]);
    PyMem_Free(slots);
    return PyBool_FromLong(passed);
}

/* Whether no call is accepted any more, as after a write to a tensor that must be unchanged. */
static PyObject *Guards_is_stale(Guards *self, PyObject *Py_UNUSED(ignored)) {
    for (Py_ssize_t i = 0; i < self->step_count; i++) {
        const Step *step = &self->steps[i];
        if (step->kind->stale && step->kind->stale(step)) Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
}

static PyObject *Guards_texts(Guards *self, PyObject *Py_UNUSED(ignored)) { return guards_texts(self); }

static PyMethodDef Guards_methods[] = {
    {"load", _PyCFunction_CAST(Guards_load), METH_FASTCALL, "load(parent, kind, key, path) -> node"},
    {"check", _PyCFunction_CAST(Guards_check), METH_FASTCALL, "check(node, kind, value=None)"},
    {"global_state", (PyCFunction)Guards_global_state, METH_NOARGS, "global_state()"},
    {"slot", (PyCFunction)Guards_slot, METH_O, "slot(node) -> position"},
    {"explain_failure", _PyCFunction_CAST(Guards_explain_failure), METH_FASTCALL,
     "explain_failure(slots, function) -> str | None"},
    {"passes", _PyCFunction_CAST(Guards_passes), METH_FASTCALL,
     "passes(slots, function) -> bool: whether a call with these bound arguments is accepted"},
    {"is_stale", (PyCFunction)Guards_is_stale, METH_NOARGS,
     "is_stale() -> bool: no call is ever accepted again"},
    {"texts", (PyCFunction)Guards_texts, METH_NOARGS, "texts() -> list[str]"},
    {NULL, NULL, 0, NULL},
};

PyTypeObject Guards_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "frameloom.capture._capture.Guards",
    .tp_basicsize = sizeof(Guards),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "A tree of checks over what a call can reach.",
    .tp_new = Guards_new,
    .tp_dealloc = (destructor)Guards_dealloc,
    .tp_traverse = (traverseproc)Guards_traverse,
    .tp_clear = (inquiry)Guards_clear,
    .tp_methods = Guards_methods,
};
