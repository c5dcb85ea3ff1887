// Library ops that a plan calls through PyTorch's C interface, without the host; see shims.cpp.
#pragma once

#include "tensors.h"

#include <string>
#include <vector>

namespace frameloom {

// The value of one parameter when the op is called; the parameter's type decides which field is
// used.
struct ShimValue {
    Handle tensor = nullptr;                  // T, O (nullptr: none)
    int64_t integer = 0;                      // i, b
    int32_t flag = 0;                         // B
    double number = 0;                        // d, D
    bool present = true;                      // O, D, B, N: given
    const int64_t *integers = nullptr;        // I
    const Handle *tensors = nullptr;          // L
    const Handle *const *optionals = nullptr; // M
    int64_t count = 0;                        // I, L, M

    const Handle *optional_tensor() const { return present ? &tensor : nullptr; }
    const double *optional_number() const { return present ? &number : nullptr; }
    const int32_t *optional_flag() const { return present ? &flag : nullptr; }
};

constexpr size_t SHIM_RESULTS = 12; // the most results of an op

struct Shim {
    const char *target; // "aten.mm.default"
    const char *symbol; // after aoti_torch_<device>_
    int results;
    bool out;               // the caller makes the results and passes them in
    const char *parameters; // in the order of the schema, "T self, d beta=1": type, name, default
    int32_t (*invoke)(void *function, const ShimValue *values, Handle *results);
};

// The value of a parameter in every call: a constant, or the views of its tensors.
struct ShimArgument {
    ShimValue value;
    std::vector<int> views; // of T, O, L and M; -1: none
    std::vector<int64_t> integers;
    std::vector<int> sizes; // of i and I, per integer; -1: a fixed number; empty: all are fixed
    char type;

    bool is_list() const { return type == 'L' || type == 'M'; }
};

struct ShimCall {
    const Shim *shim = nullptr; // nullptr: the host calls the op
    void *function = nullptr;
    std::vector<ShimArgument> arguments;
};

// A parameter of an op, from Shim::parameters.
struct ShimParameter {
    char type;
    std::string name, fallback;
    bool has_fallback;
};
std::vector<ShimParameter> shim_parameters(const Shim &shim);
const Shim *shim_find(std::string target); // nullptr if the table has none
std::vector<const char *> shim_targets();

} // namespace frameloom
