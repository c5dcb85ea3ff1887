/* All differences between CPython versions that matter to the C half of capture.
 *
 * The other files contain no version test.
 */
#ifndef FRAMELOOM_COMPAT_H
#define FRAMELOOM_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030B0000
#error "Frameloom needs CPython 3.11 or newer"
#endif

/* The reason why this CPython is not supported; NULL if it is. */
static inline const char *version_unsupported(void) {
#if PY_VERSION_HEX >= 0x030D0000
    return "CPython " Py_STRINGIFY(PY_MAJOR_VERSION) "." Py_STRINGIFY(
        PY_MINOR_VERSION) " is not supported yet (3.11 and 3.12 are)";
#else
    return NULL;
#endif
}

/* A number that changes whenever `dict` changes and that no other dictionary ever has; 0 if there is none.
 * 3.13 keeps values inside objects whose dictionary does not count their changes. */
static inline uint64_t dict_version(PyObject *dict) {
#if PY_VERSION_HEX < 0x030C0000
    return ((PyDictObject *)dict)->ma_version_tag;
#elif PY_VERSION_HEX < 0x030D0000
    _Py_COMP_DIAG_PUSH _Py_COMP_DIAG_IGNORE_DEPR_DECLS return ((PyDictObject *)dict)->ma_version_tag;
    _Py_COMP_DIAG_POP
#else
    (void)dict;
    return 0;
#endif
}

/* The same for a class: it changes whenever the class or one of its bases changes. 0 until an attribute
 * has been looked up. */
static inline uint64_t type_version(PyTypeObject *type) {
    return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

/* The dictionary of an instance, borrowed; `empty` if it has none yet, NULL (without an exception) if it
   cannot have one. */
static inline PyObject *instance_dict(PyObject *object, PyObject *empty) {
#if PY_VERSION_HEX < 0x030D0000
    /* Three words before the object; the lowest bit marks values that are not in a dictionary yet (3.12). */
    if (PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) {
        PyObject *dict = ((PyObject **)object)[-3];
        if (dict && !((uintptr_t)dict & 1)) return dict;
    }
#endif
    PyObject **at = _PyObject_GetDictPtr(object);
    return at == NULL ? NULL : *at ? *at : empty;
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
