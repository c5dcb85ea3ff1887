/* The extension module frameloom.capture._capture: its types and functions.  Importing it does not import
 * PyTorch. */
#include "capture.h"

static PyObject *supported(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    const char *reason = hook_unsupported();
    if (reason == NULL) Py_RETURN_NONE;
    return PyUnicode_FromString(reason);
}

static PyObject *calibrate(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    if (torch_header_ready() < 0) return NULL;
    return PyBool_FromLong(torch_header.raw);
}

static PyObject *tracks_versions(PyObject *module, PyObject *ignored) {
    if (torch_header_ready() < 0) return NULL;
    return PyBool_FromLong(tensor_versions_known());
}

/* An event loop sets them. */
static PyObject *async_generator_hooks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    PyThreadState *thread = PyThreadState_Get();
    return PyBool_FromLong(thread->async_gen_firstiter != NULL || thread->async_gen_finalizer != NULL);
}

/* Whether a value of NumPy's error state only ignores or warns. NumPy 2 returns texts in a dict; NumPy 1 a
 * list, whose second item has three bits for each kind of error: 0 ignores, 1 warns. */
static int error_state_is_quiet(PyObject *state) {
    if (PyDict_CheckExact(state)) {
        static const char *const names[] = {"divide", "over", "under", "invalid"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            PyObject *how = PyDict_GetItemString(state, names[i]);
            if (how == NULL || !PyUnicode_Check(how)) return 0;
            if (PyUnicode_CompareWithASCIIString(how, "ignore") &&
                PyUnicode_CompareWithASCIIString(how, "warn"))
                return 0;
        }
        return 1;
    }
    if (!PyList_CheckExact(state) || PyList_GET_SIZE(state) < 2) return 0;
    long bits = PyLong_AsLong(PyList_GET_ITEM(state, 1));
    if (bits == -1 && PyErr_Occurred()) return -1;
    return !(bits & ~01111L);
}

/* The context variable, if there is one, has another object for each state, so an unchanged object skips the
 * reader. */
static PyObject *numpy_is_quiet(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    static PyObject *last; /* an object of the variable that stands for a quiet state */
    if (count != 2) return PyErr_Format(PyExc_TypeError, "numpy_is_quiet takes a variable and a reader");
    PyObject *now = NULL;
    if (args[0] != Py_None && PyContextVar_Get(args[0], NULL, &now) < 0) return NULL;
    if (now != NULL && now == last) {
        Py_DECREF(now);
        Py_RETURN_TRUE;
    }
    PyObject *state = PyObject_CallNoArgs(args[1]);
    int quiet = state ? error_state_is_quiet(state) : -1;
    Py_XDECREF(state);
    if (quiet == 1 && now != NULL) Py_XSETREF(last, Py_NewRef(now));
    Py_XDECREF(now);
    return quiet < 0 ? NULL : PyBool_FromLong(quiet);
}

static PyMethodDef functions[] = {
    {"async_generator_hooks", async_generator_hooks, METH_NOARGS,
     "Whether this thread has hooks for asynchronous generators."},
    {"numpy_is_quiet", (PyCFunction)(void (*)(void))numpy_is_quiet, METH_FASTCALL,
     "numpy_is_quiet(variable, reader): whether NumPy does no more than to warn of errors of floats."},
    {"compile_stance", compile_stance, METH_NOARGS,
     "The stance that `torch.compiler.set_stance` has set, \"default\" if none."},
    {"supported", supported, METH_NOARGS, "None if this interpreter is known, else why not."},
    {"calibrate", calibrate, METH_NOARGS,
     "Find where this PyTorch keeps the fields of a tensor; False: they are read by attribute."},
    {"tracks_versions", tracks_versions, METH_NOARGS,
     "Whether guards can tell that a tensor was written to."},
    {"accumulates", accumulates, METH_O, "Whether autograd adds up gradients in the `grad` of that tensor."},
    {"accumulator_hooked", accumulator_hooked, METH_O,
     "Whether hooks run where autograd adds up gradients of that tensor; True if that is unknown."},
    {"ends_silently", ends_silently, METH_O,
     "Whether nothing shows when that object is freed, with all that only it holds."},
    {"stored_ends_silently", stored_ends_silently, METH_VARARGS,
     "stored_ends_silently(object, name): the same for an attribute that the object stores."},
    {"tensors_written", tensors_written, METH_VARARGS,
     "tensors_written(tensors, places) -> three words for each: which it is, how often written to, where."},
    {"tensor_layout", tensor_layout, METH_VARARGS,
     "tensor_layout(like, sizes, strides) -> what tensors_lie compares with, None if it cannot."},
    {"tensors_where", (PyCFunction)(void (*)(void))tensors_where, METH_FASTCALL,
     "tensors_where(values, places) -> two words for each: its storage, and its offset there."},
    {"tensors_lie", (PyCFunction)(void (*)(void))tensors_lie, METH_FASTCALL,
     "tensors_lie(values, layouts): whether the tensors among them still have these layouts."},
    {"add_sequence_type", add_sequence_type, METH_O,
     "add_sequence_type(type): guards may read the length and the items of its exact instances."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "frameloom.capture._capture",
    .m_doc = "Guards, entries, jitted functions and the frame hook.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__capture(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    RunPlainly = PyErr_NewException("frameloom.capture._capture.RunPlainly", NULL, NULL);
    if (RunPlainly == NULL || PyModule_AddObjectRef(module, "RunPlainly", RunPlainly) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    if (guards_add_loads(module) < 0 || guards_add_size_ops(module) < 0 ||
        PyModule_AddType(module, &Guards_Type) < 0 || PyModule_AddType(module, &Entry_Type) < 0 ||
        PyModule_AddType(module, &Lengths_Type) < 0 || PyModule_AddType(module, &JitFunction_Type) < 0 ||
        hook_setup(module) < 0)
        Py_CLEAR(module);
    return module;
}
