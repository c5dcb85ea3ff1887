/* All differences between CPython versions that matter to the C half of capture.
 *
 * The other files contain no version test.
 */
#ifndef FRAMELOOM_COMPAT_H
#define FRAMELOOM_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#if PY_VERSION_HEX >= 0x030D0000
#include <pycore_dict.h>
#endif

#if PY_VERSION_HEX < 0x030B0000
#error "Frameloom needs CPython 3.11 or newer"
#endif
#ifdef Py_GIL_DISABLED
#error "Frameloom needs a CPython with the GIL: this one is free-threaded"
#endif

/* Whether the values of the dictionary lie in an object: then writing an attribute of the object changes
 * neither its version nor anything else that can be watched. */
static inline int dict_is_embedded(PyObject *dict) {
#if PY_VERSION_HEX >= 0x030D0000
    PyDictValues *values = ((PyDictObject *)dict)->ma_values;
    return values && values->embedded;
#else
    return 0;
#endif
}

/* A number that changes whenever `dict` changes and that no other dictionary ever has; 0 if there is none. */
static inline uint64_t dict_version(PyObject *dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* since 3.12 */
    return dict_is_embedded(dict) ? 0 : ((PyDictObject *)dict)->ma_version_tag;
#pragma GCC diagnostic pop
}

/* The same for a class: it changes whenever the class or one of its bases changes. 0 until an attribute
 * has been looked up. */
static inline uint64_t type_version(PyTypeObject *type) {
    return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

/* The dictionary of an instance, borrowed; `empty` if it has none yet, NULL (without an exception) if it
   cannot have one. It holds its values itself afterwards, as in 3.12, so its version counts its changes. */
static inline PyObject *instance_dict(PyObject *object, PyObject *empty) {
    /* Three words before the object; the lowest bit marks values that are not in a dictionary yet (3.12). */
    if (PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) {
        PyObject *dict = ((PyObject **)object)[-3];
        if (dict && !((uintptr_t)dict & 1) && !dict_is_embedded(dict)) return dict;
    }
    PyObject **at = _PyObject_GetDictPtr(object);
    if (at == NULL || *at == NULL) return at ? empty : NULL;
#if PY_VERSION_HEX >= 0x030D0000
    if (dict_is_embedded(*at) && _PyObject_SetManagedDict(object, *at) < 0) PyErr_Clear();
#endif
    return *at;
}

/* The class's own attribute of that name, not that of its bases; borrowed, NULL without an exception. */
static inline PyObject *type_own_attribute(PyTypeObject *type, PyObject *name) {
#if PY_VERSION_HEX < 0x030C0000
    PyObject *dict = Py_XNewRef(type->tp_dict);
#else
    PyObject *dict = PyType_GetDict(type); /* builtin classes keep theirs elsewhere */
#endif
    PyObject *value = dict ? PyDict_GetItemWithError(dict, name) : NULL;
    if (value == NULL && PyErr_Occurred()) PyErr_Clear();
    Py_XDECREF(dict); /* the class holds it */
    return value;
}

/* The object that a weak reference refers to, borrowed; None after its death. */
static inline PyObject *weakref_object(PyObject *reference) {
    return ((PyWeakReference *)reference)->wr_object;
}

/* The mapping behind a `types.MappingProxyType`, borrowed: its only field. */
static inline PyObject *proxied_mapping(PyObject *proxy) { return ((PyObject **)((PyObject *)proxy + 1))[0]; }

/* The result in an entry of a bounded `functools.lru_cache`, borrowed: it follows two links, a hash and
 * the key.
 */
static inline PyObject *cached_result(PyObject *entry) {
    size_t size = sizeof(PyObject) + 5 * sizeof(PyObject *);
    return (size_t)Py_TYPE(entry)->tp_basicsize == size ? ((PyObject **)(entry + 1))[4] : NULL;
}

/* What a call of the reference returns: None also while its object is being freed. */
static inline PyObject *weakref_living(PyObject *reference) {
    PyObject *object = weakref_object(reference);
    return Py_REFCNT(object) > 0 ? object : Py_None;
}

#endif
