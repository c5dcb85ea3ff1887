/* The check of one tensor: exact type, dispatch keys, dtype, device, sizes, strides, requires_grad.
 *
 * With known offsets this is a few comparisons of the header (see torch_header.c). Without them, a tuple
 * of attributes is compared. The storage offset is not part of the check, because kernels take addresses.
 */
#include "capture.h"

enum { INLINE_DIMS = 5 };
#define ANY INT64_MIN /* a size of at least 1, or a stride */

struct TensorSpec {
    PyTypeObject *type; /* strong */
    int64_t keys;
    int32_t dtype_device;
    int32_t requires_grad;
    int64_t ndim;
    PyObject *text;       /* the description of the tensor */
    PyObject *attributes; /* the tuple to compare if there are no offsets, else NULL */
    int64_t *strides;     /* inside `sizes` */
    int64_t *order; /* inside `sizes`: dimensions from the innermost on, or NULL if strides are compared */
    int varies;     /* whether a size or stride may be ANY */
    int64_t sizes[];
};

static inline const int64_t *sizes_of(const char *impl, int64_t ndim) {
    const char *at = impl + torch_header.sizes;
    return ndim <= INLINE_DIMS ? (const int64_t *)at : *(const int64_t **)at;
}

static inline const int64_t *strides_of(const char *impl, int64_t ndim) {
    if (ndim <= INLINE_DIMS) return (const int64_t *)(impl + torch_header.strides);
    return *(const int64_t **)(impl + torch_header.sizes) + ndim;
}

static inline const char *autograd_meta_of(PyObject *tensor) {
    return pointer(impl_of(tensor) + torch_header.autograd_meta);
}

/* 1, 0, or -1 if the attribute cannot be read. */
static int ask(const TensorFlag *flag, PyObject *tensor) {
    PyObject *answer =
        flag->get ? flag->get(tensor, flag->closure) : PyObject_GetAttrString(tensor, flag->name);
    if (answer == NULL) PyErr_Clear();
    Py_XDECREF(answer); /* a bool, which is never freed */
    return answer == Py_True ? 1 : answer == Py_False ? 0 : -1;
}

static int requires_grad_of(PyObject *tensor) {
    if (torch_header.raw) {
        const char *meta = autograd_meta_of(tensor);
        if (meta == NULL) return 0;
        if (torch_header.requires_grad >= 0 && meta[torch_header.requires_grad] == 1) return 1;
    }
    return ask(&torch_header.requires_grad_flag, tensor);
}

/* What identifies a tensor without offsets: new reference, NULL with an exception set. */
static PyObject *attributes_of(PyObject *tensor) {
    static const char *const paths[] = {"dtype", "device", "shape", "stride()", "requires_grad", "layout"};
    enum { PATHS = Py_ARRAY_LENGTH(paths) };
    PyObject *result = PyTuple_New(PATHS + 1);
    for (int i = 0; i <= PATHS && result; i++) {
        PyObject *value =
            i < PATHS ? attribute_at(tensor, paths[i]) : PyLong_FromLongLong(dispatch_keys(tensor));
        if (value) PyTuple_SET_ITEM(result, i, value);
        if (PyErr_Occurred()) Py_CLEAR(result);
    }
    return result;
}

static PyObject *attribute_text(PyObject *tensor, const char *path) {
    PyObject *value = attribute_at(tensor, path);
    if (value == NULL) return NULL;
    PyObject *list = PyTuple_Check(value) ? PySequence_List(value) : Py_NewRef(value);
    PyObject *text = list ? PyObject_Str(list) : NULL;
    Py_XDECREF(list);
    Py_DECREF(value);
    return text;
}

static int is_true(PyObject *tensor, const char *path) {
    PyObject *value = attribute_at(tensor, path);
    int answer = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    if (answer < 0) PyErr_Clear();
    return answer == 1;
}

/* `text` (stolen, may be NULL) followed by `label` and the attribute, as in "on cuda:0". */
static PyObject *extend(PyObject *text, const char *label, PyObject *tensor, const char *path) {
    PyObject *value = text ? attribute_text(tensor, path) : NULL;
    PyObject *longer = value ? PyUnicode_FromFormat("%U %s %U", text, label, value) : NULL;
    Py_XDECREF(value);
    Py_XDECREF(text);
    return longer;
}

/* Type, dtype and shape; strides, device and requires_grad if they are unusual. */
static PyObject *describe(PyObject *tensor) {
    PyObject *dtype = attribute_text(tensor, "dtype"), *shape = attribute_text(tensor, "shape"), *text = NULL;
    const char *class = Py_TYPE(tensor) == torch_header.tensor_type ? "tensor" : Py_TYPE(tensor)->tp_name;
    const char *type = dtype ? PyUnicode_AsUTF8(dtype) : NULL;
    if (type && shape)
        text = PyUnicode_FromFormat("%s %s %U", class, strncmp(type, "torch.", 6) ? type : type + 6, shape);
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    if (text && !is_true(tensor, "is_contiguous()")) text = extend(text, "strides", tensor, "stride()");
    if (text && !is_true(tensor, "is_cpu")) text = extend(text, "on", tensor, "device");
    if (text && is_true(tensor, "requires_grad"))
        Py_SETREF(text, PyUnicode_FromFormat("%U requires_grad", text));
    return text;
}

/* Sets which numbers may differ: None in `sizes`, and None in `strides`. `strides` may also be a list: the
 * order of dimensions. */
static int spec_set_pattern(TensorSpec *spec, PyObject *sizes, PyObject *strides) {
    int is_order = PyList_CheckExact(strides);
    if (!torch_header.raw || PyTuple_GET_SIZE(sizes) != spec->ndim ||
        PySequence_Size(strides) != spec->ndim) {
        PyErr_SetString(PyExc_ValueError, "sizes that may differ do not fit the tensor");
        return -1;
    }
    spec->varies = 1;
    if (is_order) spec->order = spec->strides + spec->ndim;
    for (int64_t i = 0; i < spec->ndim; i++) {
        if (PyTuple_GET_ITEM(sizes, i) == Py_None) spec->sizes[i] = ANY;
        if (is_order) {
            spec->order[i] = PyLong_AsLongLong(PyList_GET_ITEM(strides, i));
            if (spec->order[i] < 0 || spec->order[i] >= spec->ndim) {
                if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such dimension");
                return -1;
            }
        } else if (PyTuple_GET_ITEM(strides, i) == Py_None) {
            spec->strides[i] = ANY;
        }
    }
    return 0;
}

TensorSpec *tensor_spec_new(PyObject *tensor) {
    PyObject *sizes = NULL, *strides = NULL;
    if (torch_header_ready() < 0) return NULL;
    if (PyTuple_CheckExact(tensor) && PyTuple_GET_SIZE(tensor) == 3) {
        sizes = PyTuple_GET_ITEM(tensor, 1);
        strides = PyTuple_GET_ITEM(tensor, 2);
        tensor = PyTuple_GET_ITEM(tensor, 0);
    }
    if (!PyObject_TypeCheck(tensor, torch_header.tensor_type)) {
        PyErr_Format(PyExc_TypeError, "a tensor check needs a tensor, not %.100s", Py_TYPE(tensor)->tp_name);
        return NULL;
    }
    int64_t ndim = torch_header.raw ? word(impl_of(tensor) + torch_header.ndim) : 0;
    TensorSpec *spec = PyMem_Calloc(1, sizeof(TensorSpec) + 3 * ndim * sizeof(int64_t));
    if (spec == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    spec->type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(tensor));
    spec->ndim = ndim;
    spec->strides = spec->sizes + ndim;
    spec->requires_grad = requires_grad_of(tensor);
    if (torch_header.raw) {
        const char *impl = impl_of(tensor);
        spec->keys = word(impl + torch_header.keys);
        spec->dtype_device = half_word(impl + torch_header.dtype);
        memcpy(spec->sizes, sizes_of(impl, ndim), ndim * sizeof(int64_t));
        memcpy(spec->strides, strides_of(impl, ndim), ndim * sizeof(int64_t));
    } else {
        spec->attributes = attributes_of(tensor);
    }
    spec->text = describe(tensor);
    if (spec->text == NULL || (!torch_header.raw && spec->attributes == NULL) ||
        (sizes && spec_set_pattern(spec, sizes, strides) < 0)) {
        tensor_spec_free(spec);
        return NULL;
    }
    return spec;
}

void tensor_spec_free(TensorSpec *spec) {
    if (spec == NULL) return;
    Py_XDECREF(spec->type);
    Py_XDECREF(spec->text);
    Py_XDECREF(spec->attributes);
    PyMem_Free(spec);
}

int tensor_spec_traverse(TensorSpec *spec, visitproc visit, void *arg) {
    Py_VISIT(spec->type);
    Py_VISIT(spec->attributes);
    return 0;
}

static int pattern_matches(const TensorSpec *spec, const int64_t *sizes, const int64_t *strides) {
    int64_t expected = 1;
    for (int64_t i = 0; i < spec->ndim; i++) {
        if (spec->sizes[i] == ANY ? sizes[i] < 1 : sizes[i] != spec->sizes[i]) return 0;
        if (spec->order == NULL && spec->strides[i] != ANY && strides[i] != spec->strides[i]) return 0;
    }
    if (spec->order == NULL) return 1;
    for (int64_t i = 0; i < spec->ndim; i++) {
        int64_t dimension = spec->order[i], size = sizes[dimension];
        if (strides[dimension] != expected) return 0;
        if (__builtin_mul_overflow(expected, size > 0 ? size : 1, &expected)) return 0;
    }
    return 1;
}

int tensor_matches(const TensorSpec *spec, PyObject *object) {
    if (Py_TYPE(object) != spec->type) return 0;
    if (!torch_header.raw) {
        PyObject *attributes = attributes_of(object);
        int same = attributes ? PyObject_RichCompareBool(attributes, spec->attributes, Py_EQ) : -1;
        Py_XDECREF(attributes);
        if (same < 0) PyErr_Clear();
        return same == 1;
    }
    const char *impl = impl_of(object);
    int64_t ndim = spec->ndim;
    if (impl == NULL || word(impl + torch_header.keys) != spec->keys ||
        half_word(impl + torch_header.dtype) != spec->dtype_device || word(impl + torch_header.ndim) != ndim)
        return 0;
    const int64_t *sizes = sizes_of(impl, ndim), *strides = strides_of(impl, ndim);
    if (spec->varies) {
        if (!pattern_matches(spec, sizes, strides)) return 0;
    } else {
        for (int64_t i = 0; i < ndim; i++)
            if (sizes[i] != spec->sizes[i] || strides[i] != spec->strides[i]) return 0;
    }
    return requires_grad_of(object) == spec->requires_grad;
}

/* Whether the tensor is a leaf that requires gradients by its own flag. A view that was made with gradient
 * mode off has the flag of its base, and says that it is a leaf. */
int tensor_accumulates(PyObject *object) {
    if (!PyObject_TypeCheck(object, torch_header.tensor_type)) return 0;
    if (torch_header.raw && torch_header.requires_grad >= 0) {
        const char *meta = autograd_meta_of(object);
        if (meta == NULL || meta[torch_header.requires_grad] != 1) return 0;
    } else if (requires_grad_of(object) != 1 || is_true(object, "_is_view()")) {
        return 0; /* no view, because the two cases cannot be told apart */
    }
    return ask(&torch_header.is_leaf_flag, object) == 1;
}

int tensor_has_history(PyObject *object) {
    if (!PyObject_TypeCheck(object, torch_header.tensor_type)) return 0;
    if (!torch_header.raw || torch_header.history < 0) return ask(&torch_header.is_leaf_flag, object) == 0;
    const char *meta = autograd_meta_of(object);
    return meta != NULL && word(meta + torch_header.history) != 0;
}

PyObject *accumulates(PyObject *Py_UNUSED(module), PyObject *object) {
    if (torch_header_ready() < 0) return NULL;
    return PyBool_FromLong(tensor_accumulates(object));
}

int tensor_size(PyObject *object, int what, int64_t dimension, int64_t *value) {
    if (!PyObject_TypeCheck(object, torch_header.tensor_type) || !torch_header.raw) return 0;
    const char *impl = impl_of(object);
    int64_t ndim = word(impl + torch_header.ndim);
    if (dimension < 0 || dimension >= ndim) return 0;
    *value = what == SIZE_STRIDE ? strides_of(impl, ndim)[dimension] : sizes_of(impl, ndim)[dimension];
    return 1;
}

/* A layout for Python: dtype and device, number of dimensions, sizes and strides; ANY for those that may
 * differ. */
enum { KIND, DIMENSIONS, SIZES };

PyObject *tensor_layout(PyObject *module, PyObject *args) {
    PyObject *like, *sizes, *strides;
    if (!PyArg_ParseTuple(args, "OO!O!", &like, &PyTuple_Type, &sizes, &PyTuple_Type, &strides)) return NULL;
    if (torch_header_ready() < 0) return NULL;
    Py_ssize_t ndim = PyTuple_GET_SIZE(sizes);
    if (!PyObject_TypeCheck(like, torch_header.tensor_type) || PyTuple_GET_SIZE(strides) != ndim) {
        PyErr_SetString(PyExc_TypeError, "a layout needs a tensor, sizes and strides");
        return NULL;
    }
    if (!torch_header.raw) Py_RETURN_NONE;
    PyObject *result = PyBytes_FromStringAndSize(NULL, (SIZES + 2 * ndim) * (Py_ssize_t)sizeof(int64_t));
    if (result == NULL) return NULL;
    int64_t *words = (int64_t *)PyBytes_AS_STRING(result);
    words[KIND] = half_word(impl_of(like) + torch_header.dtype);
    words[DIMENSIONS] = ndim;
    for (Py_ssize_t i = 0; i < 2 * ndim; i++) {
        PyObject *number = i < ndim ? PyTuple_GET_ITEM(sizes, i) : PyTuple_GET_ITEM(strides, i - ndim);
        words[SIZES + i] = number == Py_None ? ANY : PyLong_AsLongLong(number);
    }
    if (PyErr_Occurred()) Py_CLEAR(result);
    return result;
}

static int has_layout(const int64_t *layout, PyObject *tensor) {
    const char *impl = impl_of(tensor);
    int64_t ndim = layout[DIMENSIONS];
    if (impl == NULL || half_word(impl + torch_header.dtype) != layout[KIND] ||
        word(impl + torch_header.ndim) != ndim)
        return 0;
    const int64_t *sizes = sizes_of(impl, ndim), *strides = strides_of(impl, ndim);
    for (int64_t i = 0; i < ndim; i++) {
        int64_t size = layout[SIZES + i], stride = layout[SIZES + ndim + i];
        if ((size != ANY && sizes[i] != size) || (stride != ANY && strides[i] != stride)) return 0;
    }
    return 1;
}

/* Two words per tensor: its storage, and its storage offset. */
PyObject *tensors_where(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 2 || !(PyList_Check(args[0]) || PyTuple_Check(args[0])) || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "tensors_where takes a list or tuple, and a tuple of places");
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(args[1]);
    PyObject *result = PyBytes_FromStringAndSize(NULL, count * 2 * (Py_ssize_t)sizeof(int64_t));
    int64_t *words = result ? (int64_t *)PyBytes_AS_STRING(result) : NULL;
    for (Py_ssize_t i = 0; i < count && result; i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(args[1], i));
        if (place < 0 || place >= PySequence_Fast_GET_SIZE(args[0])) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "no such tensor");
            Py_CLEAR(result);
            break;
        }
        PyObject *tensor = PySequence_Fast_GET_ITEM(args[0], place);
        int is_known = torch_header.raw && PyObject_TypeCheck(tensor, torch_header.tensor_type) &&
                       impl_of(tensor) != NULL;
        words[2 * i] = is_known ? word(impl_of(tensor) + torch_header.storage) : 0;
        words[2 * i + 1] = is_known ? word(impl_of(tensor) + torch_header.storage_offset) : 0;
    }
    return result;
}

PyObject *tensors_lie(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 2 || !PyList_Check(args[0]) || !PyTuple_Check(args[1]) ||
        PyList_GET_SIZE(args[0]) < PyTuple_GET_SIZE(args[1])) {
        PyErr_SetString(PyExc_TypeError, "tensors_lie takes a list and a tuple that is no longer");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); i++) {
        PyObject *layout = PyTuple_GET_ITEM(args[1], i), *tensor = PyList_GET_ITEM(args[0], i);
        if (!PyBytes_Check(layout) || !PyObject_TypeCheck(tensor, torch_header.tensor_type)) continue;
        if (!has_layout((const int64_t *)PyBytes_AS_STRING(layout), tensor)) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

/* Returns -1 if `object` is not a tensor or has no readable offset. */
static int64_t offset_of(PyObject *object) {
    if (!PyObject_TypeCheck(object, torch_header.tensor_type)) return -1;
    if (torch_header.raw) return word(impl_of(object) + torch_header.storage_offset);
    int64_t offset = number_at(object, "storage_offset()");
    PyErr_Clear();
    return offset;
}

int tensor_offset_is(PyObject *object, int64_t offset) { return offset_of(object) == offset; }

int tensor_offset_divides(PyObject *object, int64_t by) {
    int64_t offset = offset_of(object);
    return offset >= 0 && offset % by == 0;
}

int tensor_storage_is(PyObject *object, int64_t bytes) {
    if (!PyObject_TypeCheck(object, torch_header.tensor_type)) return 0;
    if (!torch_header.raw || torch_header.storage_bytes < 0) {
        int64_t bytes_now = number_at(object, "untyped_storage().nbytes()");
        int known = !PyErr_Occurred();
        PyErr_Clear();
        return known && bytes_now == bytes;
    }
    const char *storage = pointer(impl_of(object) + torch_header.storage);
    return storage != NULL && word(storage + torch_header.storage_bytes) == bytes;
}

PyObject *tensor_spec_text(const TensorSpec *spec) { return Py_NewRef(spec->text); }

PyObject *tensor_text(const TensorSpec *spec, PyObject *object) {
    if (!PyObject_TypeCheck(object, torch_header.tensor_type)) {
        PyObject *text = PyObject_Repr(object);
        if (text == NULL || PyUnicode_GET_LENGTH(text) <= 80) return text;
        Py_DECREF(text);
        return PyUnicode_FromFormat("a %s", Py_TYPE(object)->tp_name);
    }
    PyObject *text = describe(object);
    if (text && spec && PyUnicode_Compare(text, spec->text) == 0) { /* only the keys differ */
        PyObject *keys = torch_ask("_dispatch_keys", object), *longer = NULL;
        if (keys) longer = PyUnicode_FromFormat("%U with dispatch keys %S", text, keys);
        Py_XDECREF(keys);
        Py_DECREF(text);
        return longer;
    }
    return text;
}

/* The whole storage, read through Python's objects. It is larger than the tensor's range, so it can only
 * refuse more calls. */
static int storage_extent(PyObject *tensor, uintptr_t *low, uintptr_t *high) {
    *low = (uintptr_t)number_at(tensor, "untyped_storage().data_ptr()");
    if (!PyErr_Occurred()) *high = *low + (uintptr_t)number_at(tensor, "untyped_storage().nbytes()");
    int known = !PyErr_Occurred();
    PyErr_Clear();
    return known;
}

int tensor_extent(PyObject *object, uintptr_t *low, uintptr_t *high) {
    if (!PyObject_TypeCheck(object, torch_header.tensor_type)) return 0;
    if (!torch_header.raw) return storage_extent(object, low, high);
    const char *impl = impl_of(object), *storage = pointer(impl + torch_header.storage);
    int64_t ndim = word(impl + torch_header.ndim), first = 0, last = 0;
    uint16_t dtype = (uint16_t)half_word(impl + torch_header.dtype);
    int item = dtype < 64 ? torch_header.item_size[dtype] : 0;
    if (storage == NULL || item == 0) return storage_extent(object, low, high);
    const int64_t *sizes = sizes_of(impl, ndim), *strides = strides_of(impl, ndim);
    *low = *high = 0;
    for (int64_t i = 0; i < ndim; i++) {
        if (sizes[i] == 0) return 1;
        if (strides[i] < 0)
            first += (sizes[i] - 1) * strides[i];
        else
            last += (sizes[i] - 1) * strides[i];
    }
    uintptr_t start = (uintptr_t)word(storage + torch_header.storage_data);
    int64_t offset = word(impl + torch_header.storage_offset);
    *low = start + (uintptr_t)((offset + first) * item);
    *high = start + (uintptr_t)((offset + last + 1) * item);
    return 1;
}
