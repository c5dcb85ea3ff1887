// Python's numbers in a plan: read from the ints and floats of the call, and computed before the
// steps run, with the results of Python's operators.  If Python would raise, or return a number of
// another type or an int of more than 64 bits, the call is refused and runs as plain Python.
#include "program.h"

#include <cmath>
#include <cfloat>
#include <cstring>

namespace frameloom {

namespace {

double as_float(uint64_t bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

bool put(double value, uint64_t *result) {
    std::memcpy(result, &value, sizeof value);
    return true;
}

bool put(int64_t value, uint64_t *result) {
    *result = (uint64_t)value;
    return true;
}

// --- floats ---

// Python raises an overflow error if finite numbers give an infinity.
bool put_finite(double value, uint64_t *result) { return std::isfinite(value) && put(value, result); }

// Source: CPython's float_divmod.
void divide(double a, double b, double *whole, double *rest) {
    double mod = std::fmod(a, b), div = (a - mod) / b;
    if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
            mod += b;
            div -= 1.0;
        }
    } else {
        mod = std::copysign(0.0, b);
    }
    double floor = 0;
    if (div != 0) {
        floor = std::floor(div);
        if (div - floor > 0.5) floor += 1.0;
    } else {
        floor = std::copysign(0.0, a / b);
    }
    *whole = floor;
    *rest = mod;
}

// Source: CPython's float_pow.  A negative base may give a complex number, and a base of zero may
// divide by zero.
bool power(double a, double b, uint64_t *result) {
    if (!std::isfinite(a) || !std::isfinite(b)) return false;
    if (a < 0 || (a == 0 && (b < 0 || std::signbit(a)))) return false;
    if (b == 0 || a == 1) return put(1.0, result);
    return put_finite(std::pow(a, b), result);
}

bool to_int(double value, uint64_t *result) {
    /* -2^63 fits, 2^63 does not */
    if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0)) return false;
    return put((int64_t)value, result);
}

bool of_floats(NumberStep::Op op, double a, double b, uint64_t *result) {
    double whole, rest;
    switch (op) {
    case NumberStep::ADD:
        return put(a + b, result);
    case NumberStep::SUB:
        return put(a - b, result);
    case NumberStep::MUL:
        return put(a * b, result);
    case NumberStep::TRUEDIV:
        return b != 0 && put(a / b, result);
    case NumberStep::FLOORDIV:
    case NumberStep::MOD:
        if (b == 0) return false;
        divide(a, b, &whole, &rest);
        return put(op == NumberStep::MOD ? rest : whole, result);
    case NumberStep::POW:
        return power(a, b, result);
    case NumberStep::NEG:
        return put(-a, result);
    case NumberStep::ABS:
        return put(std::fabs(a), result);
    case NumberStep::MIN:
        return put(b < a ? b : a, result);
    case NumberStep::MAX:
        return put(b > a ? b : a, result);
    case NumberStep::SINGLE:
        return put((double)(float)a, result);
    case NumberStep::NARROW:
        return !(std::isfinite(a) && std::fabs(a) > FLT_MAX) && put(a, result);
    case NumberStep::FLOAT:
        return put(a, result);
    case NumberStep::INT:
        return to_int(a, result);
    case NumberStep::FLOOR:
        return to_int(std::floor(a), result);
    case NumberStep::CEIL:
        return to_int(std::ceil(a), result);
    case NumberStep::SQRT:
        return a >= 0 && put(std::sqrt(a), result);
    case NumberStep::EXP:
        return std::isfinite(a) && put_finite(std::exp(a), result);
    case NumberStep::EXPM1:
        return std::isfinite(a) && put_finite(std::expm1(a), result);
    case NumberStep::LOG:
        return a > 0 && std::isfinite(a) && put(std::log(a), result);
    case NumberStep::LOG2:
        return a > 0 && std::isfinite(a) && put(std::log2(a), result);
    case NumberStep::LOG10:
        return a > 0 && std::isfinite(a) && put(std::log10(a), result);
    case NumberStep::LOG1P:
        return a > -1 && std::isfinite(a) && put(std::log1p(a), result);
    case NumberStep::SIN:
        return std::isfinite(a) && put(std::sin(a), result);
    case NumberStep::COS:
        return std::isfinite(a) && put(std::cos(a), result);
    case NumberStep::TAN:
        return std::isfinite(a) && put(std::tan(a), result);
    case NumberStep::TANH:
        return put(std::tanh(a), result);
    default:
        return false;
    }
}

// --- ints ---

bool int_power(int64_t a, int64_t b, uint64_t *result) {
    if (b < 0) return false; // a float
    int64_t made = 1;
    while (b > 0) {
        if ((b & 1) && __builtin_mul_overflow(made, a, &made)) return false;
        b >>= 1;
        if (b && __builtin_mul_overflow(a, a, &a)) return false;
    }
    return put(made, result);
}

bool int_divide(NumberStep::Op op, int64_t a, int64_t b, uint64_t *result) {
    if (b == 0 || (a == INT64_MIN && b == -1)) return false;
    int64_t whole = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        whole -= 1;
        rest += b;
    }
    return put(op == NumberStep::MOD ? rest : whole, result);
}

bool of_ints(NumberStep::Op op, int64_t a, int64_t b, uint64_t *result) {
    constexpr int64_t EXACT = (int64_t)1 << 53; // as a double
    int64_t made;
    switch (op) {
    case NumberStep::ADD:
        return !__builtin_add_overflow(a, b, &made) && put(made, result);
    case NumberStep::SUB:
        return !__builtin_sub_overflow(a, b, &made) && put(made, result);
    case NumberStep::MUL:
        return !__builtin_mul_overflow(a, b, &made) && put(made, result);
    case NumberStep::TRUEDIV:
        if (b == 0 || a > EXACT || a < -EXACT || b > EXACT || b < -EXACT) return false;
        return put((double)a / (double)b, result);
    case NumberStep::FLOORDIV:
    case NumberStep::MOD:
        return int_divide(op, a, b, result);
    case NumberStep::POW:
        return int_power(a, b, result);
    case NumberStep::NEG:
        return a != INT64_MIN && put(-a, result);
    case NumberStep::ABS:
        return a != INT64_MIN && put(a < 0 ? -a : a, result);
    case NumberStep::MIN:
        return put(b < a ? b : a, result);
    case NumberStep::MAX:
        return put(b > a ? b : a, result);
    case NumberStep::FLOAT:
        return put((double)a, result);
    case NumberStep::INT:
    case NumberStep::FLOOR:
    case NumberStep::CEIL:
        return put(a, result);
    default:
        return false;
    }
}

} // namespace

bool int_op(int op, int64_t a, int64_t b, int64_t *result) {
    uint64_t bits = 0;
    bool good = of_ints((NumberStep::Op)op, a, b, &bits);
    *result = (int64_t)bits;
    return good;
}

namespace {

// --- tensors ---

template <typename T> T element(const void *data, int64_t offset) {
    return static_cast<const T *>(data)[offset];
}

bool read(const NumberStep &step, const Tensor &tensor, const void *data, uint64_t *result) {
    int64_t at = (int64_t)step.constants[1];
    if (step.op >= NumberStep::DIM) {
        std::vector<int64_t> room;
        LayoutField field = step.op == NumberStep::DIM ? LayoutField::SHAPE : LayoutField::STRIDES;
        const int64_t *from = tensor_layout_field(tensor, field, &room);
        return from != nullptr && put(from[at], result);
    }
    switch (step.op) {
    case NumberStep::READ_F32:
        return put((double)element<float>(data, at), result);
    case NumberStep::READ_F64:
        return put(element<double>(data, at), result);
    case NumberStep::READ_I32:
        return put((int64_t)element<int32_t>(data, at), result);
    case NumberStep::READ_I64:
        return put(element<int64_t>(data, at), result);
    default:
        return false;
    }
}

} // namespace

bool number_op(const std::string &name, NumberStep *step) {
    static const char *const names[] = {"add",  "sub",   "mul",   "truediv", "floordiv", "mod",    "pow",
                                        "neg",  "abs",   "min",   "max",     "single",   "narrow", "float",
                                        "int",  "floor", "ceil",  "sqrt",    "exp",      "expm1",  "log",
                                        "log2", "log10", "log1p", "sin",     "cos",      "tan",    "tanh"};
    static const char *const reads[] = {"read_float32", "read_float64", "read_int32",
                                        "read_int64",   "dim_i",        "stride_i"};
    for (int i = 0; i < 6; i++)
        if (name == reads[i]) {
            step->op = (NumberStep::Op)(NumberStep::READ_F32 + i);
            return true;
        }
    size_t end = name.size() - 2;
    if (name.size() < 3 || name[end] != '_') return false;
    step->of_floats = name[end + 1] == 'f';
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (name.compare(0, end, names[i]) == 0) {
            step->op = (NumberStep::Op)i;
            return true;
        }
    return false;
}

bool number_run(const NumberStep &step, const Tensor *tensors, void **data) {
    uint64_t given[2] = {}, result = 0;
    if (step.op >= NumberStep::READ_F32) {
        int from = step.operands[0];
        bool good = read(step, tensors[from], data[from], &result);
        data[step.result] = reinterpret_cast<void *>((uintptr_t)result);
        return good;
    }
    for (size_t i = 0; i < step.count; i++)
        given[i] =
            step.operands[i] < 0 ? step.constants[i] : reinterpret_cast<uintptr_t>(data[step.operands[i]]);
    bool good = step.of_floats ? of_floats(step.op, as_float(given[0]), as_float(given[1]), &result)
                               : of_ints(step.op, (int64_t)given[0], (int64_t)given[1], &result);
    data[step.result] = reinterpret_cast<void *>((uintptr_t)result);
    return good;
}

} // namespace frameloom
