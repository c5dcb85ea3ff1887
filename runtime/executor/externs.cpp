// Library calls of a plan: through PyTorch's C interface if it has the op, else through the host.
#include "frame.h"

#include <alloca.h>

#include <utility>

namespace frameloom {

bool Frame::adopt(const Extern &call) {
    if (call.sizes >= 0 && !find_sizes((size_t)call.sizes)) return false;
    for (int number : call.results)
        if (number >= 0 && !adopt(number)) return false;
    return true;
}

bool Frame::adopt(int number) {
    const Layout &layout = program.buffers[number].layout;
    Tensor *tensor = &tensors[number];
    int matches = tensor_matches(tensor, layout);
    if (matches < 0) return false;
    if (matches == 0 && !host::restride(tensor, layout)) return false;
    if (!tensor_data(*tensor, &data[number])) return false;
    /* A result that is a view of scratch memory is copied, as later steps overwrite this memory. */
    return !in_scratch(data[number]) ||
           (host::restride(tensor, layout) && tensor_data(*tensor, &data[number]));
}

bool Frame::in_scratch(const void *address) const {
    for (size_t i = 0; i < program.arenas.size() && scratch; i++) {
        const char *start = static_cast<const char *>(scratch->memory[i].base);
        if (start && address >= start && address < start + scratch->memory[i].bytes) return true;
    }
    return false;
}

// Returns 1 if done, 0 if the C function reported an error (the host then raises it), -1 with an
// error set.
int Frame::run_shim(const Extern &call) {
    const ShimCall &shim = call.shim;
    size_t count = shim.arguments.size(), lists = 0;
    for (const ShimArgument &argument : shim.arguments)
        lists += argument.is_list() ? argument.views.size() : 0;
    ShimValue values[16];
    Handle *list = static_cast<Handle *>(alloca((lists + 1) * sizeof(Handle)));
    const Handle **optional = static_cast<const Handle **>(alloca((lists + 1) * sizeof(Handle *)));
    for (size_t i = 0; i < count; i++) {
        const ShimArgument &argument = shim.arguments[i];
        values[i] = argument.value;
        if (argument.type == 'I') {
            values[i].integers = argument.integers.data();
            values[i].count = (int64_t)argument.integers.size();
        } else if (argument.is_list()) {
            values[i].tensors = list;
            values[i].optionals = optional;
            values[i].count = (int64_t)argument.views.size();
        }
        for (int number : argument.views) {
            Tensor *tensor = number < 0 ? nullptr : view(number, true);
            if (number >= 0 && tensor == nullptr) return -1;
            if (tensor && tensor->handle == nullptr) return 0;
            values[i].tensor = tensor ? tensor->handle : nullptr;
            if (!argument.is_list()) continue;
            *list = values[i].tensor;
            *optional++ = tensor ? list : nullptr;
            list++;
        }
    }
    Handle results[SHIM_RESULTS] = {};
    Tensor fresh{};
    if (call.out_form) {
        for (size_t i = 0; i < call.results.size(); i++) {
            Tensor *tensor = view(call.result_views[i], true);
            if (tensor == nullptr) return -1;
            results[i] = tensor->handle;
        }
    } else if (shim.shim->out) {
        if (call.results[0] < 0) return 1; // nothing uses the only result
        if (!tensor_empty(program.buffers[call.results[0]].layout, &fresh)) return -1;
        results[0] = fresh.handle;
    }
    void *left = call.leaves_lock ? host::leave_lock() : nullptr;
    int32_t error = shim.shim->invoke(shim.function, values, results);
    if (left) host::take_lock(left);
    if (error || call.out_form) {
        fresh.release();
        return error == 0;
    }
    for (size_t i = 0; i < call.results.size(); i++) {
        Tensor tensor = shim.shim->out ? fresh : Tensor{results[i], nullptr, results[i] != nullptr, false};
        put(call.results[i], tensor);
    }
    return adopt(call) ? 1 : -1;
}

void Frame::put(int number, Tensor tensor) {
    if (number >= 0) std::swap(tensors[number], tensor);
    tensor.release();
}

bool Frame::run_extern(const Extern &call) {
    if (call.shim.shim) {
        int done = run_shim(call);
        if (done != 0) return done > 0;
    }
    return host::call(*this, call);
}

} // namespace frameloom
