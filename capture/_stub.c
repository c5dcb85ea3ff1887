#include <Python.h>
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "_capture", 0, -1, 0, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit__capture(void) { return PyModule_Create(&def); }
