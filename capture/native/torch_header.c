/* Finds the offsets of a tensor's fields in PyTorch's structures.
 *
 * No header of PyTorch is used. The structures of sample tensors are searched for values that are known
 * through Python; an offset counts only if it fits all samples. If any field is not found, `raw` stays 0,
 * and tensors are read through their attributes. The layout differs between PyTorch versions, so the code
 * assumes only that the object holds the pointer of its implementation, that the device follows the dtype,
 * and that up to five dimensions are stored inline.
 */
#include "capture.h"

#include <malloc.h>

TorchHeader torch_header;

enum { OBJECT_SPAN = 48, IMPL_SPAN = 208, META_SPAN = 192, STORAGE_SPAN = 64, SAMPLES = 6 };

typedef struct {
    PyObject *tensor; /* owned */
    const char *impl;
    int64_t dtype, ndim, keys, storage, data, bytes;
    int64_t sizes[6], strides[6];
} Sample;

PyObject *attribute_at(PyObject *object, const char *path) {
    char name[64];
    PyObject *here = Py_NewRef(object);
    while (*path && here) {
        size_t length = strcspn(path, ".");
        memcpy(name, path, length);
        name[length] = 0;
        path += length + (path[length] == '.');
        int call = name[length - 1] == ')';
        if (call) name[length - 2] = 0;
        Py_SETREF(here, call ? PyObject_CallMethod(here, name, NULL) : PyObject_GetAttrString(here, name));
    }
    return here;
}

int64_t number_at(PyObject *object, const char *path) {
    PyObject *number = attribute_at(object, path);
    int64_t value = number ? (int64_t)PyLong_AsUnsignedLongLongMask(number) : -1;
    Py_XDECREF(number);
    return value;
}

PyObject *torch_c(const char *name) {
    PyObject *c = PyObject_GetAttrString(torch_header.torch, "_C");
    PyObject *value = c ? PyObject_GetAttrString(c, name) : NULL;
    Py_XDECREF(c);
    return value;
}

PyObject *torch_ask(const char *name, PyObject *argument) {
    PyObject *function = torch_c(name);
    if (function == NULL) return NULL;
    PyObject *answer = argument ? PyObject_CallOneArg(function, argument) : PyObject_CallNoArgs(function);
    Py_DECREF(function);
    return answer;
}

int64_t dispatch_keys(PyObject *tensor) {
    PyObject *keys = torch_ask("_dispatch_keys", tensor);
    int64_t raw = keys ? number_at(keys, "raw_repr()") : -1;
    Py_XDECREF(keys);
    return raw;
}

static int sample_make(Sample *sample, const char *dtype, int64_t code, const char *device, int ndim) {
    static const int64_t sizes[6] = {3, 5, 7, 2, 11, 13};
    PyObject *shape = PyTuple_New(ndim), *strides = PyTuple_New(ndim), *args, *kwargs;
    PyObject *make = PyObject_GetAttrString(torch_header.torch, "empty_strided");
    int64_t stride = 2; /* odd multiples, so that no other word of the header has the same bits */
    for (int i = ndim - 1; i >= 0 && shape && strides; i--) {
        sample->sizes[i] = sizes[i];
        sample->strides[i] = stride;
        PyTuple_SET_ITEM(shape, i, PyLong_FromLongLong(sizes[i]));
        PyTuple_SET_ITEM(strides, i, PyLong_FromLongLong(stride));
        stride *= sizes[i] + 1;
    }
    args = Py_BuildValue("(NN)", shape, strides);
    kwargs =
        Py_BuildValue("{sNss}", "dtype", PyObject_GetAttrString(torch_header.torch, dtype), "device", device);
    if (make && args && kwargs) sample->tensor = PyObject_Call(make, args, kwargs);
    Py_XDECREF(make);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    if (sample->tensor == NULL) return -1;
    sample->ndim = ndim;
    sample->dtype = code;
    sample->keys = dispatch_keys(sample->tensor);
    sample->impl = (const char *)(uintptr_t)number_at(sample->tensor, "_cdata");
    sample->storage = number_at(sample->tensor, "untyped_storage()._cdata");
    sample->data = number_at(sample->tensor, "untyped_storage().data_ptr()");
    sample->bytes = number_at(sample->tensor, "untyped_storage().nbytes()");
    return PyErr_Occurred() ? -1 : 0;
}

/* How many of the `most` bytes at `object`, a block of the C library's heap, belong to it: the bytes after
 * it may change at any time. */
static int own_span(const void *object, int most) {
    size_t size = malloc_usable_size((void *)object) & ~7ul;
    return size < (size_t)most ? (int)size : most;
}

/* The offset at which every sample's header has the `bytes` bytes of the sample's `field`; -1 if there is
 * none or several. */
static int find(const Sample *samples, int first, int last, size_t field, size_t bytes, int step) {
    int match = -1;
    int span = own_span(samples[first].impl, IMPL_SPAN);
    for (int offset = 8; offset + (int)bytes <= span; offset += step) {
        int agree = 1;
        for (int i = first; i < last && agree; i++)
            agree = memcmp(samples[i].impl + offset, (const char *)&samples[i] + field, bytes) == 0;
        if (!agree) continue;
        if (match >= 0) return -1;
        match = offset;
    }
    return match;
}

/* The only byte of `span` that differs between the two snapshots; -1 if there is not exactly one. */
static int only_change(const char *before, const char *after, int span) {
    int match = -1;
    for (int i = 8; i < span; i++) {
        if (before[i] == after[i]) continue;
        if (match >= 0) return -1;
        match = i;
    }
    return match;
}

static int set_requires_grad(PyObject *tensor, PyObject *value) {
    PyObject *done = PyObject_CallMethod(tensor, "requires_grad_", "O", value);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Autograd data: the header word that stops being null, and the byte in the data that changes with the
 * flag. */
static int find_autograd(PyObject *tensor, const char *impl) {
    char before[IMPL_SPAN], meta_on[META_SPAN];
    int span = own_span(impl, IMPL_SPAN);
    memcpy(before, impl, span);
    if (set_requires_grad(tensor, Py_True) < 0) return -1;
    torch_header.autograd_meta = torch_header.requires_grad = -1;
    for (int offset = 8; offset < span; offset += 8) {
        if (memcmp(before + offset, impl + offset, 8) == 0) continue;
        if (word(before + offset) != 0 || torch_header.autograd_meta >= 0) return 0;
        torch_header.autograd_meta = offset;
    }
    if (torch_header.autograd_meta < 0) return 0;
    const char *meta = pointer(impl + torch_header.autograd_meta);
    span = own_span(meta, META_SPAN);
    memcpy(meta_on, meta, span);
    if (set_requires_grad(tensor, Py_False) < 0) return -1;
    int flag = only_change(meta_on, meta, span);
    if (flag >= 0 && meta_on[flag] == 1 && meta[flag] == 0) torch_header.requires_grad = flag;
    return 0;
}

/* Finds the word in the autograd data of a result that points to the node; the Python object of the node
 * holds the same pointer. */
static int find_history(PyObject *tensor) {
    torch_header.history = -1;
    if (set_requires_grad(tensor, Py_True) < 0) return -1;
    PyObject *result = PyObject_CallMethod(tensor, "neg", NULL); /* saves nothing, so no hooks are called */
    PyObject *node = result ? PyObject_GetAttrString(result, "grad_fn") : NULL;
    if (node != NULL && node != Py_None) { /* None with gradients off */
        const char *meta = pointer(impl_of(result) + torch_header.autograd_meta);
        int64_t held = *(int64_t *)((char *)node + sizeof(PyObject)), matches = 0;
        int span = own_span(meta, META_SPAN);
        for (int offset = 8; offset < span; offset += 8) {
            if (*(int64_t *)(meta + offset) != held) continue;
            torch_header.history = offset;
            matches++;
        }
        if (matches != 1) torch_header.history = -1;
    }
    Py_XDECREF(node);
    Py_XDECREF(result);
    return node ? set_requires_grad(tensor, Py_False) : -1;
}

static int find_offsets(Sample *samples) {
    TorchHeader *header = &torch_header;
    for (int i = 0; i < SAMPLES; i++)
        if (impl_of(samples[i].tensor) != samples[i].impl) return 0;
    /* Samples 0..4 have 1 to 5 dimensions, which are stored inline; sample 5 has 6. */
    header->keys = find(samples, 0, SAMPLES, offsetof(Sample, keys), 8, 8);
    header->dtype = find(samples, 0, SAMPLES, offsetof(Sample, dtype), 2, 2);
    header->ndim = find(samples, 0, SAMPLES, offsetof(Sample, ndim), 8, 8);
    header->storage = find(samples, 0, SAMPLES, offsetof(Sample, storage), 8, 8);
    header->sizes = find(samples, 4, 5, offsetof(Sample, sizes), 5 * 8, 8);
    header->strides = find(samples, 4, 5, offsetof(Sample, strides), 5 * 8, 8);
    if (header->keys < 0 || header->dtype < 0 || header->ndim < 0 || header->storage < 0 ||
        header->sizes < 0 || header->strides < 0)
        return 0;
    for (int i = 0; i < 5; i++)
        if (memcmp(samples[i].impl + header->sizes, samples[i].sizes, (i + 1) * 8) ||
            memcmp(samples[i].impl + header->strides, samples[i].strides, (i + 1) * 8))
            return 0;
    const int64_t *far = *(int64_t **)(samples[5].impl + header->sizes);
    if (far == NULL || memcmp(far, samples[5].sizes, 48) || memcmp(far + 6, samples[5].strides, 48)) return 0;
    /* Device type and index follow the dtype: equal among CPU samples, different on the meta device
     * (sample 1). */
    const char *cpu = samples[0].impl + header->dtype + 2, *meta = samples[1].impl + header->dtype + 2;
    if (cpu[0] != 0 || meta[0] == 0 || memcmp(cpu, samples[2].impl + header->dtype + 2, 2)) return 0;
    header->storage_data = -1;
    for (int offset = 8; offset < STORAGE_SPAN && header->storage_data < 0; offset += 8)
        if (*(int64_t *)(samples[0].storage + offset) == samples[0].data &&
            *(int64_t *)(samples[2].storage + offset) == samples[2].data)
            header->storage_data = offset;
    header->storage_bytes = -1;
    for (int offset = 8; offset < STORAGE_SPAN && header->storage_bytes < 0; offset += 8)
        if (offset != header->storage_data && *(int64_t *)(samples[0].storage + offset) == samples[0].bytes &&
            *(int64_t *)(samples[2].storage + offset) == samples[2].bytes &&
            samples[0].bytes != samples[2].bytes)
            header->storage_bytes = offset;
    if (header->storage_data < 0) return 0;
    if (find_autograd(samples[0].tensor, samples[0].impl) < 0) return -1;
    if (header->autograd_meta >= 0 && find_history(samples[0].tensor) < 0) return -1;
    return header->autograd_meta >= 0;
}

/* The storage offset is the one word that changes if a view starts at another element. */
static int find_storage_offset(PyObject *tensor) {
    PyObject *view = PyObject_CallMethod(tensor, "narrow", "iii", 0, 2, 1);
    if (view == NULL) return -1;
    const char *impl = impl_of(tensor), *moved = impl_of(view);
    int64_t expected = number_at(view, "storage_offset()");
    torch_header.storage_offset = -1;
    int span = own_span(impl, IMPL_SPAN);
    for (int offset = torch_header.strides + 8; offset < span; offset += 8)
        if (*(int64_t *)(impl + offset) == 0 && *(int64_t *)(moved + offset) == expected) {
            torch_header.storage_offset = offset;
            break;
        }
    Py_DECREF(view);
    return PyErr_Occurred() ? -1 : 0;
}

static const struct {
    const char *dtype, *device;
    int code; /* c10::ScalarType, part of PyTorch's serialised formats and hence stable */
} SAMPLE_KINDS[SAMPLES] = {{"float32", "cpu", 6}, {"float64", "meta", 7},  {"int64", "cpu", 4},
                           {"bool", "cpu", 11},   {"bfloat16", "cpu", 15}, {"int16", "cpu", 2}};

static void item_sizes(void) {
    static const signed char sizes[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2};
    for (size_t i = 0; i < sizeof sizes; i++) torch_header.item_size[i] = sizes[i];
    for (int code = 23; code <= 26; code++) torch_header.item_size[code] = 1; /* 8-bit floats */
    for (int code = 27, size = 2; code <= 29; code++, size *= 2)
        torch_header.item_size[code] = size; /* uint16..64 */
}

static int calibrate(void) {
    Sample samples[SAMPLES] = {0};
    int result = 0;
    for (int i = 0; i < SAMPLES && result == 0; i++)
        result = sample_make(&samples[i], SAMPLE_KINDS[i].dtype, SAMPLE_KINDS[i].code, SAMPLE_KINDS[i].device,
                             i + 1);
    if (result == 0) {
        result = find_offsets(samples);
        if (result == 1 && find_storage_offset(samples[2].tensor) < 0) result = -1;
        if (result == 1 && torch_header.storage_offset < 0) result = 0;
        PyObject *others[SAMPLES] = {0};
        for (int i = 1; i < SAMPLES; i++) others[i - 1] = samples[i].tensor;
        if (result == 1) tensor_version_calibrate(samples[0].tensor, others);
    }
    for (int i = 0; i < SAMPLES; i++) Py_XDECREF(samples[i].tensor);
    if (result < 0) { /* an API that this PyTorch lacks: attributes work as well */
        PyErr_Clear();
        result = 0;
    }
    torch_header.raw = result;
    tensor_accumulator_calibrate();
    return 0;
}

static int find_flag(PyObject *type, const char *name, TensorFlag *flag) {
    PyObject *attribute = PyObject_GetAttrString(type, name);
    if (attribute == NULL) return -1;
    flag->name = name;
    if (Py_TYPE(attribute) == &PyGetSetDescr_Type) {
        flag->get = ((PyGetSetDescrObject *)attribute)->d_getset->get;
        flag->closure = ((PyGetSetDescrObject *)attribute)->d_getset->closure;
    }
    Py_DECREF(attribute);
    return 0;
}

int torch_header_ready(void) {
    if (torch_header.torch != NULL) return 0;
    PyObject *torch = PyImport_ImportModule("torch");
    if (torch == NULL) return -1;
    PyObject *type = PyObject_GetAttrString(torch, "Tensor");
    if (type == NULL || !PyType_Check(type) ||
        find_flag(type, "requires_grad", &torch_header.requires_grad_flag) < 0 ||
        find_flag(type, "is_leaf", &torch_header.is_leaf_flag) < 0) {
        Py_XDECREF(type);
        Py_DECREF(torch);
        return -1;
    }
    torch_header.tensor_type = (PyTypeObject *)type; /* kept until the process ends, like the module */
    torch_header.torch = torch;
    item_sizes();
    return calibrate();
}
