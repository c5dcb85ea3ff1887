/* Texts of guards: what they check, and which check a call fails.
 *
 * What is special about a kind of check is text in its row.
 */
#include "guard.h"

PyObject *guard_repr(PyObject *object) {
    enum { LONGEST = 80 };
    PyObject *text = PyObject_Repr(object);
    if (text == NULL || PyUnicode_GET_LENGTH(text) <= LONGEST) return text;
    PyObject *start = PyUnicode_Substring(text, 0, LONGEST),
             *result = start ? PyUnicode_FromFormat("%U...", start) : NULL;
    Py_XDECREF(start);
    Py_DECREF(text);
    return result;
}

PyObject *guard_repr_of(PyObject *object) {
    PyObject *text = object ? guard_repr(object) : NULL;
    Py_XDECREF(object);
    return text;
}

PyObject *guard_format(const char *format, PyObject *text) {
    PyObject *result = text ? PyUnicode_FromFormat(format, text) : NULL;
    Py_XDECREF(text);
    return result;
}

PyObject *guard_object_text(const Guards *Py_UNUSED(guards), const Step *step) {
    return guard_repr(step->object);
}

/* "f (model.py:12)" */
static PyObject *code_text(const char *what, PyObject *name, PyCodeObject *code) {
    PyObject *file = code->co_filename;
    Py_ssize_t size = PyUnicode_GET_LENGTH(file), slash = PyUnicode_FindChar(file, '/', 0, size, -1);
    PyObject *base = PyUnicode_Substring(file, slash + 1, size);
    PyObject *text =
        base ? PyUnicode_FromFormat("%s %U (%U:%d)", what, name, base, code->co_firstlineno) : NULL;
    Py_XDECREF(base);
    return text;
}

/* A class method is described by its function, a property by its getter. */
static PyObject *descriptor_text(PyObject *object, const char *part) {
    PyObject *function = PyObject_GetAttrString(object, part), *text = NULL;
    if (function == NULL) PyErr_Clear();
    if (function && PyFunction_Check(function))
        text = code_text(Py_TYPE(object)->tp_name, ((PyFunctionObject *)function)->func_qualname,
                         (PyCodeObject *)PyFunction_GET_CODE(function));
    else
        text = PyUnicode_FromFormat("the %s at %p", Py_TYPE(object)->tp_name, object);
    Py_XDECREF(function);
    return text;
}

PyObject *guard_identity_text(PyObject *object) {
    if (PyType_Check(object)) return PyUnicode_FromString(((PyTypeObject *)object)->tp_name);
    if (PyFunction_Check(object))
        return code_text("function", ((PyFunctionObject *)object)->func_qualname,
                         (PyCodeObject *)PyFunction_GET_CODE(object));
    if (PyCode_Check(object))
        return code_text("code of", ((PyCodeObject *)object)->co_qualname, (PyCodeObject *)object);
    if (Py_IS_TYPE(object, &PyProperty_Type)) return descriptor_text(object, "fget");
    if (Py_IS_TYPE(object, &PyStaticMethod_Type) || Py_IS_TYPE(object, &PyClassMethod_Type))
        return descriptor_text(object, "__func__");
    if (constant_supported(object) || PyCFunction_Check(object) || Py_IS_TYPE(object, &PyWrapperDescr_Type) ||
        strcmp(Py_TYPE(Py_TYPE(object))->tp_name, "EnumType") == 0)
        return guard_repr(object);
    return PyUnicode_FromFormat("the %s at %p", Py_TYPE(object)->tp_name, object);
}

PyObject *guard_demand(const Guards *guards, const Step *step) {
    const GuardKind *kind = step->kind;
    if (kind->subject) return guard_format(kind->demand, kind->subject(guards, step));
    return PyUnicode_FromFormat(kind->demand, step->number);
}

/* "x: type int" */
static PyObject *step_text(const Guards *guards, const Step *step) {
    if (step->kind->text) return step->kind->text(guards, step);
    PyObject *demand = guard_demand(guards, step), *text = NULL;
    if (demand) text = PyUnicode_FromFormat("%U: %U", guard_path(guards, step->node), demand);
    Py_XDECREF(demand);
    return text;
}

PyObject *guard_failure(const Guards *guards, const Step *step, PyObject **values) {
    const GuardKind *kind = step->kind;
    PyObject *path = guard_path(guards, step->node), *object = values[step->node], *actual = NULL;
    if (kind->load) return PyUnicode_FromFormat("%U: expected to exist, not found", path);
    if (kind->failure) return kind->failure(guards, step, values);
    PyObject *expected = guard_demand(guards, step), *text = NULL;
    if (expected) actual = kind->actual ? kind->actual(step, object) : guard_repr(object);
    if (actual) text = PyUnicode_FromFormat("%U: expected %U, found %U", path, expected, actual);
    Py_XDECREF(expected);
    Py_XDECREF(actual);
    return text;
}

PyObject *guards_texts(Guards *guards) {
    PyObject *list = PyList_New(0);
    if (list && guards->global_state) {
        PyObject *text = PyUnicode_FromString("PyTorch's global state is as it was");
        if (text == NULL || PyList_Append(list, text) < 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    for (Py_ssize_t i = 0; list && i < guards->step_count; i++) {
        const Step *step = &guards->steps[i];
        if (step->kind->load) continue;
        PyObject *text = step_text(guards, step);
        if (text == NULL || PyList_Append(list, text) < 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}
