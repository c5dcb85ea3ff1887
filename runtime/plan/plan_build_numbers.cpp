// Parses numbers and sizes, which are computed before the steps.
#include "plan_build.h"

#include <cstring>

namespace frameloom {

bool Parser::number_step(PyObject *item) {
    NumberStep step{};
    PyObject *op = field(item, "op"), *result = field(item, "result"), *operands = field(item, "operands"),
             *constants = field(item, "constants");
    const char *name = op ? PyUnicode_AsUTF8(op) : nullptr;
    if (!name || !result || !operands || !constants || !buffer_number(result, &step.result)) return false;
    if (!number_op(name, &step) || program->buffers[step.result].kind != Buffer::NUMBER ||
        !PyTuple_Check(operands) || PyTuple_GET_SIZE(operands) > 2 || !PyTuple_Check(constants))
        return wrong("a number is computed by a known op of one or two operands");
    bool is_read = step.op >= NumberStep::READ_F32;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operands); i++) {
        long long at = PyLong_AsLongLong(PyTuple_GET_ITEM(operands, i));
        if (at == -1 && PyErr_Occurred()) return false;
        if (at < 0) {
            void *bits;
            if (~at >= PyTuple_GET_SIZE(constants) ||
                !number_bits(PyTuple_GET_ITEM(constants, (Py_ssize_t)~at), !is_read && step.of_floats, &bits))
                return wrong("a constant of another type than the number computed with it");
            step.operands[i] = -1;
            step.constants[i] = (uint64_t)reinterpret_cast<uintptr_t>(bits);
            continue;
        }
        if (!buffer_number(PyTuple_GET_ITEM(operands, i), &step.operands[i])) return false;
        const Buffer &given = program->buffers[step.operands[i]];
        bool fits = is_read
                        ? given.kind == Buffer::INPUT && (given.device == "cpu" || step.op >= NumberStep::DIM)
                        : given.kind == Buffer::NUMBER && given.is_float == step.of_floats;
        if (!fits) return wrong("a number is computed from numbers of one type, or read from an input");
    }
    step.count = (size_t)PyTuple_GET_SIZE(operands);
    if (step.op >= NumberStep::DIM &&
        step.constants[1] >= program->buffers[step.operands[0]].layout.shape.size())
        return wrong("a number is the size or stride of a dimension that there is");
    program->numbers.push_back(step);
    return true;
}

bool Parser::can_refuse() const {
    bool needed = !program->numbers.empty() || !program->number_inputs.empty() || program->sizes.any();
    return !needed || PyExceptionClass_Check(program->refused) ||
           wrong("a plan with numbers or sizes has an exception for those that it cannot compute");
}

bool Parser::size_number(PyObject *object, int *result) const {
    long long value = PyLong_Check(object) ? PyLong_AsLongLong(object) : -1;
    if (value < 0 || value >= (long long)program->sizes.all.size())
        return wrong("a plan names a size that it does not have");
    *result = (int)value;
    return true;
}

bool Parser::size_numbers(PyObject *tuple, std::vector<int> *result) const {
    if (!PyTuple_Check(tuple)) return wrong("sizes are a tuple");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        int size;
        if (!size_number(PyTuple_GET_ITEM(tuple, i), &size)) return false;
        result->push_back(size);
    }
    return true;
}

bool Parser::size(PyObject *item) {
    static const char *const kinds[] = {"dim", "stride", "offset", "number", "const", "", "after", "item"};
    static const size_t counts[] = {2, 2, 1, 1, 1, 0, 3, 3};
    Size size{};
    PyObject *op = field(item, "op"), *operands = field(item, "operands");
    const char *name = op ? PyUnicode_AsUTF8(op) : nullptr;
    if (!name || !operands) return false;
    size.kind = Size::COMPUTED;
    for (int i = 0; i < 8; i++)
        if (std::strcmp(name, kinds[i]) == 0) size.kind = (Size::Kind)i;
    NumberStep step{};
    size_t wanted = counts[size.kind];
    if (size.kind == Size::COMPUTED) {
        if (!number_op(std::string(name) + "_i", &step) || !int_op_known(step.op))
            return wrong("a size is read, or computed by a known op");
        wanted = step.op == NumberStep::NEG ? 1 : 2;
    }
    size.op = step.op;
    long long given[3] = {};
    if (!PyTuple_Check(operands) || (size_t)PyTuple_GET_SIZE(operands) != wanted)
        return wrong("a size has other operands than its op takes");
    for (size_t i = 0; i < wanted; i++) given[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(operands, i));
    if (PyErr_Occurred()) return false;
    program->sizes.values.push_back(size.kind == Size::CONST ? given[0] : 0);
    if (size.kind == Size::CONST) wanted = 0;
    size.count = wanted;
    if (size.kind == Size::AFTER || size.kind == Size::ITEM) {
        size.step = (int)given[0];
        size.operands[0] = (int)given[1];
        size.operands[1] = (int)given[2];
    } else {
        for (size_t i = 0; i < wanted; i++) size.operands[i] = (int)given[i];
    }
    for (size_t i = 0; i < wanted && size.kind == Size::COMPUTED; i++)
        if (given[i] < 0 || given[i] >= (long long)program->sizes.all.size())
            return wrong("a size is computed from one that is not there yet");
    program->sizes.all.push_back(size);
    return true;
}

bool Parser::int_op_known(NumberStep::Op op) {
    return op == NumberStep::ADD || op == NumberStep::SUB || op == NumberStep::MUL ||
           op == NumberStep::FLOORDIV || op == NumberStep::MOD || op == NumberStep::MAX ||
           op == NumberStep::MIN || op == NumberStep::NEG;
}

} // namespace frameloom
