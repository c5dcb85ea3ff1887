/* The kinds of checks of tensors: their headers, their histories, where their memory lies. */
#include "guard.h"

/* --- one tensor --- */

static int take_tensor(Step *step, PyObject *tensor, Py_ssize_t Py_UNUSED(nodes)) {
    step->tensor = tensor_spec_new(tensor);
    return step->tensor ? 0 : -1;
}

static void release_tensor(Step *step) { tensor_spec_free(step->tensor); }

static int traverse_tensor(Step *step, visitproc visit, void *arg) {
    return step->tensor ? tensor_spec_traverse(step->tensor, visit, arg) : 0;
}

static int check_tensor(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return tensor_matches(step->tensor, object);
}

static PyObject *tensor_demand(const Guards *Py_UNUSED(guards), const Step *step) {
    return tensor_spec_text(step->tensor);
}

PyObject *guard_actual_tensor(const Step *step, PyObject *object) {
    return tensor_text(step->tensor, object);
}

static int check_offset(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return tensor_offset_is(object, step->number);
}

static int check_offset_multiple(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return tensor_offset_divides(object, step->number);
}

static int check_storage(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return tensor_storage_is(object, step->number);
}

static PyObject *another(const Step *Py_UNUSED(step), PyObject *Py_UNUSED(object)) {
    return PyUnicode_FromString("another");
}

static int take_nothing(Step *Py_UNUSED(step), PyObject *Py_UNUSED(value), Py_ssize_t Py_UNUSED(nodes)) {
    return torch_header_ready();
}

static int check_accumulates(const Step *Py_UNUSED(step), PyObject *object, PyObject **Py_UNUSED(values)) {
    return tensor_accumulates(object);
}

static int check_no_hooks(const Step *Py_UNUSED(step), PyObject *object, PyObject **Py_UNUSED(values)) {
    return !tensor_accumulator_hooked(object);
}

static int check_history(const Step *Py_UNUSED(step), PyObject *object, PyObject **Py_UNUSED(values)) {
    return tensor_has_history(object);
}

/* (alias, version) */
static int take_unchanged(Step *step, PyObject *value, Py_ssize_t nodes) {
    if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) != 2) return -1;
    if (tensor_version(PyTuple_GET_ITEM(value, 0)) < 0) return -1;
    if (guard_take_number(step, PyTuple_GET_ITEM(value, 1), nodes) < 0) return -1;
    step->object = Py_NewRef(PyTuple_GET_ITEM(value, 0));
    return 0;
}

static int check_unchanged(const Step *step, PyObject *object, PyObject **Py_UNUSED(values)) {
    return tensor_unchanged(step->object, step->number, object);
}

static int was_written(const Step *step) { return tensor_version(step->object) != step->number; }

static PyObject *actual_version(const Step *Py_UNUSED(step), PyObject *object) {
    return PyUnicode_FromFormat("version %lld", (long long)tensor_version(object));
}

/* --- many tensors, or objects --- */

/* A sequence of nodes. */
static int take_nodes(Step *step, PyObject *value, Py_ssize_t nodes) {
    PyObject *list = PySequence_Fast(value, "expected a sequence of nodes");
    if (list == NULL) return -1;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(list), i = 0;
    Py_ssize_t *order = PyMem_Malloc((count + 1) * sizeof *order);
    for (; order && i < count; i++) {
        order[i] = PyLong_AsSsize_t(PySequence_Fast_GET_ITEM(list, i));
        if (PyErr_Occurred() || !guard_node_known(order[i], nodes)) break;
    }
    Py_DECREF(list);
    if (order && i == count) {
        step->order = order;
        step->number = count;
        return 0;
    }
    if (order == NULL) PyErr_NoMemory();
    PyMem_Free(order);
    return -1;
}

static void release_nodes(Step *step) { PyMem_Free(step->order); }

static int object_extent(PyObject *object, uintptr_t *low, uintptr_t *high) {
    *low = (uintptr_t)object;
    *high = *low + 1;
    return 1;
}

/* What lies apart: tensors in memory, or objects. */
typedef struct {
    int (*extent)(PyObject *object, uintptr_t *low, uintptr_t *high);
    const char *apart, *together; /* in words */
} Things;
static const Things TENSORS = {tensor_extent, "share no memory", "share memory"},
                    OBJECTS = {object_extent, "are different objects", "are one object"};

/* Sorts the nodes by address, starting from the order of the last call, which rarely changes. */
static inline int are_apart(const Step *step, PyObject **values, const Things *things) {
    enum { ON_STACK = 64 };
    struct Extent {
        uintptr_t low, high;
    } on_stack[ON_STACK], *extents = on_stack;
    Py_ssize_t count = step->number, *order = step->order, used = 0;
    if (count > ON_STACK && (extents = PyMem_Malloc(count * sizeof *extents)) == NULL) return 0;
    int apart = 1;
    for (Py_ssize_t i = 0; i < count && apart; i++) {
        struct Extent extent = {0, 0};
        Py_ssize_t node = order[i], at = used;
        apart = things->extent(values[node], &extent.low, &extent.high);
        for (; at > 0 && extents[at - 1].low > extent.low; at--) {
            extents[at] = extents[at - 1];
            order[at] = order[at - 1];
        }
        extents[at] = extent;
        order[at] = node;
        used++;
    }
    uintptr_t reached = 0;
    for (Py_ssize_t i = 0; i < count && apart; i++) {
        if (extents[i].low == extents[i].high) continue; /* no elements */
        apart = extents[i].low >= reached;
        reached = extents[i].high;
    }
    if (extents != on_stack) PyMem_Free(extents);
    return apart;
}

static int check_no_overlap(const Step *step, PyObject *Py_UNUSED(object), PyObject **values) {
    return are_apart(step, values, &TENSORS);
}

static int check_distinct(const Step *step, PyObject *Py_UNUSED(object), PyObject **values) {
    return are_apart(step, values, &OBJECTS);
}

static const Things *things_of(const Step *step) {
    return step->kind->check == check_distinct ? &OBJECTS : &TENSORS;
}

/* "a, b and 3 more share no memory" */
static PyObject *apart_text(const Guards *guards, const Step *step) {
    enum { NAMED = 4 };
    const char *what = things_of(step)->apart;
    Py_ssize_t named = step->number < NAMED ? step->number : NAMED;
    PyObject *names = PyList_New(step->number), *comma = PyUnicode_FromString(", "), *joined = NULL,
             *text = NULL;
    for (Py_ssize_t i = 0; names && i < step->number; i++)
        PyList_SET_ITEM(names, i, Py_NewRef(guard_path(guards, step->order[i])));
    if (names && comma && PyList_Sort(names) == 0 && PyList_SetSlice(names, named, step->number, NULL) == 0)
        joined = PyUnicode_Join(comma, names);
    if (joined && named < step->number)
        text = PyUnicode_FromFormat("%U and %zd more %s", joined, step->number - named, what);
    else if (joined)
        text = PyUnicode_FromFormat("%U %s", joined, what);
    Py_XDECREF(names);
    Py_XDECREF(comma);
    Py_XDECREF(joined);
    return text;
}

/* Names the two tensors that share memory, or the two paths that lead to one object. */
static PyObject *apart_failure(const Guards *guards, const Step *step, PyObject **values) {
    const Things *things = things_of(step);
    for (Py_ssize_t i = 0; i < step->number; i++) {
        uintptr_t low, high, other_low, other_high;
        PyObject *path = guard_path(guards, step->order[i]);
        if (!things->extent(values[step->order[i]], &low, &high))
            return PyUnicode_FromFormat("%U: expected a tensor whose memory is known", path);
        for (Py_ssize_t j = 0; j < i; j++) {
            if (!things->extent(values[step->order[j]], &other_low, &other_high)) continue;
            if (low == high || other_low == other_high || low >= other_high || other_low >= high) continue;
            PyObject *other = guard_path(guards, step->order[j]);
            int ordered = PyUnicode_Compare(other, path) < 0;
            return PyUnicode_FromFormat("%U and %U %s", ordered ? other : path, ordered ? path : other,
                                        things->together);
        }
    }
    return apart_text(guards, step);
}

const GuardKind guard_tensor_checks[] = {
    /* tensor: the same exact type, dtype, device, sizes, strides, requires_grad, dispatch keys, and layout as
     * that tensor has now (it is not kept) */
    {"tensor", take_tensor, .release = release_tensor, .traverse = traverse_tensor, .check = check_tensor,
     .move = MOVE_TENSOR, .demand = "%U", .subject = tensor_demand, .actual = guard_actual_tensor},
    /* number of elements */
    {"storage_offset", guard_take_number, .check = check_offset, .demand = "storage offset %zd",
     .actual = another},
    {"storage_offset_multiple", guard_take_number, .check = check_offset_multiple,
     .demand = "storage offset a multiple of %zd", .actual = another},
    /* number of bytes: of the whole storage */
    {"storage_bytes", guard_take_number, .check = check_storage, .demand = "a storage of %zd bytes",
     .actual = another},
    /* autograd accumulates gradients in its `grad` */
    {"accumulates", take_nothing, .check = check_accumulates,
     .demand = "a leaf that gradients are added up in", .actual = another},
    {"no_accumulator_hooks", take_nothing, .check = check_no_hooks,
     .demand = "a leaf without hooks where gradients are added up", .actual = another},
    {"has_history", take_nothing, .check = check_history, .demand = "a tensor with a history",
     .actual = another},
    /* (alias, version): the tensor that the alias was made from, with the same values */
    {"unchanged", take_unchanged, .check = check_unchanged, .demand = "the tensor it was, at version %zd",
     .actual = actual_version, .stale = was_written},
    /* nodes: no two of these tensors share memory (different storages, or disjoint ranges of one) */
    {"no_overlap", take_nodes, .release = release_nodes, .check = check_no_overlap, .many = 1,
     .text = apart_text, .failure = apart_failure},
    /* nodes: no two of these objects are one */
    {"distinct", take_nodes, .release = release_nodes, .check = check_distinct, .many = 1, .text = apart_text,
     .failure = apart_failure},
    {0},
};
