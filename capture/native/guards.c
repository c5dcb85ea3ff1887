/* Guards: the type, and how its program is built.
 *
 * A program is a list of steps in the order of creation: a load sets the object of a node, a check tests a
 * node. guard_walk.c walks the steps (its fast paths are in guard_sections.c); guard_text.c describes
 * them.
 */
#include "capture.h"

#include <string.h>

static const struct {
    const char *name;
    StepKind kind;
} LOADS[] =
    {
        {"attr", STEP_ATTR},
        {"dict", STEP_DICT},
        {"type", STEP_CLASS},
        {"item", STEP_ITEM},
        {"key", STEP_KEY},
        {"class_attr", STEP_CLASS_ATTR},
        {"state", STEP_STATE},
        {"class_order", STEP_CLASS_ORDER},
        {"cell_contents", STEP_CELL_CONTENTS},
        {"proxied", STEP_PROXIED},
        {"func_closure", STEP_FUNC_CLOSURE},
        {"func_defaults", STEP_FUNC_DEFAULTS},
        {"func_kwdefaults", STEP_FUNC_KWDEFAULTS},
        {"func_code", STEP_FUNC_CODE},
        {"func_globals", STEP_FUNC_GLOBALS},
        {"method_self", STEP_METHOD_SELF},
        {"method_func", STEP_METHOD_FUNC},
        {"referent", STEP_REFERENT},
        {"cached", STEP_CACHED},
    },
  CHECKS[] = {
      {"type", CHECK_TYPE},
      {"is", CHECK_IS},
      {"equal", CHECK_EQUAL},
      {"length", CHECK_LENGTH},
      {"keys", CHECK_KEYS},
      {"no_key", CHECK_NO_KEY},
      {"same", CHECK_SAME},
      {"tensor", CHECK_TENSOR},
      {"storage_offset", CHECK_OFFSET},
      {"storage_offset_multiple", CHECK_OFFSET_MULTIPLE},
      {"accumulates", CHECK_ACCUMULATES},
      {"has_history", CHECK_HISTORY},
      {"no_class_attr", CHECK_NO_CLASS_ATTR},
      {"returns", CHECK_RETURNS},
      {"subclass", CHECK_SUBCLASS},
      {"members", CHECK_MEMBERS},
      {"different", CHECK_DIFFERENT},
      {"unchanged", CHECK_UNCHANGED},
      {"outcome", CHECK_OUTCOME},
      {"sizes", CHECK_SIZES},
      {"new_length", CHECK_NEW_LENGTH},
  };

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
static Step *step_new(Guards *self, StepKind kind, Py_ssize_t node) {
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
static Step *load_new(Guards *self, StepKind kind, PyObject *path) {
    if (path == NULL) return NULL;
    Py_ssize_t node = guards_node_count(self);
    int failed = PyList_Append(self->paths, path);
    Py_DECREF(path);
    return failed ? NULL : step_new(self, kind, node);
}

static PyObject *node_number(const Step *step) { return step ? PyLong_FromSsize_t(step->node) : NULL; }

static int node_known(Guards *self, Py_ssize_t node) {
    if (node >= 0 && node < guards_node_count(self)) return 1;
    PyErr_Format(PyExc_IndexError, "there is no guard node %zd", node);
    return 0;
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
        if (self->steps[i].tensor && tensor_spec_traverse(self->steps[i].tensor, visit, arg)) return 1;
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
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(steps[i].object);
        tensor_spec_free(steps[i].tensor);
        PyMem_Free(steps[i].order);
    }
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
    Step *step = load_new(self, STEP_ARG, Py_NewRef(PyTuple_GET_ITEM(names, index)));
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
    Step *step = load_new(self, STEP_CELL, Py_NewRef(name));
    if (step) step->number = index;
    return node_number(step);
}

static PyObject *Guards_globals(Guards *self, PyObject *Py_UNUSED(ignored)) {
    return node_number(load_new(self, STEP_GLOBALS, PyUnicode_FromString("globals()")));
}

static PyObject *Guards_object(Guards *self, PyObject *object) {
    PyObject *path = PyType_Check(object) ? PyUnicode_FromString(((PyTypeObject *)object)->tp_name)
                                          : PyUnicode_FromFormat("<%s>", Py_TYPE(object)->tp_name);
    Step *step = load_new(self, STEP_OBJECT, path);
    if (step) step->object = Py_NewRef(object);
    return node_number(step);
}

/* --- children --- */

/* A name, or a name and the class after which the look-up starts. */
static int is_class_key(PyObject *key) {
    if (PyUnicode_CheckExact(key)) return 1;
    return PyTuple_CheckExact(key) && PyTuple_GET_SIZE(key) == 2 &&
           PyUnicode_CheckExact(PyTuple_GET_ITEM(key, 0)) && PyType_Check(PyTuple_GET_ITEM(key, 1));
}

/* A tensor that is a key, as in an optimizer's state, is held weakly: the caller who looks it up has it. */
static int set_key(Step *step, PyObject *key) {
    step->weak = PyObject_TypeCheck(key, torch_header.tensor_type);
    step->object = step->weak ? PyWeakref_NewRef(key, NULL) : Py_NewRef(key);
    if (step->object == NULL) return -1;
    if (PyUnicode_CheckExact(step->object)) PyUnicode_InternInPlace(&step->object);
    return 0;
}

static PyObject *Guards_child(Guards *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs < 2 || nargs > 3 || !PyUnicode_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "child(parent, kind, key=None)");
        return NULL;
    }
    Py_ssize_t parent = PyLong_AsSsize_t(args[0]), number = 0;
    PyObject *key = nargs == 3 ? args[2] : Py_None;
    if (PyErr_Occurred() || !node_known(self, parent)) return NULL;
    size_t row = 0;
    while (row < Py_ARRAY_LENGTH(LOADS) && PyUnicode_CompareWithASCIIString(args[1], LOADS[row].name) != 0)
        row++;
    if (row == Py_ARRAY_LENGTH(LOADS)) {
        PyErr_Format(PyExc_ValueError, "no guard loads %R", args[1]);
        return NULL;
    }
    StepKind kind = LOADS[row].kind;
    if (kind == STEP_CLASS_ATTR ? !is_class_key(key) : kind == STEP_ATTR && !PyUnicode_CheckExact(key)) {
        PyErr_SetString(PyExc_TypeError, "the name of an attribute is a str");
        return NULL;
    }
    if (kind == STEP_ITEM) number = PyLong_AsSsize_t(key);
    if (kind == STEP_KEY) number = PyObject_Hash(key);
    if (number == -1 && PyErr_Occurred()) return NULL;
    Step *step = load_new(self, kind,
                          guard_child_path(PyList_GET_ITEM(self->paths, parent), kind, key, LOADS[row].name));
    if (step == NULL) return NULL;
    step->parent = (int32_t)parent;
    step->number = number;
    if (set_key(step, key) < 0) return NULL;
    if (kind == STEP_ATTR || kind == STEP_STATE) {
        if (append_index(&self->fresh_nodes, &self->fresh_count, &self->fresh_room, step->node) < 0)
            return NULL;
    }
    return node_number(step);
}

/* --- checks --- */

/* Pins `object` for an identity check: weakly if its type allows it, so that guards keep nothing alive. */
static int pin(Step *step, PyObject *object) {
    step->object = PyWeakref_NewRef(object, NULL);
    step->weak = step->object != NULL;
    if (step->object) return 0;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
    PyErr_Clear();
    step->object = Py_NewRef(object);
    return 0;
}

static int check_value(Guards *self, Step *step, PyObject *value) {
    switch (step->kind) {
    case CHECK_TYPE:
        if (!PyType_Check(value)) break;
        return pin(step, value);
    case CHECK_IS:
        return pin(step, value);
    case CHECK_EQUAL:
        if (!constant_supported(value)) break;
        step->object = Py_NewRef(value);
        return 0;
    case CHECK_LENGTH: /* or (length, Lengths) */
        if (PyTuple_CheckExact(value)) {
            if (PyTuple_GET_SIZE(value) != 2 || !Py_IS_TYPE(PyTuple_GET_ITEM(value, 1), &Lengths_Type)) break;
            step->object = Py_NewRef(PyTuple_GET_ITEM(value, 1));
            value = PyTuple_GET_ITEM(value, 0);
        }
        /* fall through */
    case CHECK_OFFSET:
    case CHECK_OFFSET_MULTIPLE:
        step->number = PyLong_AsSsize_t(value);
        return step->number == -1 && PyErr_Occurred() ? -1 : 0;
    case CHECK_KEYS:
    case CHECK_MEMBERS:
        if (!PyTuple_CheckExact(value)) break;
        step->object = Py_NewRef(value);
        return 0;
    case CHECK_SUBCLASS: /* (class, abstract class, answer) */
        if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) != 3) break;
        step->number = -1;
        step->object = Py_NewRef(value);
        return 0;
    case CHECK_RETURNS: /* (arguments, result) */
        if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) != 2 ||
            !PyTuple_CheckExact(PyTuple_GET_ITEM(value, 0)))
            break;
        step->object = Py_NewRef(value);
        return 0;
    case CHECK_NO_CLASS_ATTR:
        if (!is_class_key(value)) break;
        /* fall through */
    case CHECK_NO_KEY:
        step->number = PyObject_Hash(value);
        return step->number == -1 ? -1 : set_key(step, value);
    case CHECK_SAME:
    case CHECK_DIFFERENT:
        step->number = PyLong_AsSsize_t(value);
        if ((step->number == -1 && PyErr_Occurred()) || !node_known(self, step->number)) return -1;
        step->parent = (int32_t)step->number;
        return 0;
    case CHECK_UNCHANGED: /* (alias, version) */
        if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) != 2) break;
        if (tensor_version(PyTuple_GET_ITEM(value, 0)) < 0) break;
        step->number = PyLong_AsSsize_t(PyTuple_GET_ITEM(value, 1));
        if (step->number == -1 && PyErr_Occurred()) return -1;
        step->object = Py_NewRef(PyTuple_GET_ITEM(value, 0));
        return 0;
    case CHECK_OUTCOME:
        if (!guard_outcome_fits(value)) break;
        step->object = Py_NewRef(value);
        return 0;
    case CHECK_SIZES:
        if (!guard_sizes_fit(value)) break;
        step->object = Py_NewRef(value);
        return 0;
    case CHECK_NEW_LENGTH:
        if (!Py_IS_TYPE(value, &Lengths_Type)) break;
        step->object = Py_NewRef(value);
        return 0;
    case CHECK_ACCUMULATES:
    case CHECK_HISTORY:
        return torch_header_ready();
    case CHECK_TENSOR:
        step->tensor = tensor_spec_new(value);
        return step->tensor ? 0 : -1;
    default:
        break;
    }
    PyErr_Format(PyExc_TypeError, "a %.100s cannot be guarded in this way", Py_TYPE(value)->tp_name);
    return -1;
}

static PyObject *Guards_check(Guards *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs < 2 || nargs > 3 || !PyUnicode_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "check(node, kind, value=None)");
        return NULL;
    }
    Py_ssize_t node = PyLong_AsSsize_t(args[0]);
    if (PyErr_Occurred() || !node_known(self, node)) return NULL;
    for (size_t row = 0; row < Py_ARRAY_LENGTH(CHECKS); row++) {
        if (PyUnicode_CompareWithASCIIString(args[1], CHECKS[row].name) != 0) continue;
        Step *step = step_new(self, CHECKS[row].kind, node);
        if (step == NULL) return NULL;
        if (check_value(self, step, nargs == 3 ? args[2] : Py_None) == 0) Py_RETURN_NONE;
        self->step_count--;
        Py_CLEAR(step->object);
        return NULL;
    }
    PyErr_Format(PyExc_ValueError, "no guard checks %R", args[1]);
    return NULL;
}

/* A check of many nodes: no two of them are at the same place in memory. */
static PyObject *check_of_many(Guards *self, StepKind kind, PyObject *nodes) {
    PyObject *list = PySequence_Fast(nodes, "expected a sequence of nodes");
    if (list == NULL) return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    Py_ssize_t *order = PyMem_Malloc((count ? count : 1) * sizeof *order);
    if (order == NULL) {
        Py_DECREF(list);
        return PyErr_NoMemory();
    }
    int good = 1;
    for (Py_ssize_t i = 0; i < count && good; i++) {
        order[i] = PyLong_AsSsize_t(PySequence_Fast_GET_ITEM(list, i));
        good = !PyErr_Occurred() && node_known(self, order[i]);
    }
    Py_DECREF(list);
    Step *step = good && count > 1 ? step_new(self, kind, order[0]) : NULL;
    if (step == NULL) {
        PyMem_Free(order);
        if (PyErr_Occurred()) return NULL;
        Py_RETURN_NONE;
    }
    step->order = order;
    step->number = count;
    Py_RETURN_NONE;
}

static PyObject *Guards_no_overlap(Guards *self, PyObject *nodes) {
    return check_of_many(self, CHECK_NO_OVERLAP, nodes);
}

static PyObject *Guards_distinct(Guards *self, PyObject *nodes) {
    return check_of_many(self, CHECK_DISTINCT, nodes);
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

/* Whether a tensor that must not be written to was written to: then no call is accepted any more. */
static PyObject *Guards_is_stale(Guards *self, PyObject *Py_UNUSED(ignored)) {
    for (Py_ssize_t i = 0; i < self->step_count; i++) {
        const Step *step = &self->steps[i];
        if (step->kind == CHECK_UNCHANGED && tensor_version(step->object) != step->number) Py_RETURN_TRUE;
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
    {"no_overlap", (PyCFunction)Guards_no_overlap, METH_O, "no_overlap(nodes)"},
    {"distinct", (PyCFunction)Guards_distinct, METH_O, "distinct(nodes)"},
    {"global_state", (PyCFunction)Guards_global_state, METH_NOARGS, "global_state()"},
    {"slot", (PyCFunction)Guards_slot, METH_O, "slot(node) -> position"},
    {"describe", (PyCFunction)Guards_describe, METH_VARARGS, "describe(node, path)"},
    {"explain_failure", (PyCFunction)guards_explain_failure, METH_VARARGS,
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
