/* The extension module frameloom.capture._capture for a CPython newer than those whose frames we know: what
 * `jit/api.py` asks before it loads the compiler, and nothing else.  It uses only the stable interface of
 * CPython, so that it compiles for any version.  setup.py defines REASON. */
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

static PyObject *supported(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyUnicode_FromString(REASON);
}

/* No call is compiled, so none can be held back. */
static PyObject *calls_suspend(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(yes)) { Py_RETURN_FALSE; }

static PyMethodDef functions[] = {
    {"supported", supported, METH_NOARGS, "Why this interpreter is not supported."},
    {"calls_suspend", calls_suspend, METH_O, "Does nothing; returns False."},
    {NULL, NULL, 0, NULL},
};

/* `isinstance` names the type; it has no instances. */
static PyType_Slot jit_function_slots[] = {
    {Py_tp_doc, "A jitted function, of which there are none on this interpreter."},
    {0, NULL},
};
static PyType_Spec jit_function_spec = {
    .name = "frameloom.capture._capture.JitFunction",
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = jit_function_slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "frameloom.capture._capture",
    .m_doc = "Says that this interpreter is not supported.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__capture(void) {
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = module ? PyType_FromSpec(&jit_function_spec) : NULL;
    if (type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0) Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
