// Makes, views and inspects tensors through PyTorch's stable C interface; see tensors.h.
#include "tensors.h"

#include <dlfcn.h>

#include <string>

namespace frameloom {

TorchApi torch_api;

namespace {

// Out of line, so that its text does not cost the calls that succeed a stack frame.
[[gnu::noinline, gnu::cold]] bool failed(const char *what) {
    return host::raise(Error::RUNTIME, (std::string("PyTorch could not ") + what).c_str());
}

[[gnu::noinline, gnu::cold]] bool too_few_dimensions(int least, int64_t rank) {
    std::string text = "planned was a tensor of " + std::to_string(least) + " dimensions, given was one of " +
                       std::to_string(rank);
    return host::raise(Error::RUNTIME, text.c_str());
}

void own(Tensor *result, Handle handle) { *result = Tensor{handle, nullptr, true, false}; }

} // namespace

void *torch_symbol(const char *name) {
    for (const char *library : {"libtorch_cpu.so", "libtorch_python.so", "libc10.so", "libtorch_cuda.so"}) {
        void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
        if (handle == nullptr) continue;
        void *address = dlsym(handle, name);
        dlclose(handle);
        if (address) return address;
    }
    return nullptr;
}

bool find_torch_functions() {
    TorchApi &api = torch_api;
    return find(api.empty_strided, "aoti_torch_empty_strided") &&
           find(api.reinterpret, "aoti_torch__reinterpret_tensor") &&
           find(api.from_blob, "aoti_torch_create_tensor_from_blob") &&
           find(api.from_pool, "aoti_torch__alloc_from_pool") &&
           find(api.destroy, "aoti_torch_delete_tensor_object") &&
           find(api.data_pointer, "aoti_torch_get_data_ptr") && find(api.dimensions, "aoti_torch_get_dim") &&
           find(api.sizes, "aoti_torch_get_sizes") && find(api.strides, "aoti_torch_get_strides") &&
           find(api.storage_offset, "aoti_torch_get_storage_offset") &&
           find(api.dtype, "aoti_torch_get_dtype");
}

int64_t Layout::elements() const {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    return count;
}

bool Layout::span(int64_t *bytes) const {
    int64_t count = item_size, last = 0;
    bool empty = false;
    for (int64_t extent : shape) {
        if (extent < 0) return false;
        empty |= extent == 0;
    }
    for (size_t i = 0; i < shape.size() && !empty; i++) {
        int64_t step;
        if (__builtin_mul_overflow(count, shape[i], &count) ||
            __builtin_mul_overflow(shape[i] - 1, strides[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return false;
    }
    *bytes = 0;
    return empty ||
           (!__builtin_add_overflow(last, 1, &last) && !__builtin_mul_overflow(last, item_size, bytes));
}

bool tensor_empty(const Layout &layout, Tensor *result) {
    Handle handle;
    if (!torch_api.fast || layout.dtype < 0 ||
        torch_api.empty_strided((int64_t)layout.shape.size(), layout.shape.data(), layout.strides.data(),
                                layout.dtype, layout.device_type, layout.device_index, &handle))
        return host::make_tensor(layout, result);
    own(result, handle);
    return true;
}

bool tensor_view(const Tensor &base, const Layout &base_layout, const Layout &layout, int64_t offset,
                 Tensor *result) {
    if (!torch_api.fast || layout.dtype < 0 || layout.dtype != base_layout.dtype)
        return host::make_view(base, layout, offset * layout.item_size, result);
    Handle handle;
    if (torch_api.reinterpret(base.handle, (int64_t)layout.shape.size(), layout.shape.data(),
                              layout.strides.data(), offset, &handle))
        return failed("make a view");
    own(result, handle);
    return true;
}

bool tensor_in_pool(const Tensor &pool, const Layout &layout, int64_t byte_offset, Tensor *result) {
    if (!torch_api.fast || layout.dtype < 0) return host::make_view(pool, layout, byte_offset, result);
    Handle handle;
    if (torch_api.from_pool(pool.handle, byte_offset, layout.dtype, (int64_t)layout.shape.size(),
                            layout.shape.data(), layout.strides.data(), &handle))
        return failed("place a tensor in scratch memory");
    own(result, handle);
    return true;
}

bool tensor_at(void *address, const Layout &layout, const Layout &device, Tensor *result) {
    Handle handle;
    if (torch_api.from_blob(address, (int64_t)layout.shape.size(), layout.shape.data(), layout.strides.data(),
                            0, layout.dtype, device.device_type, device.device_index, &handle))
        return failed("make a view");
    own(result, handle);
    return true;
}

bool tensor_data(const Tensor &tensor, void **data) {
    if (!tensor.handle) return host::find_data(tensor, data);
    return torch_api.data_pointer(tensor.handle, data) == 0 || failed("give the address of a tensor");
}

bool tensor_has_rank(const Tensor &tensor, int least) {
    int64_t rank = 0;
    if (least == 0) return true;
    if (!tensor.handle)
        rank = host::rank(tensor);
    else if (torch_api.dimensions(tensor.handle, &rank))
        return failed("describe a tensor");
    if (rank < 0 || rank >= least) return rank >= 0;
    return too_few_dimensions(least, rank);
}

const int64_t *tensor_layout_field(const Tensor &tensor, LayoutField field, std::vector<int64_t> *room) {
    if (!tensor.handle) return host::layout_field(tensor, field, room);
    int64_t *values = nullptr;
    room->resize(1);
    int32_t error = field == LayoutField::SHAPE ? torch_api.sizes(tensor.handle, &values)
                    : field == LayoutField::STRIDES
                        ? torch_api.strides(tensor.handle, &values)
                        : torch_api.storage_offset(tensor.handle, values = room->data());
    if (error) failed("describe a tensor");
    return error ? nullptr : values;
}

int tensor_matches(Tensor *tensor, const Layout &layout) {
    if (!tensor->handle || layout.dtype < 0) return host::matches(tensor, layout);
    int64_t ndim = -1, *sizes = nullptr, *strides = nullptr;
    int32_t dtype = -1;
    if (torch_api.dimensions(tensor->handle, &ndim) || torch_api.dtype(tensor->handle, &dtype) ||
        torch_api.sizes(tensor->handle, &sizes) || torch_api.strides(tensor->handle, &strides))
        return failed("describe a tensor") - 1;
    bool same_shape = dtype == layout.dtype && ndim == (int64_t)layout.shape.size();
    bool same_strides = true, empty = false;
    for (int64_t i = 0; i < ndim && same_shape; i++) {
        same_shape &= sizes[i] == layout.shape[i];
        same_strides &= sizes[i] == 1 || strides[i] == layout.strides[i];
        empty |= sizes[i] == 0;
    }
    if (!same_shape) return host::matches(tensor, layout); // it says what differs
    return same_strides || empty;
}

} // namespace frameloom
