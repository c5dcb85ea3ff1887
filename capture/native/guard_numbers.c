/* A check of a condition on numbers that are graph inputs: `n % 10 == 0`, `lr < limit`.
 *
 * The program is in postfix form: the number of a node, a 1-tuple of a constant, or a pair of a function
 * written in C and its number of operands. The operands are exact ints and floats, or tensors for
 * Tensor.item. Earlier guards ensure this, so no Python code runs.
 */
#include "guard.h"

#define OPERANDS 16 /* on the stack at once */

/* (text, program, True or False) */
static int take_outcome(Step *step, PyObject *value, Py_ssize_t nodes) {
    if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) != 3) return -1;
    PyObject *program = PyTuple_GET_ITEM(value, 1);
    if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(value, 0)) || !PyTuple_CheckExact(program)) return -1;
    Py_ssize_t depth = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(program); i++) {
        PyObject *item = PyTuple_GET_ITEM(program, i);
        Py_ssize_t operands = 0;
        if (PyTuple_CheckExact(item) && PyTuple_GET_SIZE(item) == 2) {
            operands = PyLong_AsSsize_t(PyTuple_GET_ITEM(item, 1));
            if (operands < 1 || operands > depth) return -1;
        } else if (!PyLong_CheckExact(item) && !(PyTuple_CheckExact(item) && PyTuple_GET_SIZE(item) == 1)) {
            return -1;
        }
        depth += 1 - operands;
        if (depth > OPERANDS) return -1;
    }
    return depth == 1 ? guard_take_tuple(step, value, nodes) : -1;
}

/* Whether the program has the same result again; false if it raises. */
static int check_outcome(const Step *step, PyObject *Py_UNUSED(object), PyObject **values) {
    PyObject *program = PyTuple_GET_ITEM(step->object, 1), *stack[OPERANDS];
    Py_ssize_t depth = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(program); i++) {
        PyObject *item = PyTuple_GET_ITEM(program, i), *made;
        if (!PyTuple_CheckExact(item)) {
            stack[depth++] = Py_NewRef(values[PyLong_AsSsize_t(item)]);
            continue;
        }
        if (PyTuple_GET_SIZE(item) == 1) {
            stack[depth++] = Py_NewRef(PyTuple_GET_ITEM(item, 0));
            continue;
        }
        Py_ssize_t operands = PyLong_AsSsize_t(PyTuple_GET_ITEM(item, 1));
        made = PyObject_Vectorcall(PyTuple_GET_ITEM(item, 0), stack + depth - operands, operands, NULL);
        while (operands-- > 0) Py_DECREF(stack[--depth]);
        if (made == NULL) {
            PyErr_Clear();
            while (depth > 0) Py_DECREF(stack[--depth]);
            return 0;
        }
        stack[depth++] = made;
    }
    int same = stack[0] == PyTuple_GET_ITEM(step->object, 2);
    Py_DECREF(stack[0]);
    return same;
}

static PyObject *outcome_text(const Guards *Py_UNUSED(guards), const Step *step) {
    return PyUnicode_FromFormat("%U to be %R", PyTuple_GET_ITEM(step->object, 0),
                                PyTuple_GET_ITEM(step->object, 2));
}

const GuardKind guard_number_checks[] = {
    /* (text, program, True or False): the program has that result */
    {"outcome", take_outcome, .check = check_outcome, .many = 1, .demand = "%U", .subject = outcome_text},
    {0},
};
