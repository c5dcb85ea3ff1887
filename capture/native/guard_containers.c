/* The kinds of checks of containers, dictionaries of instances, and classes. */
#include "guard.h"

/* --- lengths --- */

/* A number, or (number, Lengths). */
static int take_length(Step *step, PyObject *value, Py_ssize_t nodes) {
    if (!PyTuple_CheckExact(value)) return guard_take_number(step, value, nodes);
    if (PyTuple_GET_SIZE(value) != 2 || !Py_IS_TYPE(PyTuple_GET_ITEM(value, 1), &Lengths_Type)) return -1;
    if (guard_take_number(step, PyTuple_GET_ITEM(value, 0), nodes) < 0) return -1;
    step->object = Py_NewRef(PyTuple_GET_ITEM(value, 1));
    return 0;
}

static int length_is(PyObject *object, Py_ssize_t length) {
    Py_ssize_t own = PyUnicode_Check(object) ? PyUnicode_GET_LENGTH(object) : guard_length_of(object);
    return own == length;
}

static int check_length(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    if (!length_is(object, step->number)) return 0;
    if (step->object) guard_known_length(step);
    return 1;
}

/* --- keys and members --- */

static int key_is(PyObject *key, PyObject *expected) {
    return key == expected || (constant_supported(expected) && constant_equal(key, expected));
}

/* Whether an iterable has exactly these items, in this order. */
static int items_are(PyObject *iterable, PyObject *expected) {
    PyObject *items = PySequence_List(iterable);
    int same = items && PyList_GET_SIZE(items) == PyTuple_GET_SIZE(expected);
    for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(items); i++)
        same = key_is(PyList_GET_ITEM(items, i), PyTuple_GET_ITEM(expected, i));
    Py_XDECREF(items);
    PyErr_Clear();
    return same;
}

/* Whether a set has exactly these members, and iterates over them in this order. */
static int check_members(const Step *step, PyObject *set, PyObject **Py_UNUSED(values)) {
    return PyAnySet_CheckExact(set) && PySet_GET_SIZE(set) == PyTuple_GET_SIZE(step->object) &&
           items_are(set, step->object);
}

/* An OrderedDict keeps its own order, which the iteration of dict does not use. */
static int ordered_keys_are(PyObject *dict, PyObject *expected) {
    int is_plain = Py_TYPE(dict)->tp_iter == PyODict_Type.tp_iter; /* iterating runs no Python */
    return is_plain && items_are(dict, expected);
}

static int check_keys(const Step *step, PyObject *dict, PyObject **Py_UNUSED(values)) {
    if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(step->object)) return 0;
    if (PyODict_Check(dict)) return ordered_keys_are(dict, step->object);
    Py_ssize_t at = 0, i = 0;
    PyObject *key;
    while (PyDict_Next(dict, &at, &key, NULL))
        if (!key_is(key, PyTuple_GET_ITEM(step->object, i++))) return 0;
    return 1;
}

static PyObject *actual_keys(const Step *Py_UNUSED(step), PyObject *object) {
    return guard_repr_of(PyDict_Check(object) ? PySequence_Tuple(object) : Py_NewRef(object));
}

/* --- what is not there --- */

static int check_no_key(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return PyDict_Check(object) &&
           (guard_key(step) == NULL || guard_dict_find(object, guard_key(step), step->number) == NULL);
}

static PyObject *key_text(const Guards *Py_UNUSED(guards), const Step *step) {
    PyObject *key = guard_intended(step);
    return constant_supported(key) ? guard_repr(key) : guard_identity_text(key);
}

/* The path of the object whose dictionary is at `path`, else NULL without an exception; new reference. */
static PyObject *owner_path(PyObject *path) {
    static const char suffix[] = ".__dict__";
    Py_ssize_t length = PyUnicode_GET_LENGTH(path), tail = (Py_ssize_t)sizeof suffix - 1;
    PyObject *end = length > tail ? PyUnicode_Substring(path, length - tail, length) : NULL;
    int of_dict = end && PyUnicode_CompareWithASCIIString(end, suffix) == 0;
    Py_XDECREF(end);
    return of_dict ? PyUnicode_Substring(path, 0, length - tail) : NULL;
}

/* "net[0]: expected no attribute 'weight' of its own, found Parameter ..." */
static PyObject *no_key_failure(const Guards *guards, const Step *step, PyObject **values) {
    PyObject *path = guard_path(guards, step->node), *dict = values[step->node],
             *key = key_text(guards, step);
    PyObject *value = PyDict_Check(dict) ? PyDict_GetItemWithError(dict, guard_intended(step)) : NULL;
    PyObject *actual = value ? guard_identity_text(value) : NULL, *owner = owner_path(path), *text = NULL;
    if (actual && key && owner)
        text = PyUnicode_FromFormat("%U: expected no attribute %U of its own, found %U", owner, key, actual);
    else if (actual && key && !PyErr_Occurred())
        text = PyUnicode_FromFormat("%U: expected no key %U, found %U", path, key, actual);
    else if (key && !PyDict_Check(dict))
        text = PyUnicode_FromFormat("%U: expected no key %U, found one", path, key);
    Py_XDECREF(owner);
    Py_XDECREF(actual);
    Py_XDECREF(key);
    return text;
}

static int check_no_class_attr(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return PyType_Check(object) && guard_class_lookup(object, step->object) == NULL;
}

static PyObject *attribute_name(const Guards *Py_UNUSED(guards), const Step *step) {
    return Py_NewRef(PyTuple_Check(step->object) ? PyTuple_GET_ITEM(step->object, 0) : step->object);
}

static PyObject *actual_attribute(const Step *step, PyObject *object) {
    PyObject *attribute = guard_class_lookup(object, step->object);
    return attribute ? guard_identity_text(attribute) : PyUnicode_FromString("one");
}

const GuardKind guard_container_checks[] = {
    /* number, or (number, Lengths), which learns that the length is met: len() of a list, tuple, dict, set,
     * added sequence type or str */
    {"length", take_length, .check = check_length, .holds = WITH_LENGTH, .move = MOVE_LENGTH,
     .demand = "length %zd", .actual = guard_length_text},
    /* tuple: the keys of a dict, in this order (compared as by the load "key") */
    {"keys", guard_take_tuple, .check = check_keys, .holds = WITH_KEYS, .reads_dict = 1, .demand = "keys %U",
     .subject = guard_object_text, .actual = actual_keys},
    /* tuple: the members of a set, in the order of its iteration */
    {"members", guard_take_tuple, .check = check_members, .demand = "members %U",
     .subject = guard_object_text},
    /* key: a dict does not have it */
    {"no_key", guard_take_key, .check = check_no_key, .holds = WITH_TABLE, .reads_dict = 1,
     .demand = "no key %U", .subject = key_text, .failure = no_key_failure},
    /* name, or (name, class): a class has no such attribute, nor do its bases after that one */
    {"no_class_attr", guard_take_class_key, .check = check_no_class_attr, .holds = WITH_TABLE,
     .demand = "no attribute %U", .subject = attribute_name, .actual = actual_attribute},
    {0},
};
