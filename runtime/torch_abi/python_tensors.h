// PyTorch's tensors as Python objects: to and from the executor's tensors (executor/tensors.h).
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensors.h"

namespace frameloom {

// What plans use of PyTorch beside its C interface.
struct PythonTorch {
    PyObject *(*wrap)(Handle);
    PyObject *(*wrap_moved)(Handle); // moves out of the handle, so it is empty then; cheaper; may be nullptr
    bool (*grad_enabled)();          // gradient mode of this thread; always present
    void (*set_grad_enabled)(bool);
    PyTypeObject *tensor_type; // torch.Tensor; strong
    PyObject *fallback;        // the module runtime/fallback.py; strong
};
// Looked up at the first call, which also fills in `torch_api`; nullptr with an exception set if
// PyTorch cannot be imported.
const PythonTorch *python_torch();

// Replaces at::Tensor where PyTorch's C++ functions return one: it is passed in the same way, as it has a
// destructor.
struct MadeTensor {
    void *memory;
    ~MadeTensor() {}
};

// While it exists, autograd records nothing in this thread: results of a plan have the history with
// which its graph was captured, regardless of the caller's mode.
class NoGrad {
  public:
    explicit NoGrad(bool wanted) : was_enabled(wanted && python_torch()->grad_enabled()) { set(true); }
    ~NoGrad() { set(false); }
    void set(bool now) { // switches temporarily
        if (was_enabled && now != is_set) python_torch()->set_grad_enabled(!now);
        is_set = now;
    }
    NoGrad(const NoGrad &) = delete;

  private:
    bool was_enabled, is_set = false;
};

// Reads an int of the spec, with `size` -1, or a SizeRef, with its index as `size` and the value 0.
bool read_int(PyObject *object, int64_t *value, int *size);
bool is_size(PyObject *object);
// `device` may be nullptr: the codes are those of the CPU then, and no tensor is made from this
// layout.
bool layout_parse(PyObject *shape, PyObject *strides, PyObject *dtype, PyObject *device, Layout *layout);
PyObject *tuple_of(const std::vector<int64_t> &values); // new reference
PyObject *shape_tuple(const Layout &layout);
PyObject *stride_tuple(const Layout &layout);

bool tensor_adopt(PyObject *object, Tensor *result); // steals the reference; TypeError if it is no tensor
PyObject *tensor_object(Tensor *tensor);             // borrowed from `tensor`, made at the first use
// Makes a view of `base` that autograd and `_base` know, which starts `offset` elements of its
// dtype after the base's first element.
PyObject *tensor_strided_view(PyObject *base, const Layout &layout, int64_t offset);

} // namespace frameloom
