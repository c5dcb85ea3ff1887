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

static PyMethodDef functions[] = {
    {"async_generator_hooks", async_generator_hooks, METH_NOARGS,
     "Whether this thread has hooks for asynchronous generators."},
    {"supported", supported, METH_NOARGS, "None if this interpreter is known, else why not."},
    {"calibrate", calibrate, METH_NOARGS,
     "Find where this PyTorch keeps the fields of a tensor; False: they are read by attribute."},
    {"tracks_versions", tracks_versions, METH_NOARGS,
     "Whether guards can tell that a tensor was written to."},
    {"accumulates", accumulates, METH_O, "Whether autograd adds up gradients in the `grad` of that tensor."},
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
