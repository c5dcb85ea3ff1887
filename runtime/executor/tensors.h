// Tensors as handles of PyTorch's stable C interface, without PyTorch's headers and without Python.
//
// A Handle is an at::Tensor *.  The one inside an object of the host is borrowed; those that the C
// interface returns are owned.  What the C interface does not offer, the host does (host.h).
#pragma once

#include "host.h"

namespace frameloom {

struct AtenTensor;
using Handle = AtenTensor *;

// The functions of PyTorch's C interface that plans use.  All are present when `fast` is set.
struct TorchApi {
    bool fast = false;
    int32_t (*empty_strided)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, Handle *);
    int32_t (*reinterpret)(Handle, int64_t, const int64_t *, const int64_t *, int64_t, Handle *);
    int32_t (*from_blob)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t,
                         int32_t, Handle *);
    int32_t (*from_pool)(Handle, int64_t, int32_t, int64_t, const int64_t *, const int64_t *, Handle *);
    int32_t (*destroy)(Handle);
    int32_t (*data_pointer)(Handle, void **);
    int32_t (*dimensions)(Handle, int64_t *);
    int32_t (*sizes)(Handle, int64_t **);
    int32_t (*strides)(Handle, int64_t **);
    int32_t (*storage_offset)(Handle, int64_t *);
    int32_t (*dtype)(Handle, int32_t *);
};
// A host fills it in, before it uses the executor: by `find_torch_functions`, or with its own.
extern TorchApi torch_api;
// Finds the functions in the loaded PyTorch libraries; false without an error if one is missing.
bool find_torch_functions();
// Address of a symbol of the loaded PyTorch libraries, nullptr if there is none.
void *torch_symbol(const char *name);
// Fills in a function that `symbol` finds by its name; false if there is none.
template <typename Function>
bool find(Function *&function, const char *name, void *(*symbol)(const char *) = torch_symbol) {
    function = reinterpret_cast<Function *>(symbol(name));
    return function != nullptr;
}

// Shape, strides, dtype and device of a buffer or view.  Objects are borrowed.
struct Layout {
    std::vector<int64_t> shape, strides;
    // The sizes of the plan in shape and strides, -1: a fixed number; empty: all are fixed.  See sizes.h.
    std::vector<int> shape_sizes, stride_sizes;
    // PyTorch's codes; dtype -1: the C interface does not know it.
    int32_t dtype = -1, device_type = 0, device_index = 0;
    int64_t item_size = 0; // 0: there is no dtype
    // For the host: shape and strides if they are fixed, dtype and device.
    Object *shape_object = nullptr, *strides_object = nullptr, *dtype_object = nullptr,
           *device_object = nullptr;

    int64_t elements() const;
    bool span(int64_t *bytes) const; // from the first element to the end of the last; false: impossible
    bool has_dtype() const { return item_size != 0; }
    bool is_sized() const { return !shape_sizes.empty() || !stride_sizes.empty(); }
    bool same_layout(const Layout &other) const {
        return shape == other.shape && strides == other.strides && dtype == other.dtype &&
               dtype_object == other.dtype_object && shape_sizes == other.shape_sizes &&
               stride_sizes == other.stride_sizes;
    }
};

// One tensor during a call.  Plain data: all-zero means "none"; `release` frees what it owns.
struct Tensor {
    Handle handle;
    Object *object;
    bool owns_handle, owns_object;

    bool present() const { return handle != nullptr || object != nullptr; }
    void release() {
        if (owns_handle) torch_api.destroy(handle);
        if (owns_object) host::release(object);
        *this = Tensor{};
    }
};

// Each returns false, or nullptr, with an error set when it fails.
bool tensor_empty(const Layout &layout, Tensor *result); // with uninitialized memory
bool tensor_view(const Tensor &base, const Layout &base_layout, const Layout &layout, int64_t offset,
                 Tensor *result);
bool tensor_in_pool(const Tensor &pool, const Layout &layout, int64_t byte_offset, Tensor *result);
// Makes a tensor over memory that it does not own.  Only with a `fast` interface and a dtype that
// has a code.
bool tensor_at(void *address, const Layout &layout, const Layout &device, Tensor *result);
bool tensor_data(const Tensor &tensor, void **data);
// Whether it has at least so many dimensions; if not, an error is set.
bool tensor_has_rank(const Tensor &tensor, int least);
// Returns one number per dimension, or the storage offset; in `room` if the tensor has no array of
// them.
const int64_t *tensor_layout_field(const Tensor &tensor, LayoutField field, std::vector<int64_t> *room);
// Returns 1 if it is as planned, 0 if strides differ, -1 with an error set (another shape or dtype).
int tensor_matches(Tensor *tensor, const Layout &layout);

} // namespace frameloom
