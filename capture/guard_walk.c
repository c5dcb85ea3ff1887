/* Walking the guard program: the part that every call pays for.
 *
 * No step runs Python code, lets go of the GIL or leaves an exception behind: a load that fails is a failed
 * guard.
 */
#include "capture.h"

#include <string.h>

int constant_supported(PyObject *object) {
    if (PyTuple_CheckExact(object)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++)
            if (!constant_supported(PyTuple_GET_ITEM(object, i))) return 0;
        return 1;
    }
    return object == Py_None || object == Py_Ellipsis || PyBool_Check(object) || PyLong_CheckExact(object) ||
           PyFloat_CheckExact(object) || PyComplex_CheckExact(object) || PyUnicode_CheckExact(object) ||
           PyBytes_CheckExact(object);
}

int constant_equal(PyObject *left, PyObject *right) {
    if (left == right) return 1;
    PyTypeObject *type = Py_TYPE(left);
    if (type != Py_TYPE(right)) return 0;
    if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type) {
        int equal = PyObject_RichCompareBool(left, right,
                                             Py_EQ); /* of exact builtin types: no Python code, no error */
        return equal == 1;
    }
    if (type == &PyFloat_Type)
        return memcmp(&((PyFloatObject *)left)->ob_fval, &((PyFloatObject *)right)->ob_fval,
                      sizeof(double)) == 0;
    if (type == &PyComplex_Type)
        return memcmp(&((PyComplexObject *)left)->cval, &((PyComplexObject *)right)->cval,
                      sizeof(Py_complex)) == 0;
    if (type != &PyTuple_Type || PyTuple_GET_SIZE(left) != PyTuple_GET_SIZE(right)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(left); i++)
        if (!constant_equal(PyTuple_GET_ITEM(left, i), PyTuple_GET_ITEM(right, i))) return 0;
    return 1;
}

/* Borrowed value under `key`, NULL without an exception. */
static PyObject *dict_find(PyObject *dict, PyObject *key, Py_hash_t hash) {
    PyObject *found = _PyDict_GetItem_KnownHash(dict, key, hash);
    if (found == NULL && PyErr_Occurred()) PyErr_Clear();
    return found;
}

static PyObject *instance_dict(PyObject *object) {
    PyObject **at = _PyObject_GetDictPtr(object);
    return at ? *at : NULL;
}

/* Whether binding `descriptor` runs no Python code. */
static int binds_natively(PyObject *descriptor) {
    static PyTypeObject *const types[] = {
        &PyFunction_Type,    &PyStaticMethod_Type,     &PyMemberDescr_Type,  &PyGetSetDescr_Type,
        &PyMethodDescr_Type, &PyClassMethodDescr_Type, &PyWrapperDescr_Type, &JitFunction_Type};
    PyTypeObject *type = Py_TYPE(descriptor);
    if (type->tp_descr_get == NULL) return 1;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(types); i++)
        if (type == types[i]) return 1;
    if (type != &PyClassMethod_Type) return 0;
    /* A class method binds what it wraps, which may be a property. */
    PyObject *wrapped = PyObject_GetAttrString(descriptor, "__func__");
    int native = wrapped && PyFunction_Check(wrapped);
    Py_XDECREF(wrapped);
    if (wrapped == NULL) PyErr_Clear();
    return native;
}

static PyObject *bind(PyObject *descriptor, PyObject *object, PyObject *type) {
    descrgetfunc get = Py_TYPE(descriptor)->tp_descr_get;
    if (get == NULL) return Py_NewRef(descriptor);
    if (!binds_natively(descriptor)) return NULL;
    PyObject *bound = get(descriptor, object, type);
    if (bound == NULL) PyErr_Clear();
    return bound;
}

/* The attribute by the generic rules, new reference; NULL without an exception, also where Python code would
 * have to run. */
static PyObject *load_attr(PyObject *object, PyObject *name) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject *in_type = _PyType_Lookup(type, name);
    if (in_type && Py_TYPE(in_type)->tp_descr_get && Py_TYPE(in_type)->tp_descr_set)
        return bind(in_type, object, (PyObject *)type);
    if (PyType_Check(object)) {
        PyObject *own = _PyType_Lookup((PyTypeObject *)object, name);
        if (own) return bind(own, NULL, object);
    } else if (in_type == NULL || Py_TYPE(in_type)->tp_descr_get == NULL || binds_natively(in_type)) {
        PyObject *found = _PyObject_GenericGetAttrWithDict(object, name, NULL, 1);
        if (found == NULL && PyErr_Occurred()) PyErr_Clear();
        return found;
    } else { /* a descriptor in Python that an instance attribute goes before */
        PyObject *dict = instance_dict(object);
        PyObject *found = dict ? dict_find(dict, name, PyObject_Hash(name)) : NULL;
        return Py_XNewRef(found);
    }
    return in_type ? bind(in_type, object, (PyObject *)type) : NULL;
}

static PyObject *load_item(PyObject *object, Py_ssize_t index) {
    Py_ssize_t size = PyTuple_Check(object) || PyList_Check(object) ? Py_SIZE(object) : 0;
    if (index < 0) index += size;
    if (index < 0 || index >= size) return NULL;
    return PyTuple_Check(object) ? PyTuple_GET_ITEM(object, index) : PyList_GET_ITEM(object, index);
}

static PyObject *load_key(Step *step, PyObject *dict) {
    if (!Py_IS_TYPE(dict, &PyDict_Type) && !PyDict_Check(dict)) return NULL;
    uint64_t version = dict_version(dict);
    if (version && version == step->version) return step->found;
    PyObject *found = dict_find(dict, step->object, step->number);
    step->found = found;
    step->version = found ? version : 0;
    return found;
}

static PyObject *or_none(PyObject *object) { return object ? object : Py_None; }

static PyObject *function_part(StepKind kind, PyObject *object) {
    if (!PyFunction_Check(object)) return NULL;
    PyFunctionObject *function = (PyFunctionObject *)object;
    switch (kind) {
    case STEP_FUNC_CLOSURE:
        return or_none(function->func_closure);
    case STEP_FUNC_DEFAULTS:
        return or_none(function->func_defaults);
    case STEP_FUNC_KWDEFAULTS:
        return or_none(function->func_kwdefaults);
    case STEP_FUNC_CODE:
        return function->func_code;
    default:
        return function->func_globals;
    }
}

static PyObject *load(Step *step, const Call *call, PyObject **values) {
    PyObject *parent = step->kind > STEP_OBJECT ? values[step->parent] : NULL;
    switch (step->kind) {
    case STEP_ARG:
        return step->number < call->slot_count ? call->slots[step->number] : NULL;
    case STEP_CELL: {
        PyObject *closure = call->function->func_closure;
        if (closure == NULL || step->number >= PyTuple_GET_SIZE(closure)) return NULL;
        return PyCell_GET(PyTuple_GET_ITEM(closure, step->number));
    }
    case STEP_GLOBALS:
        return call->function->func_globals;
    case STEP_OBJECT:
        return step->object;
    case STEP_ATTR:
        return load_attr(parent, step->object);
    case STEP_DICT:
        return instance_dict(parent);
    case STEP_CLASS:
        return (PyObject *)Py_TYPE(parent);
    case STEP_ITEM:
        return load_item(parent, step->number);
    case STEP_KEY:
        return load_key(step, parent);
    case STEP_CELL_CONTENTS:
        return PyCell_Check(parent) ? PyCell_GET(parent) : NULL;
    case STEP_METHOD_SELF:
        return PyMethod_Check(parent) ? PyMethod_GET_SELF(parent) : NULL;
    case STEP_METHOD_FUNC:
        return PyMethod_Check(parent) ? PyMethod_GET_FUNCTION(parent) : NULL;
    default:
        return function_part(step->kind, parent);
    }
}

/* The pinned object is `object`.  A weak reference whose object died holds None, which itself is never held
 * weakly. */
static inline int pinned(const Step *step, PyObject *object) {
    if (!step->weak) return step->object == object;
    return weakref_object(step->object) == object && object != Py_None;
}

static int length_is(PyObject *object, Py_ssize_t length) {
    if (PyList_Check(object) || PyTuple_Check(object)) return Py_SIZE(object) == length;
    if (PyDict_Check(object)) return PyDict_GET_SIZE(object) == length;
    if (PyAnySet_Check(object)) return PySet_GET_SIZE(object) == length;
    return PyUnicode_Check(object) && PyUnicode_GET_LENGTH(object) == length;
}

static int key_is(PyObject *key, PyObject *expected) {
    return key == expected || (constant_supported(expected) && constant_equal(key, expected));
}

/* An OrderedDict keeps its own order, which dict's iteration does not follow. */
static int ordered_keys_are(PyObject *dict, PyObject *expected) {
    PyObject *keys = Py_IS_TYPE(dict, &PyODict_Type) ? PySequence_List(dict) : NULL;
    int same = keys && PyList_GET_SIZE(keys) == PyTuple_GET_SIZE(expected);
    for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(keys); i++)
        same = key_is(PyList_GET_ITEM(keys, i), PyTuple_GET_ITEM(expected, i));
    Py_XDECREF(keys);
    PyErr_Clear();
    return same;
}

static int keys_are(Step *step, PyObject *dict) {
    if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(step->object)) return 0;
    uint64_t version = dict_version(dict);
    int ordered = PyODict_Check(dict);
    if (version && version == step->version && !ordered) return 1;
    if (ordered) return ordered_keys_are(dict, step->object);
    Py_ssize_t at = 0, i = 0;
    PyObject *key;
    while (PyDict_Next(dict, &at, &key, NULL))
        if (!key_is(key, PyTuple_GET_ITEM(step->object, i++))) return 0;
    step->version = version;
    return 1;
}

static int lacks_key(Step *step, PyObject *dict) {
    uint64_t version = dict_version(dict);
    if (version && version == step->version) return 1;
    if (dict_find(dict, step->object, step->number)) return 0;
    step->version = version;
    return 1;
}

/* Sorts the nodes by address, starting from the order of the last call, which memory rarely leaves. */
static int no_overlap(Step *step, PyObject **values) {
    enum { ON_STACK = 64 };
    struct Extent {
        uintptr_t low, high;
    } on_stack[ON_STACK], *extents = on_stack;
    Py_ssize_t count = step->number, *order = step->order, used = 0;
    if (count > ON_STACK && (extents = PyMem_Malloc(count * sizeof *extents)) == NULL) return 0;
    int apart = 1;
    for (Py_ssize_t i = 0; i < count && apart; i++) {
        struct Extent extent = {0, 0};
        Py_ssize_t node = order[i], at = used;
        apart = tensor_extent(values[node], &extent.low, &extent.high);
        for (; at > 0 && extents[at - 1].low > extent.low; at--) {
            extents[at] = extents[at - 1];
            order[at] = order[at - 1];
        }
        extents[at] = extent;
        order[at] = node;
        used++;
    }
    uintptr_t reached = 0;
    for (Py_ssize_t i = 0; i < count && apart; i++) {
        if (extents[i].low == extents[i].high) continue; /* no elements */
        apart = extents[i].low >= reached;
        reached = extents[i].high;
    }
    if (extents != on_stack) PyMem_Free(extents);
    return apart;
}

static int check(Step *step, PyObject **values) {
    PyObject *object = values[step->node];
    switch (step->kind) {
    case CHECK_TYPE:
        return pinned(step, (PyObject *)Py_TYPE(object));
    case CHECK_IS:
        return pinned(step, object);
    case CHECK_EQUAL:
        return constant_equal(object, step->object);
    case CHECK_LENGTH:
        return length_is(object, step->number);
    case CHECK_KEYS:
        return keys_are(step, object);
    case CHECK_NO_KEY:
        return PyDict_Check(object) && lacks_key(step, object);
    case CHECK_NO_ATTR: {
        PyObject *dict = instance_dict(object);
        return dict == NULL || lacks_key(step, dict);
    }
    case CHECK_SAME:
        return object == values[step->parent];
    case CHECK_DIFFERENT:
        return object != values[step->parent];
    case CHECK_TENSOR:
        return tensor_matches(step->tensor, object);
    default:
        return no_overlap(step, values);
    }
}

Py_ssize_t guards_walk(Guards *guards, const Call *call, PyObject **values) {
    for (Py_ssize_t i = 0; i < guards->fresh_count; i++) values[guards->fresh_nodes[i]] = NULL;
    if (guards->global_state && !global_state_matches(guards->global_state)) return GUARDS_GLOBAL_STATE;
    Py_ssize_t count = guards->step_count;
    for (Py_ssize_t i = 0; i < count; i++) {
        Step *step = &guards->steps[i];
        if (step->kind <= STEP_LAST_LOAD) {
            PyObject *value = load(step, call, values);
            if (value == NULL) return i;
            values[step->node] = value;
        } else if (!check(step, values)) {
            return i;
        }
    }
    return GUARDS_PASS;
}

void guards_release(Guards *guards, PyObject **values) {
    for (Py_ssize_t i = 0; i < guards->fresh_count; i++) Py_CLEAR(values[guards->fresh_nodes[i]]);
}
