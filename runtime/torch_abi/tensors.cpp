// Makes, views and inspects tensors through PyTorch's stable C interface; see tensors.h.
//
// If a symbol is missing, or a dtype has no code, runtime/fallback.py does the same through Python.
#include "tensors.h"

#include <dlfcn.h>

#include <string>

namespace frameloom {

namespace {

constexpr size_t OBJECT_HANDLE =
    16; // offset of the at::Tensor inside a Python tensor; checked before its first use

TorchApi api;
bool api_searched = false;

Handle inner_handle(PyObject *object) {
    return reinterpret_cast<Handle>(reinterpret_cast<char *>(object) + OBJECT_HANDLE);
}

// Whether a Python tensor holds its at::Tensor at this offset: compares a sample with the address
// that PyTorch reports.
bool handle_is_inside(PyObject *torch) {
    PyObject *sample = PyObject_CallMethod(torch, "empty", "i", 1);
    PyObject *address = sample ? PyObject_GetAttrString(sample, "_cdata") : nullptr;
    bool inside = address && *reinterpret_cast<void **>(inner_handle(sample)) == PyLong_AsVoidPtr(address);
    Py_XDECREF(sample);
    Py_XDECREF(address);
    PyErr_Clear();
    return inside;
}

template <typename Function> bool find(Function *&function, const char *name) {
    function = reinterpret_cast<Function *>(torch_symbol(name));
    return function != nullptr;
}

bool find_functions() {
    find(api.wrap_moved, "_Z16THPVariable_WrapON2at10TensorBaseE");
    return find(api.empty_strided, "aoti_torch_empty_strided") &&
           find(api.reinterpret, "aoti_torch__reinterpret_tensor") &&
           find(api.from_blob, "aoti_torch_create_tensor_from_blob") &&
           find(api.from_pool, "aoti_torch__alloc_from_pool") &&
           find(api.destroy, "aoti_torch_delete_tensor_object") &&
           find(api.data_pointer, "aoti_torch_get_data_ptr") && find(api.dimensions, "aoti_torch_get_dim") &&
           find(api.sizes, "aoti_torch_get_sizes") && find(api.strides, "aoti_torch_get_strides") &&
           find(api.storage_offset, "aoti_torch_get_storage_offset") &&
           find(api.dtype, "aoti_torch_get_dtype") &&
           find(api.wrap, "_Z16THPVariable_WrapRKN2at10TensorBaseE");
}

// `sizes` is empty if there is no SizeRef in the source.
bool read_ints(PyObject *source, std::vector<int64_t> *values, std::vector<int> *sizes) {
    PyObject *list = PySequence_Fast(source, "shape and strides are sequences of int");
    if (list == nullptr) return false;
    values->clear();
    sizes->clear();
    bool good = true, sized = false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list) && good; i++) {
        int64_t value = 0;
        int size = -1;
        good = read_int(PySequence_Fast_GET_ITEM(list, i), &value, &size);
        sized |= size >= 0;
        values->push_back(value);
        sizes->push_back(size);
    }
    if (!sized) sizes->clear();
    Py_DECREF(list);
    return good;
}

PyObject *tuple_of(const std::vector<int64_t> &values) {
    PyObject *result = PyTuple_New((Py_ssize_t)values.size());
    for (size_t i = 0; i < values.size() && result; i++) {
        PyObject *item = PyLong_FromLongLong(values[i]);
        if (item)
            PyTuple_SET_ITEM(result, (Py_ssize_t)i, item);
        else
            Py_CLEAR(result);
    }
    return result;
}

// Finds str(object) without the module's name: "float32" for torch.float32.
bool short_name(PyObject *object, std::string *name) {
    PyObject *text = PyObject_Str(object);
    const char *chars = text ? PyUnicode_AsUTF8(text) : nullptr;
    if (chars) *name = chars;
    Py_XDECREF(text);
    if (name->rfind("torch.", 0) == 0) name->erase(0, 6);
    return chars != nullptr;
}

int32_t code_of(const std::string &symbol) {
    auto function = reinterpret_cast<int32_t (*)()>(torch_symbol(symbol.c_str()));
    return function ? function() : -1;
}

bool device_codes(PyObject *device, Layout *layout) {
    PyObject *type = PyObject_GetAttrString(device, "type"), *index = PyObject_GetAttrString(device, "index");
    std::string name;
    bool good = type && index && short_name(type, &name);
    if (good) {
        layout->device_type = code_of("aoti_torch_device_type_" + name);
        layout->device_index = index == Py_None ? (name == "cpu" ? 0 : -1) : (int32_t)PyLong_AsLong(index);
        if (layout->device_type < 0) layout->dtype = -1; // made through Python
    }
    Py_XDECREF(type);
    Py_XDECREF(index);
    return good && !PyErr_Occurred();
}

// Calls a function of runtime/fallback.py; its result replaces *result.
bool by_python(Tensor *result, const char *function, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    PyObject *args = Py_VaBuildValue(format, arguments), *made = nullptr;
    va_end(arguments);
    PyObject *callable = args ? PyObject_GetAttrString(api.fallback, function) : nullptr;
    if (callable) made = PyObject_CallObject(callable, args);
    Py_XDECREF(callable);
    Py_XDECREF(args);
    return made && tensor_adopt(made, result);
}

bool failed(const char *what) {
    PyErr_Format(PyExc_RuntimeError, "PyTorch could not %s", what);
    return false;
}

// Calls a function of torch._C and keeps an exception that is set.
PyObject *call_core(const char *name, PyObject *argument) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *module = PyImport_ImportModule("torch._C");
    PyObject *result =
        module ? PyObject_CallMethod(module, name, argument ? "O" : nullptr, argument) : nullptr;
    Py_XDECREF(module);
    PyErr_Restore(type, value, traceback);
    return result;
}

bool grad_enabled_by_python() {
    PyObject *result = call_core("is_grad_enabled", nullptr);
    Py_XDECREF(result);
    return result == Py_True;
}

void set_grad_enabled_by_python(bool enabled) {
    Py_XDECREF(call_core("_set_grad_enabled", enabled ? Py_True : Py_False));
}

void find_grad_mode() {
    if (find(api.grad_enabled, "_ZN3c108GradMode10is_enabledEv") &&
        find(api.set_grad_enabled, "_ZN3c108GradMode11set_enabledEb"))
        return;
    api.grad_enabled = grad_enabled_by_python;
    api.set_grad_enabled = set_grad_enabled_by_python;
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

const TorchApi *torch_api() {
    if (api_searched) return &api;
    PyObject *torch = PyImport_ImportModule("torch");
    if (torch == nullptr) return nullptr;
    PyObject *type = PyObject_GetAttrString(torch, "Tensor");
    api.fallback = PyImport_ImportModule("frameloom.runtime.fallback");
    if (type && api.fallback) {
        api.tensor_type = reinterpret_cast<PyTypeObject *>(type);
        api.fast = find_functions() && handle_is_inside(torch);
        find_grad_mode();
        api_searched = true;
    }
    Py_DECREF(torch);
    return api_searched ? &api : nullptr;
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

PyObject *Layout::shape_tuple() const { return shape_object ? Py_NewRef(shape_object) : tuple_of(shape); }

PyObject *Layout::stride_tuple() const {
    return strides_object ? Py_NewRef(strides_object) : tuple_of(strides);
}

bool is_size(PyObject *object) {
    static PyObject *type = nullptr; // strong
    if (type == nullptr) {
        PyObject *module = PyImport_ImportModule("frameloom.runtime.spec");
        type = module ? PyObject_GetAttrString(module, "SizeRef") : nullptr;
        Py_XDECREF(module);
    }
    return type && Py_TYPE(object) == reinterpret_cast<PyTypeObject *>(type);
}

bool read_int(PyObject *object, int64_t *value, int *size) {
    *value = 0;
    *size = -1;
    if (is_size(object)) {
        PyObject *index = PyObject_GetAttrString(object, "index");
        long long number = index ? PyLong_AsLongLong(index) : -1;
        Py_XDECREF(index);
        if (!PyErr_Occurred() && (number < 0 || number > INT32_MAX))
            PyErr_SetString(PyExc_ValueError, "a plan names a size that it does not have");
        *size = (int)number;
    } else {
        *value = PyLong_AsLongLong(object);
    }
    return !PyErr_Occurred();
}

bool layout_parse(PyObject *shape, PyObject *strides, PyObject *dtype, PyObject *device, Layout *layout) {
    layout->dtype_object = dtype;
    layout->device_object = device;
    std::string name;
    PyObject *size = PyObject_GetAttrString(dtype, "itemsize");
    if (size == nullptr || !short_name(dtype, &name)) return false;
    layout->item_size = PyLong_AsLongLong(size);
    Py_DECREF(size);
    layout->dtype = code_of("aoti_torch_dtype_" + name);
    if (!read_ints(shape, &layout->shape, &layout->shape_sizes) ||
        !read_ints(strides, &layout->strides, &layout->stride_sizes))
        return false;
    layout->shape_object = layout->shape_sizes.empty() ? shape : nullptr;
    layout->strides_object = layout->stride_sizes.empty() ? strides : nullptr;
    if (layout->shape.size() != layout->strides.size()) {
        PyErr_SetString(PyExc_ValueError, "as many strides as dimensions are needed");
        return false;
    }
    return device == nullptr || device_codes(device, layout);
}

void Tensor::release() {
    if (owns_handle) api.destroy(handle);
    if (owns_object) Py_DECREF(object);
    *this = Tensor{};
}

bool tensor_borrow(PyObject *object, Tensor *result) {
    if (!PyObject_TypeCheck(object, api.tensor_type)) {
        PyErr_Format(PyExc_TypeError, "expected a tensor, got %.100s", Py_TYPE(object)->tp_name);
        return false;
    }
    *result = Tensor{api.fast ? inner_handle(object) : nullptr, object, false, false};
    return true;
}

bool tensor_adopt(PyObject *object, Tensor *result) {
    if (!tensor_borrow(object, result)) {
        Py_DECREF(object);
        return false;
    }
    result->owns_object = true;
    return true;
}

// If there is no memory, Python raises an error with the reason, e.g. which device has none.
[[gnu::noinline, gnu::cold]] static bool empty_by_python(const Layout &layout, Tensor *result) {
    return by_python(result, "empty", "NNOO", layout.shape_tuple(), layout.stride_tuple(),
                     layout.dtype_object, layout.device_object);
}

bool tensor_empty(const Layout &layout, Tensor *result) {
    Handle handle;
    if (!api.fast || layout.dtype < 0 ||
        api.empty_strided((int64_t)layout.shape.size(), layout.shape.data(), layout.strides.data(),
                          layout.dtype, layout.device_type, layout.device_index, &handle))
        return empty_by_python(layout, result);
    own(result, handle);
    return true;
}

bool tensor_view(const Tensor &base, const Layout &base_layout, const Layout &layout, int64_t offset,
                 Tensor *result) {
    if (!api.fast || layout.dtype < 0 || layout.dtype != base_layout.dtype) {
        Tensor holder = base; // gets a Python object here if it has none; that belongs to `holder`
        holder.owns_handle = holder.owns_object = false;
        PyObject *object = holder.object ? holder.object : api.wrap(base.handle);
        if (object == nullptr) return false;
        bool made = by_python(result, "view", "OLNNO", object, (long long)(offset * layout.item_size),
                              layout.shape_tuple(), layout.stride_tuple(), layout.dtype_object);
        if (!holder.object) Py_DECREF(object);
        return made;
    }
    Handle handle;
    if (api.reinterpret(base.handle, (int64_t)layout.shape.size(), layout.shape.data(), layout.strides.data(),
                        offset, &handle))
        return failed("make a view");
    own(result, handle);
    return true;
}

bool tensor_in_pool(const Tensor &pool, const Layout &layout, int64_t byte_offset, Tensor *result) {
    if (!api.fast || layout.dtype < 0) {
        PyObject *object = pool.object ? Py_NewRef(pool.object) : api.wrap(pool.handle);
        if (object == nullptr) return false;
        bool made = by_python(result, "view", "OLNNO", object, (long long)byte_offset, layout.shape_tuple(),
                              layout.stride_tuple(), layout.dtype_object);
        Py_DECREF(object);
        return made;
    }
    Handle handle;
    if (api.from_pool(pool.handle, byte_offset, layout.dtype, (int64_t)layout.shape.size(),
                      layout.shape.data(), layout.strides.data(), &handle))
        return failed("place a tensor in scratch memory");
    own(result, handle);
    return true;
}

bool tensor_at(void *address, const Layout &layout, const Layout &device, Tensor *result) {
    Handle handle;
    if (api.from_blob(address, (int64_t)layout.shape.size(), layout.shape.data(), layout.strides.data(), 0,
                      layout.dtype, device.device_type, device.device_index, &handle))
        return failed("make a view");
    own(result, handle);
    return true;
}

bool tensor_data(const Tensor &tensor, void **data) {
    if (tensor.handle)
        return api.data_pointer(tensor.handle, data) == 0 || failed("give the address of a tensor");
    PyObject *address = PyObject_CallMethod(tensor.object, "data_ptr", nullptr);
    if (address == nullptr) return false;
    *data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return !PyErr_Occurred();
}

bool tensor_has_rank(const Tensor &tensor, int least) {
    int64_t rank = 0;
    if (least == 0) return true;
    if (tensor.handle) {
        if (api.dimensions(tensor.handle, &rank)) return failed("describe a tensor");
    } else {
        PyObject *given = PyObject_CallMethod(tensor.object, "dim", nullptr);
        rank = given ? PyLong_AsLongLong(given) : -1;
        Py_XDECREF(given);
    }
    if (rank < least && !PyErr_Occurred())
        PyErr_Format(PyExc_RuntimeError, "planned was a tensor of %d dimensions, given was one of %lld",
                     least, (long long)rank);
    return rank >= least;
}

const int64_t *tensor_layout_field(const Tensor &tensor, LayoutField field, std::vector<int64_t> *room) {
    int64_t *values = nullptr;
    if (tensor.handle) {
        room->resize(1);
        int32_t error = field == LayoutField::SHAPE ? api.sizes(tensor.handle, &values)
                        : field == LayoutField::STRIDES
                            ? api.strides(tensor.handle, &values)
                            : api.storage_offset(tensor.handle, values = room->data());
        if (error) failed("describe a tensor");
        return error ? nullptr : values;
    }
    static const char *const names[] = {"size", "stride", "storage_offset"};
    PyObject *given = PyObject_CallMethod(tensor.object, names[(int)field], nullptr);
    std::vector<int> sizes;
    bool good = given != nullptr;
    if (good && field == LayoutField::OFFSET) {
        *room = {PyLong_AsLongLong(given)};
        good = !PyErr_Occurred();
    } else if (good) {
        good = read_ints(given, room, &sizes);
    }
    Py_XDECREF(given);
    room->push_back(0); // so that there is an array even without dimensions
    return good ? room->data() : nullptr;
}

PyObject *tensor_object(Tensor *tensor) {
    if (tensor->object) return tensor->object;
    if (!tensor->owns_handle || api.wrap_moved == nullptr) {
        tensor->object = api.wrap(tensor->handle);
        tensor->owns_object = tensor->object != nullptr;
        return tensor->object;
    }
    /* A tensor that only Python references is cheaper to make and to free than one shared with the handle. */
    PyObject *object = api.wrap_moved(tensor->handle);
    if (object == nullptr) return nullptr;
    api.destroy(tensor->handle);
    *tensor = Tensor{inner_handle(object), object, false, true};
    return object;
}

int tensor_matches(Tensor *tensor, const Layout &layout) {
    if (tensor->handle && layout.dtype >= 0) {
        int64_t ndim = -1, *sizes = nullptr, *strides = nullptr;
        int32_t dtype = -1;
        if (api.dimensions(tensor->handle, &ndim) || api.dtype(tensor->handle, &dtype) ||
            api.sizes(tensor->handle, &sizes) || api.strides(tensor->handle, &strides))
            return failed("describe a tensor") - 1;
        if (dtype == layout.dtype && ndim == (int64_t)layout.shape.size()) {
            bool same_shape = true, same_strides = true, empty = false;
            for (int64_t i = 0; i < ndim; i++) {
                same_shape &= sizes[i] == layout.shape[i];
                same_strides &= sizes[i] == 1 || strides[i] == layout.strides[i];
                empty |= sizes[i] == 0;
            }
            if (same_shape) return same_strides || empty;
        }
    }
    PyObject *object = tensor_object(tensor); // `matches` raises if shape or dtype differ
    PyObject *answer =
        object ? PyObject_CallMethod(api.fallback, "matches", "ONNO", object, layout.shape_tuple(),
                                     layout.stride_tuple(), layout.dtype_object)
               : nullptr;
    if (answer == nullptr) return -1;
    int matches = answer == Py_True;
    Py_DECREF(answer);
    return matches;
}

bool tensor_restride(Tensor *tensor, const Layout &layout) {
    PyObject *object = tensor_object(tensor);
    Tensor copy{};
    if (object == nullptr ||
        !by_python(&copy, "restride", "ONN", object, layout.shape_tuple(), layout.stride_tuple()))
        return false;
    tensor->release();
    *tensor = copy;
    return true;
}

} // namespace frameloom
