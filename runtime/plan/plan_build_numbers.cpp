// Parses numbers and sizes, which are computed before the steps.
#include "plan_build.h"

#include <algorithm>

namespace frameloom {

namespace {

bool is_int_op(NumberStep::Op op) {
    return op == NumberStep::ADD || op == NumberStep::SUB || op == NumberStep::MUL ||
           op == NumberStep::FLOORDIV || op == NumberStep::MOD || op == NumberStep::MAX ||
           op == NumberStep::MIN || op == NumberStep::NEG;
}

} // namespace

void Parser::number_step(py::handle item) {
    constexpr const char *RULE = "a number is computed by a known op of one or two operands";
    NumberStep step{};
    step.result = buffer_number(item, "result");
    py::tuple operands = items(item, "operands", RULE), constants = items(item, "constants", RULE);
    require(number_op(text(field(item, "op"), RULE), &step) && operands.size() <= 2, RULE);
    bool is_read = step.op >= NumberStep::READ_F32;
    for (size_t i = 0; i < operands.size(); i++) {
        long long at = number(operands[i]);
        if (at < 0) {
            void *bits;
            require(~at < (long long)constants.size() &&
                        host::read_number(py::object(constants[(size_t)~at]).ptr(),
                                          !is_read && step.of_floats, &bits),
                    "a constant of another type than the number computed with it");
            step.operands[i] = -1;
            step.constants[i] = (uint64_t)reinterpret_cast<uintptr_t>(bits);
            continue;
        }
        step.operands[i] = builder.known_buffer(at);
    }
    step.count = operands.size();
    builder.add(step);
}

void Parser::can_refuse() const {
    bool needed = !program->numbers.empty() || !program->number_inputs.empty() || program->sizes.any();
    require(!needed || PyExceptionClass_Check(program->refused),
            "a plan with numbers or sizes has an exception for those that it cannot compute");
}

std::vector<int> Parser::size_numbers(py::handle object, const char *name) const {
    std::vector<int> result;
    for (py::handle number : items(object, name, "sizes are a tuple")) result.push_back(size_number(number));
    return result;
}

void Parser::size(py::handle item) {
    // In the order of Size::Kind; "": COMPUTED.
    static const char *const kinds[] = {"dim", "stride", "offset", "number", "const", "", "after", "item"};
    static const size_t counts[] = {2, 2, 1, 1, 1, 0, 3, 3};
    Size size{};
    std::string name = text(field(item, "op"), "a size is read, or computed by a known op");
    size_t at = std::find(std::begin(kinds), std::end(kinds), name) - std::begin(kinds);
    size.kind = at < std::size(kinds) ? (Size::Kind)at : Size::COMPUTED;
    NumberStep step{};
    size_t wanted = counts[size.kind];
    if (size.kind == Size::COMPUTED) {
        require(number_op(name + "_i", &step) && is_int_op(step.op),
                "a size is read, or computed by a known op");
        wanted = step.op == NumberStep::NEG ? 1 : 2;
    }
    size.op = step.op;
    long long given[3] = {};
    constexpr const char *RULE = "a size has other operands than its op takes";
    py::tuple operands = items(item, "operands", RULE);
    require(operands.size() == wanted, RULE);
    for (size_t i = 0; i < wanted; i++) given[i] = number(operands[i]);
    size.count = size.kind == Size::CONST ? 0 : wanted;
    bool of_step = size.kind == Size::AFTER || size.kind == Size::ITEM;
    if (of_step) size.step = (int)given[0];
    for (size_t i = of_step; i < size.count; i++) {
        require(given[i] == (int)given[i], RULE);
        size.operands[i - of_step] = (int)given[i];
    }
    builder.add(size, size.kind == Size::CONST ? given[0] : 0);
}

} // namespace frameloom
