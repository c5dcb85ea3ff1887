/* A check of a condition on symbolic sizes: `8*s0 - s1 == 0`.
 *
 * The program is in postfix form over 64-bit integers: triples of an operation and two operands. The check
 * fails on overflow, on a division by 0, and if a value is not a tensor or an int as expected.
 */
#include "guard.h"

#define DEPTH 32 /* on the stack at once */

typedef enum {
    OP_CONST, /* value */
    OP_DIM,   /* node of a tensor, dimension */
    OP_STRIDE,
    OP_INT, /* node of an int */
    OP_ADD,
    OP_MUL,
    OP_FLOORDIV,
    OP_MOD,
    OP_MAX,
    OP_MIN,
    OP_AT_LEAST_0, /* the last step of a program: compares the result */
    OP_IS_0,
    OP_NOT_0,
    OP_COUNT
} SizeOp;

/* Adds `SIZE_OPS`: their names, in this order. */
int guards_add_size_ops(PyObject *module) {
    PyObject *names = Py_BuildValue("(sssssssssssss)", "const", "dim", "stride", "int", "add", "mul",
                                    "floordiv", "mod", "max", "min", ">=", "==", "!=");
    int status = names ? PyModule_AddObjectRef(module, "SIZE_OPS", names) : -1;
    Py_XDECREF(names);
    return status;
}

typedef struct {
    int64_t op, a, b;
} SizeStep;

static inline SizeStep step_at(PyObject *program, Py_ssize_t i) {
    SizeStep step;
    memcpy(&step, PyBytes_AS_STRING(program) + i * (Py_ssize_t)sizeof step, sizeof step);
    return step;
}

/* (text, program) */
static int take_sizes(Step *step, PyObject *value, Py_ssize_t nodes) {
    if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) != 2) return -1;
    PyObject *program = PyTuple_GET_ITEM(value, 1);
    if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(value, 0)) || !PyBytes_CheckExact(program)) return -1;
    Py_ssize_t count = PyBytes_GET_SIZE(program) / (Py_ssize_t)sizeof(SizeStep), depth = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t op = step_at(program, i).op;
        if (op < 0 || op >= OP_COUNT || (op >= OP_AT_LEAST_0) != (i == count - 1)) return -1;
        if (op >= OP_ADD && op <= OP_MIN && --depth < 1) return -1;
        if (op < OP_ADD && ++depth > DEPTH) return -1;
    }
    return count > 0 && depth == 1 ? guard_take_tuple(step, value, nodes) : -1;
}

/* Rounds toward minus infinity, as Python does. */
static int divide(int64_t a, int64_t b, int64_t *quotient, int64_t *remainder) {
    if (b == 0 || (a == INT64_MIN && b == -1)) return 0;
    *quotient = a / b;
    *remainder = a % b;
    if (*remainder != 0 && (*remainder < 0) != (b < 0)) {
        *quotient -= 1;
        *remainder += b;
    }
    return 1;
}

static int int_of(PyObject *object, int64_t *value) {
    int overflow;
    if (!PyLong_Check(object)) return 0;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow;
}

static int apply(SizeOp op, int64_t a, int64_t b, int64_t *result) {
    int64_t other;
    switch (op) {
    case OP_ADD:
        return !__builtin_add_overflow(a, b, result);
    case OP_MUL:
        return !__builtin_mul_overflow(a, b, result);
    case OP_FLOORDIV:
        return divide(a, b, result, &other);
    case OP_MOD:
        return divide(a, b, &other, result);
    case OP_MAX:
        *result = a > b ? a : b;
        return 1;
    default:
        *result = a < b ? a : b;
        return 1;
    }
}

static int check_sizes(const Step *step, PyObject *Py_UNUSED(object), PyObject **values) {
    PyObject *program = PyTuple_GET_ITEM(step->object, 1);
    Py_ssize_t count = PyBytes_GET_SIZE(program) / (Py_ssize_t)sizeof(SizeStep);
    int64_t stack[DEPTH];
    int depth = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        SizeStep at = step_at(program, i);
        switch ((SizeOp)at.op) {
        case OP_CONST:
            stack[depth++] = at.a;
            break;
        case OP_DIM:
            if (!tensor_size(values[at.a], SIZE_DIMENSION, at.b, &stack[depth++])) return 0;
            break;
        case OP_STRIDE:
            if (!tensor_size(values[at.a], SIZE_STRIDE, at.b, &stack[depth++])) return 0;
            break;
        case OP_INT:
            if (!int_of(values[at.a], &stack[depth++])) return 0;
            break;
        case OP_AT_LEAST_0:
            return stack[0] >= 0;
        case OP_IS_0:
            return stack[0] == 0;
        case OP_NOT_0:
            return stack[0] != 0;
        default:
            depth--;
            if (!apply((SizeOp)at.op, stack[depth - 1], stack[depth], &stack[depth - 1])) return 0;
        }
    }
    return 0;
}

static PyObject *sizes_text(const Guards *Py_UNUSED(guards), const Step *step) {
    return Py_NewRef(PyTuple_GET_ITEM(step->object, 0));
}

const GuardKind guard_size_checks[] = {
    /* (text, program): the last step of the program holds */
    {"sizes", take_sizes, .check = check_sizes, .many = 1, .demand = "%U", .subject = sizes_text,
     .actual = guard_actual_tensor},
    {0},
};
