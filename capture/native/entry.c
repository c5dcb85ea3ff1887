/* Entry: one compiled case of a function, and how its result is made.
 *
 * A direct entry calls the plan with the objects that its guards collected, and builds the result from the
 * outputs by a recipe, all without a Python frame. A code entry has a function with rewritten code; a
 * plain entry runs the original function.
 */
#include "guard.h"

/* What to build: an output, a collected object, a constant, or a container of recipes. */
struct Recipe {
    enum { RECIPE_OUT, RECIPE_SLOT, RECIPE_CONST, RECIPE_TUPLE, RECIPE_LIST, RECIPE_DICT } kind;
    Py_ssize_t index;  /* of the output or slot; number of children */
    PyObject *object;  /* the constant, or the keys of a dict (tuple) */
    Recipe **children; /* owned */
};

static void recipe_free(Recipe *recipe) {
    if (recipe == NULL) return;
    for (Py_ssize_t i = 0; recipe->children && i < recipe->index; i++) recipe_free(recipe->children[i]);
    PyMem_Free(recipe->children);
    Py_XDECREF(recipe->object);
    PyMem_Free(recipe);
}

static int recipe_traverse(Recipe *recipe, visitproc visit, void *arg) {
    if (recipe == NULL) return 0;
    Py_VISIT(recipe->object);
    for (Py_ssize_t i = 0; recipe->children && i < recipe->index; i++) {
        int stop = recipe_traverse(recipe->children[i], visit, arg);
        if (stop) return stop;
    }
    return 0;
}

static Recipe *recipe_parse(PyObject *source, Py_ssize_t slot_count);

static int recipe_parse_children(Recipe *recipe, PyObject *sources, Py_ssize_t slot_count) {
    PyObject *list = PySequence_Fast(sources, "a container recipe holds a sequence of recipes");
    if (list == NULL) return -1;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    recipe->children = PyMem_Calloc(count ? count : 1, sizeof *recipe->children);
    recipe->index = recipe->children ? count : 0;
    int failed = recipe->children == NULL;
    if (failed) PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        recipe->children[i] = recipe_parse(PySequence_Fast_GET_ITEM(list, i), slot_count);
        failed = recipe->children[i] == NULL;
    }
    Py_DECREF(list);
    return failed ? -1 : 0;
}

static Recipe *recipe_parse(PyObject *source, Py_ssize_t slot_count) {
    static const char *const kinds[] = {"out", "slot", "const", "tuple", "list", "dict"};
    Py_ssize_t size = PyTuple_Check(source) ? PyTuple_GET_SIZE(source) : 0;
    PyObject *name = size >= 2 ? PyTuple_GET_ITEM(source, 0) : NULL,
             *value = size >= 2 ? PyTuple_GET_ITEM(source, 1) : NULL;
    size_t kind = 0;
    if (name && PyUnicode_Check(name))
        while (kind < Py_ARRAY_LENGTH(kinds) && PyUnicode_CompareWithASCIIString(name, kinds[kind]) != 0)
            kind++;
    else
        kind = Py_ARRAY_LENGTH(kinds);
    if (kind == Py_ARRAY_LENGTH(kinds) || size != (kind == RECIPE_DICT ? 3 : 2)) {
        PyErr_Format(PyExc_ValueError, "not a recipe of a result: %R", source);
        return NULL;
    }
    Recipe *recipe = PyMem_Calloc(1, sizeof *recipe);
    if (recipe == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    recipe->kind = (int)kind;
    int failed = 0;
    switch (recipe->kind) {
    case RECIPE_OUT:
    case RECIPE_SLOT:
        recipe->index = PyLong_AsSsize_t(value);
        failed = recipe->index == -1 && PyErr_Occurred();
        if (!failed && (recipe->index < 0 || (recipe->kind == RECIPE_SLOT && recipe->index >= slot_count))) {
            PyErr_Format(PyExc_IndexError, "the recipe wants %S %zd, which there is not", name,
                         recipe->index);
            failed = 1;
        }
        break;
    case RECIPE_CONST:
        recipe->object = Py_NewRef(value);
        break;
    case RECIPE_DICT:
        recipe->object = PySequence_Tuple(value);
        failed = recipe->object == NULL ||
                 recipe_parse_children(recipe, PyTuple_GET_ITEM(source, 2), slot_count) < 0;
        if (!failed && PyTuple_GET_SIZE(recipe->object) != recipe->index) {
            PyErr_SetString(PyExc_ValueError, "a dict recipe has as many keys as values");
            failed = 1;
        }
        break;
    default:
        failed = recipe_parse_children(recipe, value, slot_count) < 0;
    }
    if (!failed) return recipe;
    recipe_free(recipe);
    return NULL;
}

/* New reference, NULL with an exception set. */
static PyObject *recipe_build(const Recipe *recipe, PyObject *outputs, PyObject **slots) {
    PyObject *result = NULL;
    switch (recipe->kind) {
    case RECIPE_OUT:
        return PySequence_GetItem(outputs, recipe->index);
    case RECIPE_SLOT:
        return Py_NewRef(slots[recipe->index]);
    case RECIPE_CONST:
        return Py_NewRef(recipe->object);
    case RECIPE_TUPLE:
        result = PyTuple_New(recipe->index);
        break;
    case RECIPE_LIST:
        result = PyList_New(recipe->index);
        break;
    case RECIPE_DICT:
        result = PyDict_New();
        break;
    }
    for (Py_ssize_t i = 0; i < recipe->index && result; i++) {
        PyObject *child = recipe_build(recipe->children[i], outputs, slots);
        if (child == NULL) {
            Py_CLEAR(result);
        } else if (recipe->kind == RECIPE_TUPLE) {
            PyTuple_SET_ITEM(result, i, child);
        } else if (recipe->kind == RECIPE_LIST) {
            PyList_SET_ITEM(result, i, child);
        } else {
            if (PyDict_SetItem(result, PyTuple_GET_ITEM(recipe->object, i), child) < 0) Py_CLEAR(result);
            Py_DECREF(child);
        }
    }
    return result;
}

/* --- running --- */

/* Calls the plan with the collected objects, and releases them afterwards. They are kept alive meanwhile:
 * the plan may let other threads run, and these may change the containers that held the objects. */
static PyObject *run_plan(Entry *entry, PyObject **slots) {
    Py_ssize_t count = entry->guards->slot_count;
    PyObject *result = NULL, *outputs;
    outputs = PyObject_Vectorcall(entry->target, slots, (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (outputs) {
        const Recipe *recipe = entry->recipe;
        if (recipe->kind == RECIPE_OUT && PyTuple_CheckExact(outputs) &&
            recipe->index < PyTuple_GET_SIZE(outputs))
            result = Py_NewRef(PyTuple_GET_ITEM(outputs, recipe->index));
        else
            result = recipe_build(recipe, outputs, slots);
        Py_DECREF(outputs);
    }
    for (Py_ssize_t i = 0; i < count; i++) Py_DECREF(slots[i]);
    return result;
}

Tried entry_try(Entry *entry, const Call *call, PyObject **result) {
    enum { ON_STACK = 64 };
    /* The collected objects, after one free slot that the callee may use. */
    Py_ssize_t count = entry->guards->slot_count;
    PyObject *on_stack[ON_STACK], **slots = on_stack;
    if (count >= ON_STACK && (slots = PyMem_Malloc((count + 1) * sizeof *slots)) == NULL) {
        *result = PyErr_NoMemory();
        return TRIED_DONE;
    }
    Tried tried = TRIED_MISS;
    if (guards_pass(entry->guards, call, slots + 1)) {
        entry->calls++;
        static const Tried outcomes[] = {
            [ENTRY_DIRECT] = TRIED_DONE, [ENTRY_CODE] = TRIED_CODE, [ENTRY_PLAIN] = TRIED_PLAIN};
        tried = outcomes[entry->kind];
        if (tried == TRIED_DONE)
            *result = run_plan(entry, slots + 1);
        else
            for (Py_ssize_t i = 0; i < count; i++) Py_DECREF(slots[i + 1]);
    }
    if (slots != on_stack) PyMem_Free(slots);
    return tried;
}

Tried entries_try(PyObject *entries, const Call *call, Entry **entry, PyObject **result) {
    Tried tried = TRIED_MISS;
    for (Py_ssize_t i = PyTuple_GET_SIZE(entries) - 1; i >= 0 && tried == TRIED_MISS; i--) {
        *entry = (Entry *)PyTuple_GET_ITEM(entries, i);
        tried = entry_try(*entry, call, result);
    }
    return tried;
}

PyObject *entries_with(PyObject *entries, Entry *entry, int first) {
    Py_ssize_t count = entries ? PyTuple_GET_SIZE(entries) : 0;
    PyObject *longer = PyTuple_New(count + 1);
    for (Py_ssize_t i = 0; longer && i < count; i++)
        PyTuple_SET_ITEM(longer, i + first, Py_NewRef(PyTuple_GET_ITEM(entries, i)));
    if (longer) PyTuple_SET_ITEM(longer, first ? 0 : count, Py_NewRef(entry));
    return longer;
}

/* --- the type --- */

static const char *const KINDS[] = {"direct", "code", "plain"}; /* by EntryKind */

static PyObject *entry_new(EntryKind kind, PyObject *guards, PyObject *target, PyObject *recipe) {
    Recipe *parsed = NULL;
    if (kind == ENTRY_DIRECT && (parsed = recipe_parse(recipe, ((Guards *)guards)->slot_count)) == NULL)
        return NULL;
    Entry *entry = PyObject_GC_New(Entry, &Entry_Type);
    if (entry == NULL) {
        recipe_free(parsed);
        return NULL;
    }
    entry->kind = kind;
    entry->guards = (Guards *)Py_NewRef(guards);
    entry->target = Py_NewRef(target);
    entry->recipe = parsed;
    entry->calls = 0;
    entry->varies = 0;
    PyObject_GC_Track(entry);
    return (PyObject *)entry;
}

static PyObject *Entry_direct(PyObject *Py_UNUSED(none), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"guards", "plan", "recipe", NULL};
    PyObject *guards, *plan, *recipe;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO", names, &Guards_Type, &guards, &plan, &recipe))
        return NULL;
    if (!PyCallable_Check(plan)) return PyErr_Format(PyExc_TypeError, "a plan is called; %R cannot be", plan);
    return entry_new(ENTRY_DIRECT, guards, plan, recipe);
}

static PyObject *Entry_code(PyObject *Py_UNUSED(none), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"guards", "function", NULL};
    PyObject *guards, *function;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!", names, &Guards_Type, &guards, &PyFunction_Type,
                                     &function))
        return NULL;
    hook_leave_code_alone((PyCodeObject *)PyFunction_GET_CODE(function));
    return entry_new(ENTRY_CODE, guards, function, NULL);
}

static PyObject *Entry_plain(PyObject *Py_UNUSED(none), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"guards", "reason", NULL};
    PyObject *guards, *reason;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!U", names, &Guards_Type, &guards, &reason)) return NULL;
    return entry_new(ENTRY_PLAIN, guards, reason, NULL);
}

static int Entry_traverse(Entry *self, visitproc visit, void *arg) {
    Py_VISIT(self->guards);
    Py_VISIT(self->target);
    return recipe_traverse(self->recipe, visit, arg);
}

static int Entry_clear(Entry *self) {
    /* A running call may need the guards and the recipe; the garbage collector clears the objects that
     * they hold themselves. */
    Py_CLEAR(self->target);
    return 0;
}

static void Entry_dealloc(Entry *self) {
    PyObject_GC_UnTrack(self);
    Entry_clear(self);
    Py_CLEAR(self->guards);
    recipe_free(self->recipe);
    PyObject_GC_Del(self);
}

static PyObject *Entry_kind(Entry *self, void *Py_UNUSED(closure)) {
    return PyUnicode_InternFromString(KINDS[self->kind]);
}

static PyObject *Entry_repr(Entry *self) {
    return PyUnicode_FromFormat("<Entry %s, %zd calls>", KINDS[self->kind], self->calls);
}

static PyMethodDef Entry_methods[] = {
    {"direct", _PyCFunction_CAST(Entry_direct), METH_VARARGS | METH_KEYWORDS | METH_STATIC,
     "direct(guards, plan, recipe) -> Entry"},
    {"code", _PyCFunction_CAST(Entry_code), METH_VARARGS | METH_KEYWORDS | METH_STATIC,
     "code(guards, function) -> Entry"},
    {"plain", _PyCFunction_CAST(Entry_plain), METH_VARARGS | METH_KEYWORDS | METH_STATIC,
     "plain(guards, reason) -> Entry"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef Entry_members[] = {
    {"guards", T_OBJECT, offsetof(Entry, guards), READONLY, "the conditions of this case"},
    {"target", T_OBJECT, offsetof(Entry, target), READONLY,
     "the plan, the function of the rewritten code, or the reason"},
    {"calls", T_PYSSIZET, offsetof(Entry, calls), 0, "how often the guards passed"},
    {"varies", T_BOOL, offsetof(Entry, varies), 0, "true: it serves several shapes"},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef Entry_getset[] = {
    {"kind", (getter)Entry_kind, NULL, "direct, code or plain", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "frameloom.capture._capture.Entry",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "One compiled case: guards, and what to do when they pass.",
    .tp_dealloc = (destructor)Entry_dealloc,
    .tp_traverse = (traverseproc)Entry_traverse,
    .tp_clear = (inquiry)Entry_clear,
    .tp_repr = (reprfunc)Entry_repr,
    .tp_methods = Entry_methods,
    .tp_members = Entry_members,
    .tp_getset = Entry_getset,
};
