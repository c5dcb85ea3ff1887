// Makes and inspects tensors through Python: what PyTorch's C interface cannot do; see python_tensors.h.
//
// If a symbol is missing, or a dtype has no code, runtime/fallback.py does the same through Python.
#include "python_tensors.h"

#include <string>

namespace frameloom {

namespace {

constexpr size_t OBJECT_HANDLE =
    16; // offset of the at::Tensor inside a Python tensor; checked before its first use

PythonTorch torch;
bool torch_searched = false;

Handle inner_handle(PyObject *object) {
    return reinterpret_cast<Handle>(reinterpret_cast<char *>(object) + OBJECT_HANDLE);
}

// Whether a Python tensor holds its at::Tensor at this offset: compares a sample with the address
// that PyTorch reports.
bool handle_is_inside(PyObject *module) {
    PyObject *sample = PyObject_CallMethod(module, "empty", "i", 1);
    PyObject *address = sample ? PyObject_GetAttrString(sample, "_cdata") : nullptr;
    bool inside = address && *reinterpret_cast<void **>(inner_handle(sample)) == PyLong_AsVoidPtr(address);
    Py_XDECREF(sample);
    Py_XDECREF(address);
    PyErr_Clear();
    return inside;
}

bool find_wrap() {
    find(torch.wrap_moved, "_Z16THPVariable_WrapON2at10TensorBaseE");
    return find(torch.wrap, "_Z16THPVariable_WrapRKN2at10TensorBaseE");
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
    PyObject *callable = args ? PyObject_GetAttrString(torch.fallback, function) : nullptr;
    if (callable) made = PyObject_CallObject(callable, args);
    Py_XDECREF(callable);
    Py_XDECREF(args);
    return made && tensor_adopt(made, result);
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
    if (find(torch.grad_enabled, "_ZN3c108GradMode10is_enabledEv") &&
        find(torch.set_grad_enabled, "_ZN3c108GradMode11set_enabledEb"))
        return;
    torch.grad_enabled = grad_enabled_by_python;
    torch.set_grad_enabled = set_grad_enabled_by_python;
}

} // namespace

const PythonTorch *python_torch() {
    if (torch_searched) return &torch;
    PyObject *module = PyImport_ImportModule("torch");
    if (module == nullptr) return nullptr;
    PyObject *type = PyObject_GetAttrString(module, "Tensor");
    torch.fallback = PyImport_ImportModule("frameloom.runtime.fallback");
    if (type && torch.fallback) {
        torch.tensor_type = reinterpret_cast<PyTypeObject *>(type);
        torch_api.fast = find_torch_functions() && find_wrap() && handle_is_inside(module);
        find_grad_mode();
        torch_searched = true;
    }
    Py_DECREF(module);
    return torch_searched ? &torch : nullptr;
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

PyObject *shape_tuple(const Layout &layout) {
    return layout.shape_object ? Py_NewRef(layout.shape_object) : tuple_of(layout.shape);
}

PyObject *stride_tuple(const Layout &layout) {
    return layout.strides_object ? Py_NewRef(layout.strides_object) : tuple_of(layout.strides);
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

bool host::borrow(PyObject *object, Tensor *result) {
    if (!PyObject_TypeCheck(object, torch.tensor_type)) {
        PyErr_Format(PyExc_TypeError, "expected a tensor, got %.100s", Py_TYPE(object)->tp_name);
        return false;
    }
    *result = Tensor{torch_api.fast ? inner_handle(object) : nullptr, object, false, false};
    return true;
}

bool tensor_adopt(PyObject *object, Tensor *result) {
    if (!host::borrow(object, result)) {
        Py_DECREF(object);
        return false;
    }
    result->owns_object = true;
    return true;
}

PyObject *tensor_object(Tensor *tensor) {
    if (tensor->object) return tensor->object;
    if (!tensor->owns_handle || torch.wrap_moved == nullptr) {
        tensor->object = torch.wrap(tensor->handle);
        tensor->owns_object = tensor->object != nullptr;
        return tensor->object;
    }
    /* A tensor that only Python references is cheaper to make and to free than one shared with the handle. */
    PyObject *object = torch.wrap_moved(tensor->handle);
    if (object == nullptr) return nullptr;
    torch_api.destroy(tensor->handle);
    *tensor = Tensor{inner_handle(object), object, false, true};
    return object;
}

// If there is no memory, Python raises an error with the reason, e.g. which device has none.
[[gnu::noinline, gnu::cold]] bool host::make_tensor(const Layout &layout, Tensor *result) {
    return by_python(result, "empty", "NNOO", shape_tuple(layout), stride_tuple(layout), layout.dtype_object,
                     layout.device_object);
}

bool host::make_view(const Tensor &base, const Layout &layout, int64_t byte_offset, Tensor *result) {
    PyObject *object = base.object ? Py_NewRef(base.object) : torch.wrap(base.handle);
    if (object == nullptr) return false;
    bool made = by_python(result, "view", "OLNNO", object, (long long)byte_offset, shape_tuple(layout),
                          stride_tuple(layout), layout.dtype_object);
    Py_DECREF(object);
    return made;
}

bool host::find_data(const Tensor &tensor, void **data) {
    PyObject *address = PyObject_CallMethod(tensor.object, "data_ptr", nullptr);
    if (address == nullptr) return false;
    *data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return !PyErr_Occurred();
}

int64_t host::rank(const Tensor &tensor) {
    PyObject *given = PyObject_CallMethod(tensor.object, "dim", nullptr);
    int64_t rank = given ? PyLong_AsLongLong(given) : -1;
    Py_XDECREF(given);
    return rank;
}

const int64_t *host::layout_field(const Tensor &tensor, LayoutField field, std::vector<int64_t> *room) {
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

int host::matches(Tensor *tensor, const Layout &layout) {
    PyObject *object = tensor_object(tensor); // `matches` raises if shape or dtype differ
    PyObject *answer =
        object ? PyObject_CallMethod(torch.fallback, "matches", "ONNO", object, shape_tuple(layout),
                                     stride_tuple(layout), layout.dtype_object)
               : nullptr;
    if (answer == nullptr) return -1;
    int matches = answer == Py_True;
    Py_DECREF(answer);
    return matches;
}

bool host::restride(Tensor *tensor, const Layout &layout) {
    PyObject *object = tensor_object(tensor);
    Tensor copy{};
    if (object == nullptr ||
        !by_python(&copy, "restride", "ONN", object, shape_tuple(layout), stride_tuple(layout)))
        return false;
    tensor->release();
    *tensor = copy;
    return true;
}

} // namespace frameloom
