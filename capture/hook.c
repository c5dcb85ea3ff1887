#include "capture.h"
static PyObject *nothing(PyObject *m, PyObject *a) { Py_RETURN_NONE; }
static PyObject *no(PyObject *m, PyObject *a) { Py_RETURN_FALSE; }
static PyObject *none_yet(PyObject *m, PyObject *a) { return PyList_New(0); }
static PyMethodDef functions[] = {
    {"hook_enter", nothing, METH_NOARGS, ""},    {"hook_exit", nothing, METH_NOARGS, ""},
    {"hook_suspend", no, METH_NOARGS, ""},       {"hook_restore", nothing, METH_O, ""},
    {"set_frame_callback", nothing, METH_O, ""}, {"code_entries", none_yet, METH_O, ""},
    {"forget_code", nothing, METH_O, ""},        {0, 0, 0, 0}};
int hook_setup(PyObject *module) { return PyModule_AddFunctions(module, functions); }
const char *hook_unsupported(void) { return NULL; }
void hook_leave_code_alone(PyCodeObject *code) {}
