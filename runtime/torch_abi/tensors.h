// Tensors without PyTorch's headers: handles of its C interface, whose functions are found with
// dlsym, or Python objects where these are missing.
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
    PyObject *(*wrap_moved)(Handle); // moves out of the handle, so it is empty then; cheaper; may be nullptr
    bool (*grad_enabled)();          // gradient mode of this thread; always present
    void (*set_grad_enabled)(bool);
    PyTypeObject *tensor_type; // torch.Tensor; strong
    PyObject *fallback;        // the module runtime/fallback.py; strong
};
// Looked up at the first call; nullptr with an exception set if PyTorch cannot be imported.
const TorchApi *torch_api();
// Address of a symbol of the loaded PyTorch libraries, nullptr if there is none.
void *torch_symbol(const char *name);

// While it exists, autograd records nothing in this thread: results of a plan have the history with
// which its graph was captured, regardless of the caller's mode.
class NoGrad {
  public:
    explicit NoGrad(bool wanted) : was_enabled(wanted && torch_api()->grad_enabled()) { set(true); }
    ~NoGrad() { set(false); }
    void set(bool now) { // switches temporarily
        if (was_enabled && now != is_set) torch_api()->set_grad_enabled(!now);
        is_set = now;
    }
    NoGrad(const NoGrad &) = delete;

  private:
    bool was_enabled, is_set = false;
};

// Shape, strides, dtype and device of a buffer or view.  Objects are borrowed from the plan's spec.
struct Layout {
    std::vector<int64_t> shape, strides;
    std::vector<int> shape_sizes,
        stride_sizes; // the sizes of the plan in shape and strides; -1: a fixed number; see sizes.h
    int32_t dtype = -1, device_type = 0,
            device_index = 0; // PyTorch's codes; dtype -1: the C interface does not know it
    int64_t item_size = 0;
    PyObject *shape_object = nullptr, *strides_object = nullptr, *dtype_object = nullptr,
             *device_object = nullptr; // shape and strides: null if they contain sizes

    int64_t elements() const;
    bool span(int64_t *bytes) const; // from the first element to the end of the last; false: impossible
    PyObject *shape_tuple() const;   // new reference
    PyObject *stride_tuple() const;
    bool is_sized() const { return !shape_object || !strides_object; }
    bool same_layout(const Layout &other) const {
        return shape == other.shape && strides == other.strides && dtype_object == other.dtype_object &&
               shape_sizes == other.shape_sizes && stride_sizes == other.stride_sizes;
    }
};
// Reads an int of the spec, with `size` -1, or a SizeRef, with its index as `size` and the value 0.
bool read_int(PyObject *object, int64_t *value, int *size);
bool is_size(PyObject *object);
// `device` may be nullptr: the codes are those of the CPU then, and no tensor is made from this
// layout.
bool layout_parse(PyObject *shape, PyObject *strides, PyObject *dtype, PyObject *device, Layout *layout);

// One tensor during a call.  Plain data: all-zero means "none"; `release` frees what it owns.
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
bool tensor_empty(const Layout &layout, Tensor *result); // with uninitialized memory
bool tensor_view(const Tensor &base, const Layout &base_layout, const Layout &layout, int64_t offset,
                 Tensor *result);
bool tensor_in_pool(const Tensor &pool, const Layout &layout, int64_t byte_offset, Tensor *result);
// Makes a tensor over memory that it does not own.  Only with a `fast` interface and a dtype that
// has a code.
bool tensor_at(void *address, const Layout &layout, const Layout &device, Tensor *result);
bool tensor_data(const Tensor &tensor, void **data);
// Whether it has at least so many dimensions; if not, an exception is set.
bool tensor_has_rank(const Tensor &tensor, int least);
enum class LayoutField { SHAPE, STRIDES, OFFSET };
// Returns one number per dimension, or the storage offset; in `room` if the tensor has no array of
// them. nullptr with an exception set.
const int64_t *tensor_layout_field(const Tensor &tensor, LayoutField field, std::vector<int64_t> *room);
// Makes a view of `base` that autograd and `_base` know, which starts `offset` elements of its
// dtype after the base's first element.
PyObject *tensor_strided_view(PyObject *base, const Layout &layout, int64_t offset);
PyObject *tensor_object(Tensor *tensor); // borrowed from `tensor`, made at the first use
// Returns 1 if it is as planned, 0 if strides differ, -1 with an exception set (another shape or
// dtype).
int tensor_matches(Tensor *tensor, const Layout &layout);
bool tensor_restride(Tensor *tensor, const Layout &layout);

} // namespace frameloom
