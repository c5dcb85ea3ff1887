/* Every difference between the CPython versions that the C half of capture meets.
 *
 * The other files hold no version test.
 */
#ifndef FRAMELOOM_COMPAT_H
#define FRAMELOOM_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030B0000
#error "Frameloom needs CPython 3.11 or newer"
#endif

/* A number that changes whenever `dict` does and that no other dictionary ever has; 0 where there is none.
   3.13 keeps values inside objects whose dictionary does not count their changes. */
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

/* What a weak reference refers to, borrowed; None once it died. */
static inline PyObject *weakref_object(PyObject *reference) {
    return ((PyWeakReference *)reference)->wr_object;
}

#endif
