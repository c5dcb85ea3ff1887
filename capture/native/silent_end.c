/* Whether an object can be freed without the program noticing when: neither it nor what only it holds has a
 * finalizer, or a weak reference with a callback. Compiled code frees what it takes out of containers when
 * it writes them, at its end. */
#include "capture.h"

enum { MOST = 100000 }; /* objects that are looked at */

typedef struct {
    int left;
    Py_ssize_t held; /* an object with more references does not end */
} Walk;

static int has_callback(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (!PyType_SUPPORTS_WEAKREFS(type) || PyType_Check(object)) return 0;
    PyWeakReference *ref = *(PyWeakReference **)((char *)object + type->tp_weaklistoffset);
    for (; ref != NULL; ref = ref->wr_next)
        if (ref->wr_callback != NULL) return 1;
    return 0;
}

/* Returns 1 if an end shows, which also ends the traversal. */
static int visit(PyObject *object, void *state) {
    Walk *walk = state;
    if (Py_REFCNT(object) > walk->held) return 0;
    PyTypeObject *type = Py_TYPE(object);
    if (type->tp_finalize != NULL || type->tp_del != NULL || has_callback(object)) return 1;
    if (!PyObject_IS_GC(object) || type->tp_traverse == NULL) return 0;
    if (walk->left-- == 0 || Py_EnterRecursiveCall("")) {
        PyErr_Clear();
        return 1;
    }
    Py_ssize_t held = walk->held;
    walk->held = 1;
    int shows = type->tp_traverse(object, visit, walk);
    walk->held = held;
    Py_LeaveRecursiveCall();
    return shows;
}

int object_ends_silently(PyObject *object, Py_ssize_t held) {
    Walk walk = {MOST, held};
    return !visit(object, &walk);
}

/* The same for all that only this container holds. */
int items_end_silently(PyObject *object) {
    Walk walk = {MOST, 1};
    return Py_TYPE(object)->tp_traverse == NULL || !Py_TYPE(object)->tp_traverse(object, visit, &walk);
}

/* What the object stores under that name itself, in a slot or in its dictionary, as a new reference; NULL
 * without an exception if nothing. No Python code runs. A dictionary is not made for that, but beside a
 * descriptor that would answer in its place. */
static PyObject *stored_attribute(PyObject *object, PyObject *name, PyObject *shared) {
    PyObject *stored;
    if (shared && Py_TYPE(shared)->tp_descr_get && !PyFunction_Check(shared) &&
        !Py_IS_TYPE(shared, &PyMemberDescr_Type)) {
        PyObject *dict = instance_dict(object, NULL);
        stored = dict ? Py_XNewRef(PyDict_GetItemWithError(dict, name)) : NULL;
    } else
        stored = _PyObject_GenericGetAttrWithDict(object, name, NULL, 1);
    if (stored == NULL) PyErr_Clear();
    return stored;
}

/* The same for an attribute. Classes with a descriptor of that name that is written to are refused, since it
 * may run Python code. */
int attribute_ends_silently(PyObject *object, PyObject *name, Py_ssize_t held) {
    PyObject *shared = _PyType_Lookup(Py_TYPE(object), name);
    if (shared && Py_TYPE(shared)->tp_descr_set && !Py_IS_TYPE(shared, &PyMemberDescr_Type)) return 0;
    PyObject *stored = stored_attribute(object, name, shared);
    if (stored == NULL) return 1;
    int silent = stored == shared || object_ends_silently(stored, held);
    Py_DECREF(stored);
    return silent;
}

PyObject *stored_ends_silently(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *object, *name;
    if (!PyArg_ParseTuple(args, "OU", &object, &name)) return NULL;
    return PyBool_FromLong(attribute_ends_silently(object, name, PY_SSIZE_T_MAX));
}

PyObject *ends_silently(PyObject *Py_UNUSED(module), PyObject *object) {
    return PyBool_FromLong(object_ends_silently(object, PY_SSIZE_T_MAX));
}
