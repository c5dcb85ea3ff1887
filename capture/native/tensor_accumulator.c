/* Whether hooks run where autograd adds up the gradients of a leaf: on the leaf's AccumulateGrad node.
 *
 * The program sets them with `register_hook` and `register_prehook`, and libraries of PyTorch in C++, so
 * Python cannot ask for them. The autograd data of a leaf has a weak pointer to the node, and the node a
 * vector for each kind of hook. Their offsets are measured: of a sample leaf, the node is known through
 * Python, and the words that stop being null when it gets a hook are those of the vector. The number of
 * owners is in the node itself, or in a block that the weak pointer names too.
 */
#include "capture.h"

#include <malloc.h>

enum { NODE_SPAN = 512, META_SPAN = 192, OWNERS_SPAN = 24, BLOCK_BEFORE_NODE = 16, VECTOR = 3, OWNERS = 3 };
static const char *const REGISTER[] = {"register_prehook", "register_hook"};
enum { KINDS = Py_ARRAY_LENGTH(REGISTER) };

static int accumulator_at = -1; /* offset of the weak pointer in the autograd data; -1 unknown */
static int has_block;           /* whether the number of owners is in a block of its own */
static int owners_at;           /* offset of that number */
static int hooks_at[KINDS];     /* offsets of the vectors in the node */

static const char *meta_of(PyObject *tensor) { return pointer(impl_of(tensor) + torch_header.autograd_meta); }

static const char *counted_in(const char *meta, int at) { return pointer(meta + at + (has_block ? 8 : 0)); }

/* The offset of the only pointer to `node`; -1 if there is not exactly one. */
static int find_accumulator(const char *meta, const char *node) {
    size_t size = malloc_usable_size((void *)meta) & ~7ul;
    int span = size < META_SPAN ? (int)size : META_SPAN, match = -1;
    for (int offset = 8; offset + 16 <= span; offset += 8) {
        if (pointer(meta + offset) != node) continue;
        if (match >= 0) return -1;
        match = offset;
    }
    return match;
}

/* The offset of the only number that grows with the owners of the node; -1 if there is not exactly one. */
static int find_owners(PyObject *leaf, const char *counted) {
    char before[OWNERS_SPAN];
    memcpy(before, counted, OWNERS_SPAN);
    PyObject *owners[OWNERS] = {0};
    for (int i = 0; i < OWNERS; i++) owners[i] = PyObject_CallMethod(leaf, "view_as", "O", leaf);
    int match = -1, matches = 0;
    for (int offset = 8; offset < OWNERS_SPAN; offset += 4)
        if (half_word(counted + offset) - half_word(before + offset) == OWNERS) {
            match = offset;
            matches++;
        }
    for (int i = 0; i < OWNERS; i++) Py_XDECREF(owners[i]);
    return matches == 1 ? match : -1;
}

/* The offset of the only vector in `node` that is filled by `name`; -1 if there is not exactly one. */
static int find_hooks(PyObject *function, const char *node, int span, const char *name) {
    char before[NODE_SPAN];
    memcpy(before, node, span);
    PyObject *handle = PyObject_CallMethod(function, name, "O", (PyObject *)&PyLong_Type);
    if (handle == NULL) return -1;
    int match = -1, matches = 0;
    for (int offset = 8; offset + 8 * VECTOR <= span; offset += 8) {
        const char *was = before + offset, *is = node + offset;
        if (word(was) || word(was + 8) || word(was + 16)) continue;
        if (word(is) == 0 || word(is + 8) != word(is) + 8 || word(is + 16) < word(is + 8)) continue;
        match = offset;
        matches++;
    }
    Py_DECREF(handle);
    return matches == 1 ? match : -1;
}

/* `leaf`: a tensor that nothing else uses; `function`: its node. */
static int find_offsets(PyObject *leaf, PyObject *function) {
    const char *held = (char *)function + sizeof(PyObject), *node = pointer(held), *meta = meta_of(leaf);
    int at = meta ? find_accumulator(meta, node) : -1;
    if (at < 0) return -1;
    /* The object of the node holds the node in the same way. */
    has_block = word(held + 8) != 0 && word(held + 8) == word(meta + at + 8);
    const char *counted = counted_in(meta, at);
    if ((owners_at = find_owners(leaf, counted)) < 0) return -1;
    int inside =
        counted + BLOCK_BEFORE_NODE == node; /* the node follows the block in one piece of the heap */
    size_t size = malloc_usable_size((void *)(inside ? counted : node)) & ~7ul;
    size -= inside ? BLOCK_BEFORE_NODE : 0;
    int span = size < NODE_SPAN ? (int)size : NODE_SPAN;
    for (int kind = 0; kind < KINDS; kind++)
        if ((hooks_at[kind] = find_hooks(function, node, span, REGISTER[kind])) < 0) return -1;
    return at;
}

void tensor_accumulator_calibrate(void) {
    if (!torch_header.raw) return;
    PyObject *graph = PyImport_ImportModule("torch.autograd.graph");
    PyObject *leaf = PyObject_CallMethod(torch_header.torch, "empty", "i", 1);
    PyObject *done = leaf ? PyObject_CallMethod(leaf, "requires_grad_", NULL) : NULL;
    PyObject *edge = graph && done ? PyObject_CallMethod(graph, "get_gradient_edge", "O", leaf) : NULL;
    PyObject *function = edge ? PyObject_GetAttrString(edge, "node") : NULL;
    if (function != NULL) accumulator_at = find_offsets(leaf, function);
    Py_XDECREF(function);
    Py_XDECREF(edge);
    Py_XDECREF(done);
    Py_XDECREF(leaf);
    Py_XDECREF(graph);
    PyErr_Clear();
}

int tensor_accumulator_hooked(PyObject *object) {
    if (accumulator_at < 0) return 1; /* unknown */
    if (!PyObject_TypeCheck(object, torch_header.tensor_type)) return 0;
    const char *meta = meta_of(object);
    const char *node = meta ? pointer(meta + accumulator_at) : NULL;
    if (node == NULL) return 0;
    const char *counted = counted_in(meta, accumulator_at);
    if (counted == NULL || half_word(counted + owners_at) == 0) return 0; /* the node is gone */
    for (int kind = 0; kind < KINDS; kind++)
        if (word(node + hooks_at[kind]) != word(node + hooks_at[kind] + 8)) return 1;
    return 0;
}

PyObject *accumulator_hooked(PyObject *Py_UNUSED(module), PyObject *object) {
    if (torch_header_ready() < 0) return NULL;
    return PyBool_FromLong(tensor_accumulator_hooked(object));
}
