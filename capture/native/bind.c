/* Binds the arguments of a call to the slots of a function's frame, like CPython, but without a frame.
 *
 * If the arguments do not fit, nothing is raised: the caller then calls the function itself, which raises
 * its own error.
 */
#include "capture.h"

void bound_release(Bound *bound) {
    if (!bound->owned) return;
    for (Py_ssize_t i = 0; i < bound->count; i++) Py_XDECREF(bound->slots[i]);
    if (bound->slots != bound->room) PyMem_Free(bound->slots);
    bound->owned = 0;
}

PyObject *call_slots(const Call *call) {
    PyObject *slots = PyTuple_New(call->slot_count);
    for (Py_ssize_t i = 0; slots && i < call->slot_count; i++)
        PyTuple_SET_ITEM(slots, i, Py_XNewRef(call->slots[i]));
    return slots;
}

/* Slot of the argument called `name`, -1 if there is none that may be given by name. */
static Py_ssize_t find_name(PyCodeObject *code, Py_ssize_t total, PyObject *name) {
    PyObject *const *names = ((PyTupleObject *)code->co_localsplusnames)->ob_item;
    for (Py_ssize_t i = code->co_posonlyargcount; i < total; i++)
        if (names[i] == name) return i;
    for (Py_ssize_t i = code->co_posonlyargcount; i < total; i++)
        if (PyUnicode_Compare(names[i], name) == 0) return i;
    return -1;
}

/* Binds named arguments; `rest` is the **kwargs dict or NULL. 1: they fit, 0: they do not, -1: exception. */
static int bind_names(PyCodeObject *code, PyObject *const *values, PyObject *names, PyObject **slots,
                      Py_ssize_t total, PyObject *rest) {
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        if (!PyUnicode_Check(name)) return 0;
        Py_ssize_t at = find_name(code, total, name);
        if (at >= 0) {
            if (slots[at]) return 0;
            slots[at] = Py_NewRef(values[i]);
            continue;
        }
        if (rest == NULL) return 0;
        if (PyDict_SetItem(rest, name, values[i]) < 0) return -1;
    }
    return 1;
}

/* 1 if no argument is missing, 0 if one is, -1 exception. */
static int bind_defaults(PyFunctionObject *function, PyCodeObject *code, PyObject **slots, Py_ssize_t total) {
    PyObject *defaults = function->func_defaults, *by_name = function->func_kwdefaults;
    Py_ssize_t first = code->co_argcount - (defaults ? PyTuple_GET_SIZE(defaults) : 0);
    for (Py_ssize_t i = 0; i < total; i++) {
        if (slots[i]) continue;
        PyObject *value = NULL;
        if (i < code->co_argcount) {
            if (i >= first) value = PyTuple_GET_ITEM(defaults, i - first);
        } else if (by_name) {
            value = PyDict_GetItemWithError(by_name, PyTuple_GET_ITEM(code->co_localsplusnames, i));
            if (value == NULL && PyErr_Occurred()) return -1;
        }
        if (value == NULL) return 0;
        slots[i] = Py_NewRef(value);
    }
    return 1;
}

int bind_arguments(PyFunctionObject *function, PyObject *const *args, Py_ssize_t nargs, PyObject *names,
                   Bound *bound) {
    PyCodeObject *code = (PyCodeObject *)function->func_code;
    Py_ssize_t total = code->co_argcount + code->co_kwonlyargcount;
    int has_args = (code->co_flags & CO_VARARGS) != 0, has_kwargs = (code->co_flags & CO_VARKEYWORDS) != 0,
        fits = 0;
    bound->count = total + has_args + has_kwargs;
    bound->slots = bound->room;
    bound->owned = 1;
    if (bound->count > BOUND_ON_STACK &&
        (bound->slots = PyMem_Malloc(bound->count * sizeof *bound->slots)) == NULL) {
        bound->owned = 0;
        PyErr_NoMemory();
        return -1;
    }
    PyObject **slots = bound->slots;
    for (Py_ssize_t i = 0; i < bound->count; i++) slots[i] = NULL;
    Py_ssize_t given = nargs < code->co_argcount ? nargs : code->co_argcount;
    if (nargs > given && !has_args) goto done;
    for (Py_ssize_t i = 0; i < given; i++) slots[i] = Py_NewRef(args[i]);
    if (has_args) {
        PyObject *rest = slots[total] = PyTuple_New(nargs - given);
        for (Py_ssize_t i = given; rest && i < nargs; i++)
            PyTuple_SET_ITEM(rest, i - given, Py_NewRef(args[i]));
        fits = rest ? 0 : -1;
    }
    if (has_kwargs && fits == 0) fits = (slots[total + has_args] = PyDict_New()) ? 0 : -1;
    if (fits == 0)
        fits =
            bind_names(code, args + nargs, names, slots, total, has_kwargs ? slots[total + has_args] : NULL);
    if (fits > 0) fits = bind_defaults(function, code, slots, total);
done:
    if (fits <= 0) bound_release(bound);
    return fits;
}
