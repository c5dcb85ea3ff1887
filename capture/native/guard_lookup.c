/* What guards read and compare without running Python code: constants, keys, attributes of instances and
 * classes.
 *
 * A look-up that would run Python code finds nothing.
 */
#include "guard.h"

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
PyObject *guard_dict_find(PyObject *dict, PyObject *key, Py_hash_t hash) {
    PyObject *value = _PyDict_GetItem_KnownHash(dict, key, hash);
    if (value == NULL && PyErr_Occurred()) PyErr_Clear();
    return value;
}

PyObject *guard_no_attributes;

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
    /* A class method binds the object that it wraps, which may be a property. */
    PyObject *wrapped = PyObject_GetAttrString(descriptor, "__func__");
    int native = wrapped && PyFunction_Check(wrapped);
    Py_XDECREF(wrapped);
    if (wrapped == NULL) PyErr_Clear();
    return native;
}

static PyObject *bind(PyObject *descriptor, PyObject *object, PyObject *type) {
    descrgetfunc get = Py_TYPE(descriptor)->tp_descr_get;
    if (get == NULL || (object == NULL && Py_IS_TYPE(descriptor, &PyProperty_Type)))
        return Py_NewRef(descriptor);
    if (!binds_natively(descriptor)) return NULL;
    PyObject *bound = get(descriptor, object, type);
    if (bound == NULL) PyErr_Clear();
    return bound;
}

/* The attribute by the generic rules, new reference; NULL without an exception, also if Python code would
 * have to run. */
PyObject *guard_load_attr(PyObject *object, PyObject *name) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject *in_type = _PyType_Lookup(type, name);
    if (in_type && Py_TYPE(in_type)->tp_descr_get && Py_TYPE(in_type)->tp_descr_set)
        return bind(in_type, object, (PyObject *)type);
    if (PyType_Check(object)) {
        PyObject *own = _PyType_Lookup((PyTypeObject *)object, name);
        if (own) return bind(own, NULL, object);
    } else if (in_type == NULL || Py_TYPE(in_type)->tp_descr_get == NULL || binds_natively(in_type)) {
        PyObject *attribute = _PyObject_GenericGetAttrWithDict(object, name, NULL, 1);
        if (attribute == NULL && PyErr_Occurred()) PyErr_Clear();
        return attribute;
    } else { /* a descriptor in Python over which an instance attribute takes precedence */
        PyObject *dict = guard_dict_of(object);
        PyObject *attribute = dict ? guard_dict_find(dict, name, PyObject_Hash(name)) : NULL;
        return Py_XNewRef(attribute);
    }
    return in_type ? bind(in_type, object, (PyObject *)type) : NULL;
}

/* The attribute as stored in the class or its bases, borrowed. `key`: its name, or a tuple of a name and
 * the class after which the look-up starts, as for `super`. */
PyObject *guard_class_lookup(PyObject *class, PyObject *key) {
    if (!PyType_Check(class)) return NULL;
    PyTypeObject *type = (PyTypeObject *)class;
    if (PyUnicode_CheckExact(key)) return _PyType_Lookup(type, key);
    PyObject *order = type->tp_mro, *name = PyTuple_GET_ITEM(key, 0), *after = PyTuple_GET_ITEM(key, 1);
    int behind = 0;
    (void)_PyType_Lookup(type, name); /* gives the class a version */
    for (Py_ssize_t i = 0; order && i < PyTuple_GET_SIZE(order); i++) {
        PyObject *base = PyTuple_GET_ITEM(order, i);
        PyObject *attribute = behind ? type_own_attribute((PyTypeObject *)base, name) : NULL;
        if (attribute) return attribute;
        behind |= base == after;
    }
    return NULL;
}

PyObject *guard_class_order(PyObject *class) {
    static PyObject *name;
    if (!PyType_Check(class) || (name == NULL && (name = PyUnicode_InternFromString("__init__")) == NULL)) {
        PyErr_Clear();
        return NULL;
    }
    (void)_PyType_Lookup((PyTypeObject *)class, name); /* gives the class a version */
    return ((PyTypeObject *)class)->tp_mro;
}
