// Tensors without PyTorch's headers: handles of its C interface, found by dlsym, and Python objects where
// these lack.
//
// A Handle is an at::Tensor *.  The one inside a Python tensor is borrowed; those that the C interface
// returns are owned.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <vector>

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
    PyObject *(*wrap)(Handle);
    PyObject *(*wrap_moved)(Handle); // leaves the handle empty; cheaper, may be nullptr
    bool (*grad_enabled)();          // gradient mode of this thread; always present
    void (*set_grad_enabled)(bool);
    PyTypeObject *tensor_type; // torch.Tensor; strong
    PyObject *fallback;        // the module runtime/fallback.py; strong
};
// Looked up at the first call; nullptr with an exception set if PyTorch cannot be imported.
const TorchApi *torch_api();
// Address of a symbol of the loaded PyTorch libraries, nullptr if there is none.
void *torch_symbol(const char *name);

// While it lives, autograd records nothing in this thread: what a plan computes has the history that its
// graph was captured with, whatever mode the caller is in.
class NoGrad {
  public:
    explicit NoGrad(bool wanted) : was_enabled(wanted && torch_api()->grad_enabled()) { set(true); }
    ~NoGrad() { set(false); }
    void set(bool now) { // for a while
        if (was_enabled && now != is_set) torch_api()->set_grad_enabled(!now);
        is_set = now;
    }
    NoGrad(const NoGrad &) = delete;

  private:
    bool was_enabled, is_set = false;
};

// What a buffer or view looks like.  Objects are borrowed from the plan's spec.
struct Layout {
    std::vector<int64_t> shape, strides;
    std::vector<int> shape_sizes,
        stride_sizes; // the sizes of the plan that stand there, -1: none; see sizes.h
    int32_t dtype = -1, device_type = 0,
            device_index = 0; // PyTorch's codes; dtype -1: not known to the C interface
    int64_t item_size = 0;
    PyObject *shape_object = nullptr, *strides_object = nullptr, *dtype_object = nullptr,
             *device_object = nullptr; // shape and strides: null where sizes stand in them

    int64_t elements() const;
    bool span(int64_t *bytes) const; // from the first element to the end of the last; false: no tensor is so
    PyObject *shape_tuple() const;   // new reference
    PyObject *stride_tuple() const;
    bool is_sized() const { return !shape_object || !strides_object; }
    bool same_form(const Layout &other) const {
        return shape == other.shape && strides == other.strides && dtype_object == other.dtype_object &&
               shape_sizes == other.shape_sizes && stride_sizes == other.stride_sizes;
    }
};
// An int of the spec; or a SizeRef, then `size` is its index and the value 0, else -1.
bool read_int(PyObject *object, int64_t *value, int *size);
bool is_size(PyObject *object);
// `device` may be nullptr: CPU is assumed for the codes and no tensor is made from this layout.
bool layout_parse(PyObject *shape, PyObject *strides, PyObject *dtype, PyObject *device, Layout *layout);

// One tensor during a call.  Plain data: all-zero is "none", `release` gives up what it owns.
struct Tensor {
    Handle handle;
    PyObject *object;
    bool owns_handle, owns_object;

    bool present() const { return handle != nullptr || object != nullptr; }
    void release();
};

// Each returns false, or nullptr, with a Python exception set when it fails.
bool tensor_borrow(PyObject *object, Tensor *result);    // TypeError if it is no tensor
bool tensor_adopt(PyObject *object, Tensor *result);     // steals the reference
bool tensor_empty(const Layout &layout, Tensor *result); // uninitialised memory
bool tensor_view(const Tensor &base, const Layout &base_layout, const Layout &layout, int64_t offset,
                 Tensor *result);
bool tensor_in_pool(const Tensor &pool, const Layout &layout, int64_t byte_offset, Tensor *result);
// Over memory that it does not own.  Only with a `fast` interface and a dtype that has a code.
bool tensor_at(void *address, const Layout &layout, const Layout &device, Tensor *result);
bool tensor_data(const Tensor &tensor, void **data);
// Whether it has so many dimensions at least; if not, an exception is set.
bool tensor_has_rank(const Tensor &tensor, int least);
enum class Form { SHAPE, STRIDES, OFFSET };
// One number a dimension, or the storage offset; in `room` where the tensor has no array of them.  nullptr
// with an exception set.
const int64_t *tensor_form(const Tensor &tensor, Form form, std::vector<int64_t> *room);
// A view of `base` that autograd and `_base` know, `offset` elements of its dtype behind the base's first
// one.
PyObject *tensor_strided_view(PyObject *base, const Layout &layout, int64_t offset);
PyObject *tensor_object(Tensor *tensor); // borrowed from `tensor`, wrapped at the first use
// 1 as planned, 0 other strides, -1 exception (another shape or dtype).
int tensor_matches(Tensor *tensor, const Layout &layout);
bool tensor_restride(Tensor *tensor, const Layout &layout);

} // namespace frameloom
