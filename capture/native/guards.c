/* Guards: the type, and how its program is built.
 *
 * A program is a list of steps in the order of creation: a load sets the object of a node, a check tests a
 * node. guard_walk.c walks the steps (its fast paths are in guard_sections.c); guard_text.c describes
 * them.
 */
#include "guard.h"

#include <string.h>

static const GuardKind *const CHECKS[] = {
    guard_object_checks, guard_container_checks, guard_tensor_checks,
    guard_length_checks, guard_number_checks,    guard_size_checks,
};

/* The row of that name; NULL if there is none. */
static const GuardKind *row_named(const GuardKind *rows, PyObject *name) {
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

/* A zeroed step, borrowed from the program. It is counted at once, so that it is freed with the guards
 * after any error. */
static Step *step_new(Guards *self, const GuardKind *kind, Py_ssize_t node) {
    sections_free(self->sections);
    self->sections = NULL;
    if (reserve((void **)&self->steps, self->step_count, &self->step_room, sizeof(Step)) < 0) return NULL;
    Step *step = &self->steps[self->step_count++];
    memset(step, 0, sizeof *step);
    step->kind = kind;
    step->node = (int32_t)node;
    return step;
}

/* Adds a load for a new node called `path` (stolen, may be NULL after a failure); returns the step, or
 * NULL with an exception set. */
static Step *load_new(Guards *self, const GuardKind *kind, PyObject *path) {
    if (path == NULL) return NULL;
    Py_ssize_t node = guards_node_count(self);
    int failed = PyList_Append(self->paths, path);
    Py_DECREF(path);
    return failed ? NULL : step_new(self, kind, node);
}

static PyObject *node_number(const Step *step) { return step ? PyLong_FromSsize_t(step->node) : NULL; }

static int node_known(Guards *self, Py_ssize_t node) {
    return guard_node_known(node, guards_node_count(self));
}

static void step_release(Step *step) {
    Py_XDECREF(step->object);
    if (step->kind->release) step->kind->release(step);
}

/* Stores the key or the value of a step that is being made; 0, or -1 with an exception set. */
static int step_take(Guards *self, Step *step, PyObject *value) {
    if (step->kind->take == NULL || step->kind->take(step, value, guards_node_count(self)) == 0) return 0;
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%s: a %.100s cannot be guarded in this way", step->kind->name,
                     Py_TYPE(value)->tp_name);
    return -1;
}

static PyObject *Guards_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"code", NULL};
    PyObject *code;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", names, &PyCode_Type, &code)) return NULL;
    if (guard_no_attributes == NULL && (guard_no_attributes = PyDict_New()) == NULL) return NULL;
    Guards *self = (Guards *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    /* Not the code itself, because its entries may have these guards. */
    self->names = Py_NewRef(((PyCodeObject *)code)->co_localsplusnames);
    self->function_name = Py_NewRef(((PyCodeObject *)code)->co_qualname);
    self->free_count = ((PyCodeObject *)code)->co_nfreevars;
    self->paths = PyList_New(0);
    if (self->paths == NULL) Py_CLEAR(self);
    return (PyObject *)self;
}

static int Guards_traverse(Guards *self, visitproc visit, void *arg) {
    Py_VISIT(self->names);
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
    Py_CLEAR(self->names);
    Py_CLEAR(self->function_name);
    PyMem_Free(self->slot_nodes);
    PyMem_Free(self->fresh_nodes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* --- roots --- */

static PyObject *Guards_arg(Guards *self, PyObject *position) {
    Py_ssize_t index = PyLong_AsSsize_t(position);
    if (index == -1 && PyErr_Occurred()) return NULL;
    PyObject *names = self->names;
    if (index < 0 || index >= PyTuple_GET_SIZE(names)) {
        PyErr_Format(PyExc_IndexError, "%U has no argument %zd", self->function_name, index);
        return NULL;
    }
    Step *step = load_new(self, &guard_arg, Py_NewRef(PyTuple_GET_ITEM(names, index)));
    if (step) step->number = index;
    return node_number(step);
}

static PyObject *Guards_cell(Guards *self, PyObject *position) {
    Py_ssize_t index = PyLong_AsSsize_t(position), free_count = self->free_count;
    if (index == -1 && PyErr_Occurred()) return NULL;
    if (index < 0 || index >= free_count) {
        PyErr_Format(PyExc_IndexError, "%U has no free variable %zd", self->function_name, index);
        return NULL;
    }
    PyObject *names = self->names;
    PyObject *name = PyTuple_GET_ITEM(names, PyTuple_GET_SIZE(names) - free_count + index);
    Step *step = load_new(self, &guard_cell, Py_NewRef(name));
    if (step) step->number = index;
    return node_number(step);
}

static PyObject *Guards_globals(Guards *self, PyObject *Py_UNUSED(ignored)) {
    return node_number(load_new(self, &guard_globals, PyUnicode_FromString("globals()")));
}

static PyObject *Guards_object(Guards *self, PyObject *object) {
    PyObject *path = PyType_Check(object) ? PyUnicode_FromString(((PyTypeObject *)object)->tp_name)
                                          : PyUnicode_FromFormat("<%s>", Py_TYPE(object)->tp_name);
    Step *step = load_new(self, &guard_object, path);
    if (step) step->object = Py_NewRef(object);
    return node_number(step);
}

/* --- children --- */

static PyObject *Guards_child(Guards *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs < 2 || nargs > 3 || !PyUnicode_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "child(parent, kind, key=None)");
        return NULL;
    }
    Py_ssize_t parent = PyLong_AsSsize_t(args[0]);
    PyObject *key = nargs == 3 ? args[2] : Py_None;
    if (PyErr_Occurred() || !node_known(self, parent)) return NULL;
    Step taken = {.kind = row_named(guard_loads, args[1]), .parent = (int32_t)parent};
    if (taken.kind == NULL) return PyErr_Format(PyExc_ValueError, "no guard loads %R", args[1]);
    if (step_take(self, &taken, key) < 0) return NULL;
    Step *step = load_new(self, taken.kind, guard_child_path(taken.kind, guard_path(self, parent), key));
    if (step == NULL) {
        step_release(&taken);
        return NULL;
    }
    taken.node = step->node;
    *step = taken;
    if (taken.kind->fresh &&
        append_index(&self->fresh_nodes, &self->fresh_count, &self->fresh_room, step->node) < 0)
        return NULL;
    return node_number(step);
}

/* --- checks --- */

static PyObject *Guards_check(Guards *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs < 2 || nargs > 3 || !PyUnicode_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "check(node, kind, value=None)");
        return NULL;
    }
    Py_ssize_t node = PyLong_AsSsize_t(args[0]);
    if (PyErr_Occurred() || !node_known(self, node)) return NULL;
    Step taken = {.node = (int32_t)node};
    for (size_t i = 0; taken.kind == NULL && i < Py_ARRAY_LENGTH(CHECKS); i++)
        taken.kind = row_named(CHECKS[i], args[1]);
    if (taken.kind == NULL) return PyErr_Format(PyExc_ValueError, "no guard checks %R", args[1]);
    if (step_take(self, &taken, nargs == 3 ? args[2] : Py_None) < 0) return NULL;
    Step *step = step_new(self, taken.kind, node);
    if (step == NULL) {
        step_release(&taken);
        return NULL;
    }
    *step = taken;
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
    Py_ssize_t node = PyLong_AsSsize_t(number);
    if (PyErr_Occurred() || !node_known(self, node)) return NULL;
    if (append_index(&self->slot_nodes, &self->slot_count, &self->slot_room, node) < 0) return NULL;
    return PyLong_FromSsize_t(self->slot_count - 1);
}

static PyObject *Guards_describe(Guards *self, PyObject *args) {
    Py_ssize_t node;
    PyObject *path;
    if (!PyArg_ParseTuple(args, "nU", &node, &path) || !node_known(self, node)) return NULL;
    if (PyList_SetItem(self->paths, node, Py_NewRef(path)) < 0) return NULL;
    Py_RETURN_NONE;
}

/* Binds the arguments as a call does if `kwargs` is given; otherwise `args` are the bound slots. */
static PyObject *Guards_explain_failure(Guards *self, PyObject *args) {
    PyObject *positional, *kwargs, *function, *text = NULL;
    if (!PyArg_ParseTuple(args, "O!OO!", &PyTuple_Type, &positional, &kwargs, &PyFunction_Type, &function))
        return NULL;
    if (!PyDict_Check(kwargs)) {
        Call call = {((PyTupleObject *)positional)->ob_item, PyTuple_GET_SIZE(positional),
                     (PyFunctionObject *)function};
        return guards_explain(self, &call);
    }
    Py_ssize_t count = PyTuple_GET_SIZE(positional), named = PyDict_GET_SIZE(kwargs), at = 0, i = 0;
    PyObject *names = PyTuple_New(named), *key, *value;
    PyObject **flat = PyMem_Malloc((count + named + 1) * sizeof *flat);
    if (names == NULL || flat == NULL) {
        Py_XDECREF(names);
        PyMem_Free(flat);
        return PyErr_NoMemory();
    }
    for (i = 0; i < count; i++) flat[i] = PyTuple_GET_ITEM(positional, i);
    for (i = 0; PyDict_Next(kwargs, &at, &key, &value); i++) {
        PyTuple_SET_ITEM(names, i, Py_NewRef(key));
        flat[count + i] = value;
    }
    Bound bound;
    int fits = bind_arguments((PyFunctionObject *)function, flat, count, names, &bound);
    if (fits > 0) {
        Call call = {bound.slots, bound.count, (PyFunctionObject *)function};
        text = guards_explain(self, &call);
        bound_release(&bound);
    } else if (fits == 0) {
        text = PyUnicode_FromString("the arguments do not fit the function's signature");
    }
    Py_DECREF(names);
    PyMem_Free(flat);
    return text;
}

/* passes(slots, function): whether a call with these bound arguments would be accepted. */
static PyObject *Guards_passes(Guards *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 2 || !PyTuple_Check(args[0]) || !PyFunction_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "passes(slots, function)");
        return NULL;
    }
    Call call = {((PyTupleObject *)args[0])->ob_item, PyTuple_GET_SIZE(args[0]), (PyFunctionObject *)args[1]};
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
    {"arg", (PyCFunction)Guards_arg, METH_O, "arg(position) -> node"},
    {"cell", (PyCFunction)Guards_cell, METH_O, "cell(position) -> node"},
    {"globals", (PyCFunction)Guards_globals, METH_NOARGS, "globals() -> node"},
    {"object", (PyCFunction)Guards_object, METH_O, "object(obj) -> node"},
    {"child", _PyCFunction_CAST(Guards_child), METH_FASTCALL, "child(parent, kind, key=None) -> node"},
    {"check", _PyCFunction_CAST(Guards_check), METH_FASTCALL, "check(node, kind, value=None)"},
    {"global_state", (PyCFunction)Guards_global_state, METH_NOARGS, "global_state()"},
    {"slot", (PyCFunction)Guards_slot, METH_O, "slot(node) -> position"},
    {"describe", (PyCFunction)Guards_describe, METH_VARARGS, "describe(node, path)"},
    {"explain_failure", (PyCFunction)Guards_explain_failure, METH_VARARGS,
     "explain_failure(args, kwargs, function) -> str | None"},
    {"passes", _PyCFunction_CAST(Guards_passes), METH_FASTCALL, "passes(slots, function) -> bool"},
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
