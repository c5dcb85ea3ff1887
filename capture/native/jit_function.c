/* JitFunction: the callable that replaces a jitted function.
 *
 * A call binds its arguments, tries the entries from the last to the first, and calls `on_miss` for
 * another entry if no guards pass. Everything else (attributes, binding as a method, pickling) makes it
 * look like the function that it wraps.
 */
#include "capture.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyFunctionObject *function;
    PyObject *code; /* the function's code when it was jitted; with other code, calls run plain Python */
    PyObject *on_miss;
    PyObject *entries; /* tuple, oldest first; replaced as a whole, so that a running call keeps its own */
    Py_ssize_t simple; /* number of arguments if all are positional, else -1 */
    char takes_state;  /* called with one list, whose items are the slots; the code empties the list */
    char enabled, look_inside;
    char is_call;        /* it is the `__call__` of its first argument's class, as long as the class has it */
    PyObject *called_by; /* the code whose first argument owns this function, or NULL */
    PyObject *dict;
    PyObject *weakrefs;
} JitFunction;

/* Raised by a graph that has changed nothing yet: the call bails out to the original function. */
PyObject *RunPlainly;

/* Asks for an entry and tries it. The entry (or NULL) is stored in *entry, owned. */
static Tried miss(JitFunction *self, const Call *call, Entry **entry, PyObject **result) {
    PyObject *slots = call_slots(call);
    if (slots == NULL) return TRIED_DONE;
    PyObject *on_miss = Py_NewRef(self->on_miss);
    PyObject *answer = PyObject_CallFunctionObjArgs(on_miss, (PyObject *)self, slots, NULL);
    Py_DECREF(on_miss);
    Py_DECREF(slots);
    if (answer == NULL) return TRIED_DONE;
    if (Py_IsNone(answer)) {
        Py_DECREF(answer);
        return TRIED_PLAIN;
    }
    if (!Py_IS_TYPE(answer, &Entry_Type)) {
        PyErr_Format(PyExc_TypeError, "on_miss gives an Entry or None, not %.100s", Py_TYPE(answer)->tp_name);
        Py_DECREF(answer);
        return TRIED_DONE;
    }
    *entry = (Entry *)answer;
    Tried tried = entry_try(*entry, call, result);
    if (tried != TRIED_MISS) return tried;
    /* Guards that refuse the call they were made for would be rebuilt at every call. */
    PyObject *text = guards_explain(entry[0]->guards, call);
    int failed = text == NULL || PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
                                                  "the guards of a new entry of %U refuse its own call: %S",
                                                  self->function->func_qualname, text) < 0;
    Py_XDECREF(text);
    if (failed && PyErr_ExceptionMatches(PyExc_RuntimeWarning)) { /* if warnings are errors */
        PyErr_WriteUnraisable((PyObject *)self);
        failed = 0;
    }
    return failed ? TRIED_DONE : TRIED_PLAIN;
}

/* Calls the original function for another owner than the one that it is bound to. */
static PyObject *call_for(JitFunction *self, PyObject *owner, PyObject *const *args, size_t nargsf,
                          PyObject *names) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf) + (names ? PyTuple_GET_SIZE(names) : 0);
    PyObject **own = PyMem_New(PyObject *, count);
    if (own == NULL) return PyErr_NoMemory();
    memcpy(own, args, count * sizeof(PyObject *));
    own[0] = Py_NewRef(owner);
    PyObject *result =
        PyObject_Vectorcall((PyObject *)self->function, own, PyVectorcall_NARGS(nargsf), names);
    Py_DECREF(owner);
    PyMem_Free(own);
    return result;
}

/* Whether the class of `object` still has this function as its `__call__`. */
static int is_called_by(JitFunction *self, PyObject *object) {
    PyObject *method = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__call__");
    if (method == NULL) PyErr_Clear(); /* the call raises its own error */
    Py_XDECREF(method);
    return method == (PyObject *)self->function;
}

/* Gives an entry's rewritten function the current default values of the original function.
 */
static int take_defaults(PyObject *target, PyFunctionObject *function) {
    PyFunctionObject *own = (PyFunctionObject *)target;
    PyObject *defaults = function->func_defaults, *by_name = function->func_kwdefaults;
    if (own->func_defaults != defaults && PyFunction_SetDefaults(target, defaults ? defaults : Py_None) < 0)
        return -1;
    if (own->func_kwdefaults != by_name && PyFunction_SetKwDefaults(target, by_name ? by_name : Py_None) < 0)
        return -1;
    return 0;
}

static PyObject *JitFunction_vectorcall(JitFunction *self, PyObject *const *args, size_t nargsf,
                                        PyObject *names) {
    PyFunctionObject *function = self->function;
    if (function == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this jitted function has been torn down");
        return NULL;
    }
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (self->called_by && nargs) {
        PyObject *owner = hook_first_argument(self->called_by);
        if (owner && owner != args[0]) return call_for(self, owner, args, nargsf, names);
    }
    if (self->is_call && nargs && !is_called_by(self, args[0]))
        return PyObject_Vectorcall(args[0], args + 1, nargs - 1, names);
    Bound bound;
    if (!self->enabled || calls_suspended || function->func_code != self->code) goto plain;
    if (names == NULL && nargs == self->simple) {
        bound.slots = (PyObject **)args;
        bound.count = nargs;
        bound.owned = 0;
    } else if (self->takes_state) {
        if (names || nargs != 1 || !PyList_CheckExact(args[0])) goto plain;
        bound.slots = ((PyListObject *)args[0])->ob_item;
        bound.count = PyList_GET_SIZE(args[0]);
        bound.owned = 0;
    } else {
        int fits = bind_arguments(function, args, nargs, names, &bound);
        if (fits < 0) return NULL;
        if (fits == 0) goto plain;
    }
    Call call = {bound.slots, bound.count, function};
    PyObject *result = NULL, *entries = Py_NewRef(self->entries), *target = NULL;
    Entry *entry = NULL;
    Tried tried = entries_try(entries, &call, &entry, &result);
    if (tried == TRIED_MISS) {
        Py_SETREF(entries, NULL); /* compiling takes long and may drop entries */
        entry = NULL;
        tried = miss(self, &call, &entry, &result);
        entries = (PyObject *)entry;
    }
    bound_release(&bound);
    /* An entry that the hook took over has only code, no function. */
    if (tried == TRIED_CODE && !PyFunction_Check(entry->target)) tried = TRIED_PLAIN;
    if (tried == TRIED_CODE)
        target = entry->target;
    else if (tried == TRIED_PLAIN)
        target = (PyObject *)function;
    if (target) {
        /* Rewritten code calls functions that could not be inlined: the hook handles their frames. */
        int hooked = (tried == TRIED_CODE || self->look_inside) && hook_has_callback();
        Py_INCREF(target);
        /* If the case is not worth an entry, its callees get no entries for it either. */
        int asked_nothing = hook_ask_nothing(tried == TRIED_PLAIN && entry && entry->varies);
        PyObject *previous = hooked ? hook_begin((PyObject *)self) : NULL;
        if (tried == TRIED_PLAIN) hook_pass_next(self->code);
        if (tried != TRIED_CODE || take_defaults(target, function) == 0)
            result = PyObject_Vectorcall(target, args, nargsf, names);
        if (hooked) hook_end(previous);
        hook_ask_nothing(asked_nothing);
        Py_DECREF(target);
    }
    Py_XDECREF(entries);
    if (result == NULL && PyErr_ExceptionMatches(RunPlainly)) {
        PyErr_Clear();
        hook_pass_next(self->code);
        goto plain;
    }
    return result;
plain:
    if (!self->look_inside || calls_suspended || !hook_has_callback())
        return PyObject_Vectorcall((PyObject *)function, args, nargsf, names);
    PyObject *previous = hook_begin((PyObject *)self);
    hook_pass_next(self->code);
    PyObject *answer = PyObject_Vectorcall((PyObject *)function, args, nargsf, names);
    hook_end(previous);
    return answer;
}

/* --- looking like a function --- */

/* Copies what functools.update_wrapper copies into our __dict__; 0, or -1 with an exception set. */
static int take_names(JitFunction *self, PyObject *function) {
    static const char *const names[] = {"__module__", "__name__", "__qualname__", "__doc__"};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        PyObject *value = PyObject_GetAttrString(function, names[i]);
        int failed = value == NULL || PyDict_SetItemString(self->dict, names[i], value) < 0;
        Py_XDECREF(value);
        if (failed) return -1;
    }
    PyObject *attributes = ((PyFunctionObject *)function)->func_dict;
    return attributes ? PyDict_Update(self->dict, attributes) : 0;
}

static PyObject *JitFunction_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"function", "on_miss", "takes_state", NULL};
    PyObject *function, *on_miss;
    int takes_state = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|p", names, &PyFunction_Type, &function, &on_miss,
                                     &takes_state))
        return NULL;
    JitFunction *self = (JitFunction *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = (vectorcallfunc)JitFunction_vectorcall;
    self->function = (PyFunctionObject *)Py_NewRef(function);
    self->code = Py_NewRef(PyFunction_GET_CODE(function));
    self->on_miss = Py_NewRef(on_miss);
    self->enabled = 1;
    self->takes_state = (char)takes_state;
    PyCodeObject *code = (PyCodeObject *)self->code;
    int simple =
        !takes_state && code->co_kwonlyargcount == 0 && !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS));
    self->simple = simple ? code->co_argcount : -1;
    self->entries = PyTuple_New(0);
    self->dict = PyDict_New();
    if (self->entries == NULL || self->dict == NULL || take_names(self, function) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int JitFunction_traverse(JitFunction *self, visitproc visit, void *arg) {
    Py_VISIT(self->function);
    Py_VISIT(self->code);
    Py_VISIT(self->on_miss);
    Py_VISIT(self->called_by);
    Py_VISIT(self->entries);
    Py_VISIT(self->dict);
    return 0;
}

static int JitFunction_clear(JitFunction *self) {
    Py_CLEAR(self->function);
    Py_CLEAR(self->code);
    Py_CLEAR(self->on_miss);
    Py_CLEAR(self->called_by);
    Py_CLEAR(self->entries);
    Py_CLEAR(self->dict);
    return 0;
}

static void JitFunction_dealloc(JitFunction *self) {
    PyObject_GC_UnTrack(self);
    if (self->weakrefs) PyObject_ClearWeakRefs((PyObject *)self);
    JitFunction_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Attributes that are not found here (__code__, __defaults__, __annotations__, ...) are those of the
 * function. */
static PyObject *JitFunction_getattro(JitFunction *self, PyObject *name) {
    PyObject *attribute = _PyObject_GenericGetAttrWithDict((PyObject *)self, name, NULL, 1);
    if (attribute || PyErr_Occurred()) return attribute;
    if (self->function)
        attribute = _PyObject_GenericGetAttrWithDict((PyObject *)self->function, name, NULL, 1);
    if (attribute || PyErr_Occurred()) return attribute;
    return PyErr_Format(PyExc_AttributeError, "jitted function has no attribute %R", name);
}

static PyObject *JitFunction_descr_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type)) {
    return object == NULL || Py_IsNone(object) ? Py_NewRef(self) : PyMethod_New(self, object);
}

static PyObject *JitFunction_repr(JitFunction *self) {
    return PyUnicode_FromFormat("<jitted %R>", self->function);
}

static PyObject *JitFunction_add(JitFunction *self, PyObject *entry) {
    if (!Py_IS_TYPE(entry, &Entry_Type)) return PyErr_Format(PyExc_TypeError, "not an Entry: %R", entry);
    /* An entry for one shape is faster for that shape, so it is tried before entries with dynamic sizes. */
    PyObject *longer = entries_with(self->entries, (Entry *)entry, ((Entry *)entry)->varies);
    if (longer == NULL) return NULL;
    Py_SETREF(self->entries, longer);
    Py_RETURN_NONE;
}

static PyObject *JitFunction_clear_entries(JitFunction *self, PyObject *Py_UNUSED(ignored)) {
    PyObject *empty = PyTuple_New(0);
    if (empty == NULL) return NULL;
    Py_SETREF(self->entries, empty);
    Py_RETURN_NONE;
}

static PyObject *JitFunction_same(PyObject *self, PyObject *Py_UNUSED(ignored)) { return Py_NewRef(self); }

static PyObject *JitFunction_reduce(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyObject *JitFunction_entries(JitFunction *self, void *Py_UNUSED(closure)) {
    return PySequence_List(self->entries);
}

static PyMethodDef JitFunction_methods[] = {
    {"add", (PyCFunction)JitFunction_add, METH_O,
     "add(entry): tried before those added earlier, if its sizes do not vary, else after them"},
    {"clear", (PyCFunction)JitFunction_clear_entries, METH_NOARGS, "clear(): forget all entries"},
    {"__copy__", JitFunction_same, METH_NOARGS, "functions are not copied"},
    {"__deepcopy__", JitFunction_same, METH_O, "functions are not copied"},
    {"__reduce__", JitFunction_reduce, METH_NOARGS, "pickled by name, as functions are"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef JitFunction_members[] = {
    {"__wrapped__", T_OBJECT_EX, offsetof(JitFunction, function), READONLY, "the function as written"},
    {"on_miss", T_OBJECT_EX, offsetof(JitFunction, on_miss), READONLY, "called when no entry fits"},
    {"enabled", T_BOOL, offsetof(JitFunction, enabled), 0, "false: calls run the function as written"},
    {"called_by", T_OBJECT, offsetof(JitFunction, called_by), 0,
     "the code that calls this as a method it finds in an object's dictionary: its first argument is the "
     "owner"},
    {"is_call", T_BOOL, offsetof(JitFunction, is_call), 0,
     "whether it is the `__call__` of its first argument's class: calls go to what that has in its place"},
    {"look_inside", T_BOOL, offsetof(JitFunction, look_inside), 0,
     "true: the hook looks at what the function as written calls"},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef JitFunction_getset[] = {
    {"entries", (getter)JitFunction_entries, NULL, "the entries, the last of which is tried first", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject JitFunction_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "frameloom.capture._capture.JitFunction",
    .tp_basicsize = sizeof(JitFunction),
    .tp_flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_doc = "A jitted function.",
    .tp_new = JitFunction_new,
    .tp_dealloc = (destructor)JitFunction_dealloc,
    .tp_traverse = (traverseproc)JitFunction_traverse,
    .tp_clear = (inquiry)JitFunction_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(JitFunction, vectorcall),
    .tp_getattro = (getattrofunc)JitFunction_getattro,
    .tp_descr_get = JitFunction_descr_get,
    .tp_dictoffset = offsetof(JitFunction, dict),
    .tp_weaklistoffset = offsetof(JitFunction, weakrefs),
    .tp_repr = (reprfunc)JitFunction_repr,
    .tp_methods = JitFunction_methods,
    .tp_members = JitFunction_members,
    .tp_getset = JitFunction_getset,
};
