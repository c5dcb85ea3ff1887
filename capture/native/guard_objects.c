/* The kinds of checks of any object: its type, its identity, its value as a constant, what it returns. */
#include "guard.h"

/* --- constants --- */

static int take_constant(Step *step, PyObject *value, Py_ssize_t Py_UNUSED(nodes)) {
    if (!constant_supported(value)) return -1;
    step->object = Py_NewRef(value);
    return 0;
}

static int check_equal(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return constant_equal(object, step->object);
}

/* --- identity --- */

/* Pins `object` for an identity check: weakly if its type allows it, so that guards keep nothing alive. */
static int pin(Step *step, PyObject *object, Py_ssize_t Py_UNUSED(nodes)) {
    step->object = PyWeakref_NewRef(object, NULL);
    step->weak = step->object != NULL;
    if (step->object) return 0;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
    PyErr_Clear();
    step->object = Py_NewRef(object);
    return 0;
}

/* Whether the pinned object is `object`. A weak reference whose object died holds None, which itself is
 * never held weakly. */
static inline int pinned(const Step *step, PyObject *object) {
    if (!step->weak) return step->object == object;
    return weakref_object(step->object) == object && object != Py_None;
}

static int check_is(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return pinned(step, object);
}

static PyObject *pinned_text(const Guards *Py_UNUSED(guards), const Step *step) {
    PyObject *object = guard_intended(step);
    if (object != Py_None || !step->weak) return guard_identity_text(object);
    return PyUnicode_FromString("an object that is gone");
}

static PyObject *actual_object(const Step *Py_UNUSED(step), PyObject *object) {
    return guard_identity_text(object);
}

static int take_type(Step *step, PyObject *type, Py_ssize_t nodes) {
    return PyType_Check(type) ? pin(step, type, nodes) : -1;
}

static int check_type(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return pinned(step, (PyObject *)Py_TYPE(object));
}

static PyObject *actual_type(const Step *Py_UNUSED(step), PyObject *object) {
    return PyUnicode_FromFormat("type %s", Py_TYPE(object)->tp_name);
}

static int take_node(Step *step, PyObject *value, Py_ssize_t nodes) {
    if (guard_take_number(step, value, nodes) < 0 || !guard_node_known(step->number, nodes)) return -1;
    step->parent = (int32_t)step->number;
    return 0;
}

static int check_same(const Step *step, PyObject *object, PyObject **values) {
    return object == values[step->parent];
}

static PyObject *other_path(const Guards *guards, const Step *step) {
    return Py_NewRef(guard_path(guards, step->parent));
}

static int check_different(const Step *step, PyObject *object, PyObject **values) {
    return object != values[step->parent];
}

/* --- calls --- */

/* (arguments, result) */
static int take_returns(Step *step, PyObject *value, Py_ssize_t nodes) {
    if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) != 2) return -1;
    return PyTuple_CheckExact(PyTuple_GET_ITEM(value, 0)) ? guard_take_tuple(step, value, nodes) : -1;
}

/* Whether a function written in C returns the same value as before; it has no effects and calls no Python
 * code. */
static int check_returns(const Step *step, PyObject *function, PyObject **Py_UNUSED(values)) {
    PyObject *result =
        PyCFunction_Check(function) ? PyObject_Call(function, PyTuple_GET_ITEM(step->object, 0), NULL) : NULL;
    int same = result && constant_equal(result, PyTuple_GET_ITEM(step->object, 1));
    Py_XDECREF(result);
    if (result == NULL) PyErr_Clear();
    return same;
}

static PyObject *returns_text(const Guards *Py_UNUSED(guards), const Step *step) {
    return guard_repr(PyTuple_GET_ITEM(step->object, 1));
}

static PyObject *actual_result(const Step *step, PyObject *function) {
    return guard_repr_of(PyObject_Call(function, PyTuple_GET_ITEM(step->object, 0), NULL));
}

/* References to an object that only a place of the program holds, while a check looks at it. */
enum { HELD = 2 };

static int check_silent_end(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return step->number ? items_end_silently(object) : object_ends_silently(object, HELD);
}

static int take_text(Step *step, PyObject *name, Py_ssize_t nodes) {
    return PyUnicode_CheckExact(name) ? guard_take_key(step, name, nodes) : -1;
}

static int check_silent_attribute(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return attribute_ends_silently(object, step->object, HELD);
}

static PyObject *silent_end_text(const Guards *Py_UNUSED(guards), const Step *step) {
    return PyUnicode_FromString(step->number ? "items without finalizers" : "no finalizer");
}

/* (class, abstract class, answer) */
static int take_subclass(Step *step, PyObject *value, Py_ssize_t nodes) {
    if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) != 3) return -1;
    step->number = -1;
    return guard_take_tuple(step, value, nodes);
}

/* It is checked before the loads: see guard_subclass_holds. */
static int check_subclass(const Step *Py_UNUSED(step), PyObject *Py_UNUSED(object),
                          PyObject **Py_UNUSED(values)) {
    return 1;
}

/* Whether a class still is a subclass of an abstract one, or still is not. Each registration changes a
 * counter. Only then is the check repeated, which may run the abstract class's Python code. So these
 * checks come before any load. */
int guard_subclass_holds(Step *step) {
    static PyObject *get_token, *ask;
    if (ask == NULL) {
        PyObject *module = PyImport_ImportModule("_abc");
        get_token = module ? PyObject_GetAttrString(module, "get_cache_token") : NULL;
        ask = get_token ? PyObject_GetAttrString(module, "_abc_subclasscheck") : NULL;
        Py_XDECREF(module);
    }
    PyObject *token = ask ? PyObject_CallNoArgs(get_token) : NULL;
    Py_ssize_t now = token ? PyLong_AsSsize_t(token) : -1;
    Py_XDECREF(token);
    int holds = now >= 0 && now == step->number;
    if (now >= 0 && !holds) {
        PyObject *answer = PyObject_CallFunctionObjArgs(ask, PyTuple_GET_ITEM(step->object, 1),
                                                        PyTuple_GET_ITEM(step->object, 0), NULL);
        holds = answer == PyTuple_GET_ITEM(step->object, 2);
        Py_XDECREF(answer); /* a bool, which is never freed */
        step->number = holds ? now : -1;
    }
    PyErr_Clear();
    return holds;
}

static PyObject *subclass_text(const Guards *Py_UNUSED(guards), const Step *step) {
    int expected = PyTuple_GET_ITEM(step->object, 2) == Py_True;
    return guard_format(expected ? "a subclass of %U" : "no subclass of %U",
                        guard_identity_text(PyTuple_GET_ITEM(step->object, 1)));
}

static PyObject *subclass_failure(const Guards *guards, const Step *step, PyObject **Py_UNUSED(values)) {
    PyObject *expected = subclass_text(guards, step), *text = NULL;
    if (expected) text = PyUnicode_FromFormat("%U: expected %U", guard_path(guards, step->node), expected);
    Py_XDECREF(expected);
    return text;
}

const GuardKind guard_object_checks[] = {
    /* class: type(object) is that class */
    {"type", take_type, .check = check_type, .holds = WITH_TYPE, .move = MOVE_INSTANCE, .demand = "type %U",
     .subject = pinned_text, .actual = actual_type},
    /* object: it is that object */
    {"is", pin, .check = check_is, .holds = WITH_OBJECT, .demand = "%U", .subject = pinned_text,
     .actual = actual_object},
    /* constant: the same exact type and equal (floats by bits): None, ..., bool, int, float, complex, str,
     * bytes, and tuples of them */
    {"equal", take_constant, .check = check_equal, .holds = WITH_OBJECT, .demand = "%U",
     .subject = guard_object_text},
    /* node: it is the object of that node, or is not */
    {"same", take_node, .check = check_same, .holds = WITH_BOTH, .demand = "the same object as %U",
     .subject = other_path, .actual = actual_object},
    {"different", take_node, .check = check_different, .holds = WITH_BOTH, .demand = "another object than %U",
     .subject = other_path, .actual = actual_object},
    /* (arguments, result): the function returns that result */
    {"returns", take_returns, .check = check_returns, .demand = "a result of %U", .subject = returns_text,
     .actual = actual_result},
    /* 0: nothing shows when it is freed; 1: or when its items are */
    {"silent_end", guard_take_number, .check = check_silent_end, .demand = "%U", .subject = silent_end_text,
     .actual = actual_object},
    /* name: or when the attribute is that it stores */
    {"silent_attribute", take_text, .check = check_silent_attribute,
     .demand = "no finalizer in its attribute %U", .subject = guard_object_text},
    /* (class, abstract class, answer): the abstract class gives that answer about the class */
    {"subclass", take_subclass, .check = check_subclass, .move = MOVE_SUBCLASS, .demand = "%U",
     .subject = subclass_text, .failure = subclass_failure},
    {0},
};
