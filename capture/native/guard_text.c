/* Texts of guards: what they check, and which check a call fails. */
#include "capture.h"

#include <string.h>

static PyObject *short_repr(PyObject *object) {
    enum { LONGEST = 80 };
    PyObject *text = PyObject_Repr(object);
    if (text == NULL || PyUnicode_GET_LENGTH(text) <= LONGEST) return text;
    PyObject *start = PyUnicode_Substring(text, 0, LONGEST),
             *result = start ? PyUnicode_FromFormat("%U...", start) : NULL;
    Py_XDECREF(start);
    Py_DECREF(text);
    return result;
}

/* The object that a step compares with, borrowed. */
static PyObject *meant(const Step *step) { return step->weak ? weakref_object(step->object) : step->object; }

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

static PyObject *identity_text(PyObject *object) {
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
        return short_repr(object);
    return PyUnicode_FromFormat("the %s at %p", Py_TYPE(object)->tp_name, object);
}

/* The expression of a child in terms of the program; `name` is that of the kind. */
PyObject *guard_child_path(PyObject *parent, StepKind kind, PyObject *key, const char *name) {
    switch (kind) {
    case STEP_CLASS_ATTR:
        if (PyTuple_Check(key)) key = PyTuple_GET_ITEM(key, 0);
        /* fall through */
    case STEP_ATTR:
        return PyUnicode_FromFormat("%U.%U", parent, key);
    case STEP_DICT:
        return PyUnicode_FromFormat("%U.__dict__", parent);
    case STEP_CLASS:
        return PyUnicode_FromFormat("type(%U)", parent);
    case STEP_ITEM:
        return PyUnicode_FromFormat("%U[%S]", parent, key);
    case STEP_KEY: {
        /* globals()['f'] is called f, and x.__dict__['w'] x.w, as in the user's program. */
        static const char suffix[] = ".__dict__";
        Py_ssize_t length = PyUnicode_GET_LENGTH(parent), tail = (Py_ssize_t)sizeof suffix - 1;
        if (PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(parent, "globals()") == 0)
            return Py_NewRef(key);
        PyObject *end = length > tail ? PyUnicode_Substring(parent, length - tail, length) : NULL;
        int of_dict = end && PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(end, suffix) == 0;
        Py_XDECREF(end);
        if (PyErr_Occurred()) return NULL;
        /* The repr of a key that is an object may be long, or run code of the program. */
        if (!of_dict && !constant_supported(key)) return PyUnicode_FromFormat("%U[...]", parent);
        if (!of_dict) return PyUnicode_FromFormat("%U[%R]", parent, key);
        PyObject *base = PyUnicode_Substring(parent, 0, length - tail);
        PyObject *path = base ? PyUnicode_FromFormat("%U.%U", base, key) : NULL;
        Py_XDECREF(base);
        return path;
    }
    case STEP_STATE:
        return PyUnicode_FromFormat("%U.__reduce__()", parent);
    case STEP_CLASS_ORDER:
        return PyUnicode_FromFormat("%U.__mro__", parent);
    case STEP_CELL_CONTENTS:
        return PyUnicode_FromFormat("%U.cell_contents", parent);
    case STEP_PROXIED:
    case STEP_CACHED:
        return Py_NewRef(parent);
    case STEP_METHOD_SELF:
        return PyUnicode_FromFormat("%U.__self__", parent);
    case STEP_METHOD_FUNC:
        return PyUnicode_FromFormat("%U.__func__", parent);
    case STEP_REFERENT:
        return PyUnicode_FromFormat("%U()", parent);
    default:
        return PyUnicode_FromFormat("%U.__%s__", parent, name + strlen("func_"));
    }
}

static PyObject *path_of(Guards *guards, Py_ssize_t node) { return PyList_GET_ITEM(guards->paths, node); }

static PyObject *overlap_text(Guards *guards, const Step *step) {
    enum { NAMED = 4 };
    Py_ssize_t named = step->number < NAMED ? step->number : NAMED;
    PyObject *names = PyList_New(step->number), *comma = PyUnicode_FromString(", "), *joined = NULL,
             *text = NULL;
    for (Py_ssize_t i = 0; names && i < step->number; i++)
        PyList_SET_ITEM(names, i, Py_NewRef(path_of(guards, step->order[i])));
    if (names && comma && PyList_Sort(names) == 0 && PyList_SetSlice(names, named, step->number, NULL) == 0)
        joined = PyUnicode_Join(comma, names);
    const char *what = step->kind == CHECK_DISTINCT ? "are different objects" : "share no memory";
    if (joined && named < step->number)
        text = PyUnicode_FromFormat("%U and %zd more %s", joined, step->number - named, what);
    else if (joined)
        text = PyUnicode_FromFormat("%U %s", joined, what);
    Py_XDECREF(names);
    Py_XDECREF(comma);
    Py_XDECREF(joined);
    return text;
}

/* Names the two tensors that share memory, or the two paths that lead to one object. */
static PyObject *actual_overlap_text(Guards *guards, const Step *step, PyObject **values) {
    for (Py_ssize_t i = 0; i < step->number; i++) {
        uintptr_t low, high, other_low, other_high;
        PyObject *path = path_of(guards, step->order[i]);
        if (!guard_extent(step, values[step->order[i]], &low, &high))
            return PyUnicode_FromFormat("%U: expected a tensor whose memory is known", path);
        for (Py_ssize_t j = 0; j < i; j++) {
            if (!guard_extent(step, values[step->order[j]], &other_low, &other_high)) continue;
            if (low == high || other_low == other_high || low >= other_high || other_low >= high) continue;
            PyObject *other = path_of(guards, step->order[j]);
            int ordered = PyUnicode_Compare(other, path) < 0;
            return PyUnicode_FromFormat("%U and %U %s", ordered ? other : path, ordered ? path : other,
                                        step->kind == CHECK_DISTINCT ? "are one object" : "share memory");
        }
    }
    return overlap_text(guards, step);
}

/* What the step requires, as text after the path: "is None". */
static PyObject *demand(Guards *guards, const Step *step) {
    PyObject *inner = NULL, *text;
    const char *format;
    switch (step->kind) {
    case CHECK_TYPE:
        inner = meant(step) == Py_None && step->weak ? PyUnicode_FromString("a type that is gone")
                                                     : identity_text(meant(step));
        format = "type %U";
        break;
    case CHECK_IS:
        inner = meant(step) == Py_None && step->weak ? PyUnicode_FromString("an object that is gone")
                                                     : identity_text(meant(step));
        format = "%U";
        break;
    case CHECK_EQUAL:
        inner = short_repr(step->object);
        format = "%U";
        break;
    case CHECK_OFFSET:
        return PyUnicode_FromFormat("storage offset %zd", step->number);
    case CHECK_OFFSET_MULTIPLE:
        return PyUnicode_FromFormat("storage offset a multiple of %zd", step->number);
    case CHECK_ACCUMULATES:
        return PyUnicode_FromString("a leaf that gradients are added up in");
    case CHECK_HISTORY:
        return PyUnicode_FromString("a tensor with a history");
    case CHECK_UNCHANGED:
        return PyUnicode_FromFormat("the tensor it was, at version %zd", step->number);
    case CHECK_LENGTH:
        return PyUnicode_FromFormat("length %zd", step->number);
    case CHECK_KEYS:
        inner = short_repr(step->object);
        format = "keys %U";
        break;
    case CHECK_MEMBERS:
        inner = short_repr(step->object);
        format = "members %U";
        break;
    case CHECK_NO_KEY:
        inner = constant_supported(meant(step)) ? short_repr(meant(step)) : identity_text(meant(step));
        format = "no key %U";
        break;
    case CHECK_NO_CLASS_ATTR:
        return PyUnicode_FromFormat("no attribute %S", PyTuple_Check(step->object)
                                                           ? PyTuple_GET_ITEM(step->object, 0)
                                                           : step->object);
    case CHECK_SUBCLASS:
        inner = identity_text(PyTuple_GET_ITEM(step->object, 1));
        format = PyTuple_GET_ITEM(step->object, 2) == Py_True ? "a subclass of %U" : "no subclass of %U";
        break;
    case CHECK_OUTCOME:
        return PyUnicode_FromFormat("%U to be %R", PyTuple_GET_ITEM(step->object, 0),
                                    PyTuple_GET_ITEM(step->object, 2));
    case CHECK_SIZES:
        return Py_NewRef(PyTuple_GET_ITEM(step->object, 0));
    case CHECK_NEW_LENGTH:
        return PyUnicode_FromString("a length that is met for the first time");
    case CHECK_RETURNS:
        return PyUnicode_FromFormat("%R", PyTuple_GET_ITEM(step->object, 1));
    case CHECK_SAME:
        return PyUnicode_FromFormat("the same object as %U", path_of(guards, step->parent));
    case CHECK_DIFFERENT:
        return PyUnicode_FromFormat("another object than %U", path_of(guards, step->parent));
    case CHECK_TENSOR:
        return tensor_spec_text(step->tensor);
    default:
        return PyUnicode_FromString("to exist");
    }
    text = inner ? PyUnicode_FromFormat(format, inner) : NULL;
    Py_XDECREF(inner);
    return text;
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
static PyObject *unwanted_text(const Step *step, PyObject *path, PyObject *dict) {
    PyObject *asked = meant(step), *value = PyDict_GetItemWithError(dict, asked), *text = NULL;
    PyObject *owner = owner_path(path), *actual = value ? identity_text(value) : NULL;
    PyObject *key = constant_supported(asked) ? short_repr(asked) : identity_text(asked);
    if (actual && key && owner)
        text = PyUnicode_FromFormat("%U: expected no attribute %U of its own, found %U", owner, key, actual);
    else if (actual && key && !PyErr_Occurred())
        text = PyUnicode_FromFormat("%U: expected no key %U, found %U", path, key, actual);
    Py_XDECREF(owner);
    Py_XDECREF(actual);
    Py_XDECREF(key);
    return text;
}

static PyObject *actual_text(const Step *step, PyObject *object) {
    switch (step->kind) {
    case CHECK_TYPE:
        return PyUnicode_FromFormat("type %s", Py_TYPE(object)->tp_name);
    case CHECK_IS:
    case CHECK_SAME:
    case CHECK_DIFFERENT:
        return identity_text(object);
    case CHECK_OFFSET:
    case CHECK_OFFSET_MULTIPLE:
    case CHECK_ACCUMULATES:
    case CHECK_HISTORY:
        return PyUnicode_FromString("another");
    case CHECK_UNCHANGED:
        return PyUnicode_FromFormat("version %lld", (long long)tensor_version(object));
    case CHECK_NEW_LENGTH:
    case CHECK_LENGTH: {
        Py_ssize_t length = PyObject_Size(object);
        if (length >= 0) return PyUnicode_FromFormat("length %zd", length);
        PyErr_Clear();
        return short_repr(object);
    }
    case CHECK_KEYS:
        if (PyDict_Check(object)) {
            PyObject *keys = PySequence_Tuple(object), *text = keys ? short_repr(keys) : NULL;
            Py_XDECREF(keys);
            return text;
        }
        return short_repr(object);
    case CHECK_NO_KEY:
        return PyUnicode_FromString("one");
    case CHECK_NO_CLASS_ATTR: {
        PyObject *attribute = guard_class_lookup(object, step->object);
        return attribute ? identity_text(attribute) : PyUnicode_FromString("one");
    }
    case CHECK_RETURNS: {
        PyObject *result = PyObject_Call(object, PyTuple_GET_ITEM(step->object, 0), NULL);
        PyObject *text = result ? short_repr(result) : NULL;
        Py_XDECREF(result);
        return text;
    }
    case CHECK_TENSOR:
        return tensor_text(step->tensor, object);
    case CHECK_SIZES:
        return tensor_text(NULL, object);
    default:
        return short_repr(object);
    }
}

static PyObject *failure_text(Guards *guards, const Step *step, PyObject **values) {
    PyObject *path = path_of(guards, step->node), *expected, *actual, *text = NULL;
    if (step->kind <= STEP_LAST_LOAD) return PyUnicode_FromFormat("%U: expected to exist, not found", path);
    if (step->kind >= CHECK_NO_OVERLAP) return actual_overlap_text(guards, step, values);
    if (step->kind == CHECK_NO_KEY && PyDict_Check(values[step->node]))
        return unwanted_text(step, path, values[step->node]);
    if (step->kind == CHECK_SUBCLASS) {
        text = (expected = demand(guards, step)) ? PyUnicode_FromFormat("%U: expected %U", path, expected)
                                                 : NULL;
        Py_XDECREF(expected);
        return text;
    }
    expected = demand(guards, step);
    actual = expected ? actual_text(step, values[step->node]) : NULL;
    const char *format =
        step->kind == CHECK_RETURNS ? "%U(): expected %U, found %U" : "%U: expected %U, found %U";
    if (actual) text = PyUnicode_FromFormat(format, path, expected, actual);
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
        if (step->kind <= STEP_LAST_LOAD) continue;
        int of_many = step->kind >= CHECK_NO_OVERLAP;
        PyObject *what = of_many ? NULL : demand(guards, step);
        PyObject *text = what      ? PyUnicode_FromFormat("%U: %U", path_of(guards, step->node), what)
                         : of_many ? overlap_text(guards, step)
                                   : NULL;
        Py_XDECREF(what);
        if (text == NULL || PyList_Append(list, text) < 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

PyObject *guards_explain(Guards *guards, const Call *call) {
    PyObject **values = PyMem_Calloc(guards_node_count(guards) + 1, sizeof *values);
    if (values == NULL) return PyErr_NoMemory();
    Py_ssize_t failed = guards_walk(guards, call, values);
    PyObject *text;
    if (failed == GUARDS_PASS)
        text = Py_NewRef(Py_None);
    else if (failed == GUARDS_GLOBAL_STATE)
        text = global_state_difference(guards->global_state);
    else
        text = failure_text(guards, &guards->steps[failed], values);
    guards_release(guards, values);
    PyMem_Free(values);
    if (text == NULL && !PyErr_Occurred()) text = Py_NewRef(Py_None);
    return text;
}

/* Binds the arguments as a call does if `kwargs` is given; otherwise `args` are the bound slots. */
PyObject *guards_explain_failure(Guards *guards, PyObject *args) {
    PyObject *positional, *kwargs, *function, *text = NULL;
    if (!PyArg_ParseTuple(args, "O!OO!", &PyTuple_Type, &positional, &kwargs, &PyFunction_Type, &function))
        return NULL;
    if (!PyDict_Check(kwargs)) {
        Call call = {((PyTupleObject *)positional)->ob_item, PyTuple_GET_SIZE(positional),
                     (PyFunctionObject *)function};
        return guards_explain(guards, &call);
    }
    Py_ssize_t count = PyTuple_GET_SIZE(positional), named = PyDict_GET_SIZE(kwargs), at = 0, i = 0;
    PyObject *names = PyTuple_New(named), *key, *value;
    PyObject **flat = PyMem_Malloc((count + named + 1) * sizeof *flat);
    if (names == NULL || flat == NULL) {
        Py_XDECREF(names);
        PyMem_Free(flat);
        return PyErr_NoMemory();
    }
    for (i = 0; i < count; i++) flat[i] = PyTuple_GET_ITEM(positional, i);
    for (i = 0; PyDict_Next(kwargs, &at, &key, &value); i++) {
        PyTuple_SET_ITEM(names, i, Py_NewRef(key));
        flat[count + i] = value;
    }
    Bound bound;
    int fits = bind_arguments((PyFunctionObject *)function, flat, count, names, &bound);
    if (fits > 0) {
        Call call = {bound.slots, bound.count, (PyFunctionObject *)function};
        text = guards_explain(guards, &call);
        bound_release(&bound);
    } else if (fits == 0) {
        text = PyUnicode_FromString("the arguments do not fit the function's signature");
    }
    Py_DECREF(names);
    PyMem_Free(flat);
    return text;
}
