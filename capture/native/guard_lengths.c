/* Lengths: the lengths that a container was compiled for, and other recent lengths.
 *
 * A container that grows with each call would have an entry for every length. So from the third length on,
 * a length is compiled only if it comes again later, or stays. Until then a plain entry accepts it; its
 * check ("new_length") stores the length here. This data only affects speed: a plain entry is right for
 * every call.
 */
#include "guard.h"

enum { RECENT = 16, KNOWN = 64, PATIENCE = 32, GROWTH = 6 };

typedef struct {
    PyObject_HEAD
    Py_ssize_t known[KNOWN], recent[RECENT];
    int known_count, recent_count;
    int last; /* index of the newest of `recent`; -1 after a call with another length */
    int newest;
    int staying;   /* consecutive calls with the newest */
    int rising;    /* consecutive new lengths, each greater than the one before */
    char reported; /* whether grows() has reported the growth */
    char closed;   /* no call runs as plain Python any more */
} Lengths;

/* Sequence types, besides lists and tuples, whose C code runs no Python and which hold their items. */
enum { SEQUENCE_TYPES = 8 };
static PyTypeObject *sequence_types[SEQUENCE_TYPES];
static int sequence_type_count;

int guard_is_sequence(PyObject *object) {
    for (int i = 0; i < sequence_type_count; i++)
        if (Py_IS_TYPE(object, sequence_types[i])) return 1;
    return 0;
}

PyObject *add_sequence_type(PyObject *Py_UNUSED(module), PyObject *type) {
    if (!PyType_Check(type) || ((PyTypeObject *)type)->tp_as_sequence == NULL ||
        ((PyTypeObject *)type)->tp_as_sequence->sq_length == NULL || sequence_type_count == SEQUENCE_TYPES)
        return PyErr_Format(PyExc_TypeError, "no sequence type, or one too many: %R", type);
    sequence_types[sequence_type_count++] = (PyTypeObject *)Py_NewRef(type);
    Py_RETURN_NONE;
}

Py_ssize_t guard_length_of(PyObject *object) {
    if (PyList_Check(object) || PyTuple_Check(object)) return Py_SIZE(object);
    if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
    if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
    return guard_is_sequence(object) ? Py_TYPE(object)->tp_as_sequence->sq_length(object) : -1;
}

static int is_known(const Lengths *self, Py_ssize_t length) {
    for (int i = 0; i < self->known_count; i++)
        if (self->known[i] == length) return 1;
    return 0;
}

/* Whether a call with this length runs as plain Python. `by_guard`: only such a call is counted; the
 * capture asks before the guard does, and its new entry would refuse its own call otherwise. */
static int is_new(Lengths *self, Py_ssize_t length, int by_guard) {
    if (length < 0 || self->closed || is_known(self, length)) return 0;
    for (int i = 0; i < self->recent_count; i++) {
        if (self->recent[i] != length) continue;
        if (i != self->last || self->staying >= PATIENCE) return 0;
        self->staying += by_guard;
        return 1;
    }
    int rises = self->recent_count && length > self->recent[self->newest];
    if (rises && self->rising >= GROWTH && !self->reported) return 0; /* Python must see this */
    self->rising = rises ? self->rising + 1 : 1;
    self->newest = (self->newest + 1) % RECENT;
    if (self->recent_count < RECENT) self->newest = self->recent_count++;
    self->recent[self->newest] = length;
    self->last = self->newest;
    self->staying = 1;
    return 1;
}

/* An entry that requires a length has accepted a call. */
void guard_known_length(const Step *step) { ((Lengths *)step->object)->last = -1; }

static int take_lengths(Step *step, PyObject *value, Py_ssize_t Py_UNUSED(nodes)) {
    if (!Py_IS_TYPE(value, &Lengths_Type)) return -1;
    step->object = Py_NewRef(value);
    return 0;
}

static int check_new_length(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return is_new((Lengths *)step->object, guard_length_of(object), 1);
}

PyObject *guard_length_text(const Step *Py_UNUSED(step), PyObject *object) {
    Py_ssize_t length = PyObject_Size(object);
    if (length >= 0) return PyUnicode_FromFormat("length %zd", length);
    PyErr_Clear();
    return guard_repr(object);
}

const GuardKind guard_length_checks[] = {
    /* Lengths: they take the length of a list, tuple, dict, set or added sequence type for a new one */
    {"new_length", take_lengths, .check = check_new_length,
     .demand = "a length that is met for the first time", .actual = guard_length_text},
    {0},
};

static PyObject *Lengths_is_new(Lengths *self, PyObject *number) {
    Py_ssize_t length = PyLong_AsSsize_t(number);
    return length == -1 && PyErr_Occurred() ? NULL : PyBool_FromLong(is_new(self, length, 0));
}

static PyObject *Lengths_add(Lengths *self, PyObject *number) {
    Py_ssize_t length = PyLong_AsSsize_t(number);
    if (length == -1 && PyErr_Occurred()) return NULL;
    if (!is_known(self, length) && self->known_count < KNOWN) self->known[self->known_count++] = length;
    Py_RETURN_NONE;
}

static PyObject *Lengths_grows(Lengths *self, PyObject *Py_UNUSED(ignored)) {
    int news = self->rising >= GROWTH && !self->reported;
    if (news) self->reported = 1;
    return PyBool_FromLong(news);
}

static PyObject *Lengths_close(Lengths *self, PyObject *Py_UNUSED(ignored)) {
    self->closed = 1;
    Py_RETURN_NONE;
}

static PyObject *Lengths_known(Lengths *self, PyObject *Py_UNUSED(ignored)) {
    PyObject *list = PyList_New(self->known_count);
    for (int i = 0; list && i < self->known_count; i++) {
        PyObject *length = PyLong_FromSsize_t(self->known[i]);
        if (length == NULL) Py_CLEAR(list);
        if (length) PyList_SET_ITEM(list, i, length);
    }
    return list;
}

static PyMethodDef Lengths_methods[] = {
    {"is_new", (PyCFunction)Lengths_is_new, METH_O,
     "is_new(length) -> bool: a call with it is to run plainly; the length is remembered"},
    {"add", (PyCFunction)Lengths_add, METH_O, "add(length): it has an entry of its own"},
    {"grows", (PyCFunction)Lengths_grows, METH_NOARGS,
     "grows() -> bool: it grows with each call; reported only once"},
    {"close", (PyCFunction)Lengths_close, METH_NOARGS, "close(): nothing is new any more"},
    {"known", (PyCFunction)Lengths_known, METH_NOARGS, "known() -> list[int]: those with an entry"},
    {NULL, NULL, 0, NULL},
};

PyTypeObject Lengths_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "frameloom.capture._capture.Lengths",
    .tp_basicsize = sizeof(Lengths),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The lengths that a container was met with.",
    .tp_new = PyType_GenericNew,
    .tp_methods = Lengths_methods,
};
