// Makes results that are views, and that autograd and `_base` know as views.  PyTorch makes them:
// its C++ function behind `Tensor.as_strided` is called directly if its libraries export it.  A
// call with four results took 5.8 us through Python's method, and takes 2.3.
//
// The types below replace PyTorch's own in the signature of that function.  They are passed in the
// same way: an optional number has a destructor, and a list of numbers is two words.
#include "python_tensors.h"

namespace frameloom {

namespace {

struct Numbers { // c10::ArrayRef<c10::SymInt>; a SymInt without expression is the number
    const int64_t *first;
    size_t count;
};
struct MaybeNumber { // std::optional<c10::SymInt>
    int64_t value;
    bool present = true;
    ~MaybeNumber() {}
};
using AsStrided = MadeTensor (*)(Handle, Numbers, Numbers, MaybeNumber);

constexpr const char *AS_STRIDED =
    "_ZN2at4_ops10as_strided4callERKNS_6TensorEN3c108ArrayRefINS5_6SymIntEEES8_St8optionalIS7_E";

PyObject *by_python(PyObject *base, const Layout &layout, int64_t offset) {
    return PyObject_CallMethod(python_torch()->fallback, "strided_view", "OLNNO", base, (long long)offset,
                               shape_tuple(layout), stride_tuple(layout), layout.dtype_object);
}

// Whether all are plain numbers: the lowest values of a SymInt stand for expressions.
bool are_numbers(const std::vector<int64_t> &values) {
    for (int64_t value : values)
        if (value < 0) return false;
    return true;
}

} // namespace

// Subclasses may override how views are made, so those are made through Python.
PyObject *tensor_strided_view(PyObject *base, const Layout &layout, int64_t offset) {
    static const AsStrided as_strided = reinterpret_cast<AsStrided>(torch_symbol(AS_STRIDED));
    const PythonTorch *torch = python_torch();
    Tensor tensor;
    if (!host::borrow(base, &tensor)) return nullptr;
    int32_t dtype = -1;
    int64_t start = 0;
    if (Py_TYPE(base) != torch->tensor_type || !torch_api.fast || !torch->wrap_moved || !as_strided ||
        layout.dtype < 0 || !are_numbers(layout.shape) || !are_numbers(layout.strides) ||
        torch_api.dtype(tensor.handle, &dtype) || dtype != layout.dtype ||
        torch_api.storage_offset(tensor.handle, &start))
        return by_python(base, layout, offset);
    try {
        MadeTensor made =
            as_strided(tensor.handle, Numbers{layout.shape.data(), layout.shape.size()},
                       Numbers{layout.strides.data(), layout.strides.size()}, MaybeNumber{start + offset});
        return torch->wrap_moved(reinterpret_cast<Handle>(&made)); // it leaves nothing to free in `made`
    } catch (...) {
        return by_python(base, layout, offset); // it raises the exception of eager
    }
}

} // namespace frameloom
