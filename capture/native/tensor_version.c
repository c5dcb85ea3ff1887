/* Whether a tensor is unchanged: the same memory, and no write to it that autograd notices.
 *
 * PyTorch counts in-place operations in a counter that a tensor shares with its views and with the results
 * of `detach`. A guard holds such an alias of the tensor, so that no other tensor can reuse the counter or
 * the memory, and compares headers with it. The offset of the counter is measured: two aliases share
 * several words that another tensor has with other values, and all but one of these are known. In the
 * memory that this word points to, one word grows by one with each write.
 */
#include "capture.h"

enum { COUNTER_SPAN = 24, WRITES = 3 };

static int version_at = -1;   /* offset of the pointer to the counter in a tensor's header */
static int version_count = 8; /* offset of the number in the counter */

static int is_known(int offset) {
    const TorchHeader *h = &torch_header;
    return offset == (h->dtype & ~7) || offset == h->storage || offset == h->keys || offset == h->ndim ||
           offset == h->storage_offset || offset == h->autograd_meta;
}

static int may_be_pointer(int64_t value) { return value > 1 << 20 && value < 1ll << 47 && value % 8 == 0; }

static int is_shared_pointer(int offset, const char *tensor, const char *alias, PyObject *const *others) {
    int64_t value = word(tensor + offset);
    if (is_known(offset) || value != word(alias + offset) || !may_be_pointer(value)) return 0;
    for (; *others; others++) {
        int64_t own = word(impl_of(*others) + offset);
        if (own == value || !may_be_pointer(own)) return 0;
    }
    return 1;
}

/* The one word that the aliases share and that differs in all others, each a pointer; -1 if there is not
 * exactly one. Several others are needed, because an uninitialized word may look like that in one. */
static int find_pointer(const char *tensor, const char *alias, PyObject *const *others) {
    int match = -1;
    for (int offset = 8; offset < torch_header.sizes; offset += 8) { /* the sizes are known to be after it */
        if (!is_shared_pointer(offset, tensor, alias, others)) continue;
        if (match >= 0) return -1;
        match = offset;
    }
    return match;
}

/* The offset of the number that counts writes to `tensor`; -1 if there is not exactly one. */
static int find_count(PyObject *tensor, const char *counter) {
    char before[COUNTER_SPAN];
    memcpy(before, counter, COUNTER_SPAN);
    for (int i = 0; i < WRITES; i++) {
        PyObject *done = PyObject_CallMethod(tensor, "zero_", NULL);
        if (done == NULL) return -1;
        Py_DECREF(done);
    }
    int match = -1;
    for (int offset = 8; offset < COUNTER_SPAN; offset += 4) {
        uint32_t grown = (uint32_t)half_word(counter + offset) - (uint32_t)half_word(before + offset);
        if (grown == 0) continue;
        if (grown != WRITES || match >= 0) return -1;
        match = offset;
    }
    return match;
}

void tensor_version_calibrate(PyObject *tensor, PyObject *const *others) {
    PyObject *alias = PyObject_CallMethod(tensor, "detach", NULL);
    int at = alias ? find_pointer(impl_of(tensor), impl_of(alias), others) : -1;
    int count = at >= 0 ? find_count(tensor, pointer(impl_of(tensor) + at)) : -1;
    if (count >= 0) {
        version_at = at;
        version_count = count;
    }
    Py_XDECREF(alias);
    PyErr_Clear();
}

int tensor_versions_known(void) { return torch_header.raw && version_at >= 0; }

static const char *counter_of(PyObject *tensor) { return pointer(impl_of(tensor) + version_at); }

int64_t tensor_version(PyObject *object) {
    if (!tensor_versions_known() || !PyObject_TypeCheck(object, torch_header.tensor_type)) return -1;
    const char *counter = impl_of(object) ? counter_of(object) : NULL;
    return counter ? (int64_t)(uint32_t)half_word(counter + version_count) : -1;
}

int tensor_unchanged(PyObject *alias, int64_t version, PyObject *object) {
    if (tensor_version(object) != version || counter_of(object) != counter_of(alias)) return 0;
    const char *now = impl_of(object), *then = impl_of(alias);
    return word(now + torch_header.storage) == word(then + torch_header.storage) &&
           word(now + torch_header.storage_offset) == word(then + torch_header.storage_offset);
}

enum { WORDS = 3 };

/* Three words that identify the state of a tensor: the object, the number of writes, and the storage.
 */
static int written(PyObject *tensor, int64_t *words) {
    words[0] = (int64_t)(uintptr_t)tensor;
    words[1] = tensor_version(tensor);
    if (words[1] >= 0) {
        words[2] = word(impl_of(tensor) + torch_header.storage);
        return 0;
    }
    words[1] = number_at(tensor, "_version");
    words[2] = 0;
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *tensors_written(PyObject *module, PyObject *args) {
    PyObject *tensors, *places;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &tensors, &PyTuple_Type, &places)) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(places);
    PyObject *result = PyBytes_FromStringAndSize(NULL, count * WORDS * (Py_ssize_t)sizeof(int64_t));
    for (Py_ssize_t i = 0; i < count && result; i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(places, i));
        int64_t words[WORDS];
        if (place < 0 || place >= PyTuple_GET_SIZE(tensors)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "no such tensor");
            Py_CLEAR(result);
        } else if (written(PyTuple_GET_ITEM(tensors, place), words) < 0) {
            Py_CLEAR(result);
        } else {
            memcpy(PyBytes_AS_STRING(result) + i * (Py_ssize_t)sizeof words, words, sizeof words);
        }
    }
    return result;
}
