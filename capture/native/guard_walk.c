/* Walks the guard program: this runs on every call.
 *
 * No step runs Python code, releases the GIL or leaves an exception set: a load that fails is a failed
 * guard.
 */
#include "capture.h"

#include <string.h>

int constant_supported(PyObject *object) {
    if (PyTuple_CheckExact(object)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++)
            if (!constant_supported(PyTuple_GET_ITEM(object, i))) return 0;
        return 1;
    }
    return object == Py_None || object == Py_Ellipsis || PyBool_Check(object) || PyLong_CheckExact(object) ||
           PyFloat_CheckExact(object) || PyComplex_CheckExact(object) || PyUnicode_CheckExact(object) ||
           PyBytes_CheckExact(object);
}

int constant_equal(PyObject *left, PyObject *right) {
    if (left == right) return 1;
    PyTypeObject *type = Py_TYPE(left);
    if (type != Py_TYPE(right)) return 0;
    if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type) {
        int equal = PyObject_RichCompareBool(left, right,
                                             Py_EQ); /* of exact builtin types: no Python code, no error */
        return equal == 1;
    }
    if (type == &PyFloat_Type)
        return memcmp(&((PyFloatObject *)left)->ob_fval, &((PyFloatObject *)right)->ob_fval,
                      sizeof(double)) == 0;
    if (type == &PyComplex_Type)
        return memcmp(&((PyComplexObject *)left)->cval, &((PyComplexObject *)right)->cval,
                      sizeof(Py_complex)) == 0;
    if (type != &PyTuple_Type || PyTuple_GET_SIZE(left) != PyTuple_GET_SIZE(right)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(left); i++)
        if (!constant_equal(PyTuple_GET_ITEM(left, i), PyTuple_GET_ITEM(right, i))) return 0;
    return 1;
}

/* Sequence types, besides lists and tuples, whose C code runs no Python and which hold their items. */
enum { SEQUENCE_TYPES = 8 };
static PyTypeObject *sequence_types[SEQUENCE_TYPES];
static int sequence_type_count;

static int is_sequence(PyObject *object) {
    for (int i = 0; i < sequence_type_count; i++)
        if (Py_IS_TYPE(object, sequence_types[i])) return 1;
    return 0;
}

PyObject *add_sequence_type(PyObject *Py_UNUSED(module), PyObject *type) {
    if (!PyType_Check(type) || ((PyTypeObject *)type)->tp_as_sequence == NULL ||
        ((PyTypeObject *)type)->tp_as_sequence->sq_length == NULL || sequence_type_count == SEQUENCE_TYPES)
        return PyErr_Format(PyExc_TypeError, "no sequence type, or one too many: %R", type);
    sequence_types[sequence_type_count++] = (PyTypeObject *)Py_NewRef(type);
    Py_RETURN_NONE;
}

static PyObject *load_item(PyObject *object, Py_ssize_t index) {
    if (is_sequence(object)) {
        PyObject *item = PySequence_GetItem(object, index);
        if (item == NULL) PyErr_Clear();
        Py_XDECREF(item); /* the sequence holds it */
        return item;
    }
    Py_ssize_t size = PyTuple_Check(object) || PyList_Check(object) ? Py_SIZE(object) : 0;
    if (index < 0) index += size;
    if (index < 0 || index >= size) return NULL;
    return PyTuple_Check(object) ? PyTuple_GET_ITEM(object, index) : PyList_GET_ITEM(object, index);
}

/* The key of a dictionary, borrowed; NULL if it is a tensor that was freed. */
static inline PyObject *guard_key(const Step *step) {
    PyObject *key = step->weak ? weakref_object(step->object) : step->object;
    return step->weak && key == Py_None ? NULL : key;
}

static PyObject *load_key(const Step *step, PyObject *dict) {
    PyObject *key = guard_key(step);
    return key && PyDict_Check(dict) ? guard_dict_find(dict, key, step->number) : NULL;
}

static PyObject *or_none(PyObject *object) { return object ? object : Py_None; }

static PyObject *function_part(StepKind kind, PyObject *object) {
    if (!PyFunction_Check(object)) return NULL;
    PyFunctionObject *function = (PyFunctionObject *)object;
    switch (kind) {
    case STEP_FUNC_CLOSURE:
        return or_none(function->func_closure);
    case STEP_FUNC_DEFAULTS:
        return or_none(function->func_defaults);
    case STEP_FUNC_KWDEFAULTS:
        return or_none(function->func_kwdefaults);
    case STEP_FUNC_CODE:
        return function->func_code;
    default:
        return function->func_globals;
    }
}

/* The object and the position of a builtin iterator, from its `__reduce__`; a new reference. */
static PyObject *iterator_state(PyObject *iterator) {
    static PyTypeObject *const types[] = {&PyListIter_Type,     &PyListRevIter_Type, &PyTupleIter_Type,
                                          &PyRangeIter_Type,    &PyDictIterKey_Type, &PyDictIterValue_Type,
                                          &PyDictIterItem_Type, &PySetIter_Type};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(types); i++) {
        if (!Py_IS_TYPE(iterator, types[i])) continue;
        PyObject *state = PyObject_CallMethod(iterator, "__reduce__", NULL);
        if (state == NULL) PyErr_Clear();
        return state;
    }
    return NULL;
}

static PyObject *load(const Step *step, const Call *call, PyObject **values) {
    PyObject *parent = step->kind > STEP_OBJECT ? values[step->parent] : NULL;
    switch (step->kind) {
    case STEP_ARG:
        return step->number < call->slot_count ? call->slots[step->number] : NULL;
    case STEP_CELL: {
        PyObject *closure = call->function->func_closure;
        if (closure == NULL || step->number >= PyTuple_GET_SIZE(closure)) return NULL;
        return PyCell_GET(PyTuple_GET_ITEM(closure, step->number));
    }
    case STEP_GLOBALS:
        return call->function->func_globals;
    case STEP_OBJECT:
        return step->object;
    case STEP_ATTR:
        return guard_load_attr(parent, step->object);
    case STEP_DICT:
        return guard_dict_of(parent);
    case STEP_CLASS:
        return (PyObject *)Py_TYPE(parent);
    case STEP_ITEM:
        return load_item(parent, step->number);
    case STEP_KEY:
        return load_key(step, parent);
    case STEP_CLASS_ORDER:
        return guard_class_order(parent);
    case STEP_CLASS_ATTR:
        return guard_class_lookup(parent, step->object);
    case STEP_STATE:
        return iterator_state(parent);
    case STEP_CELL_CONTENTS:
        return PyCell_Check(parent) ? PyCell_GET(parent) : NULL;
    case STEP_PROXIED:
        return Py_IS_TYPE(parent, &PyDictProxy_Type) ? proxied_mapping(parent) : NULL;
    case STEP_METHOD_SELF:
        return PyMethod_Check(parent) ? PyMethod_GET_SELF(parent) : NULL;
    case STEP_METHOD_FUNC:
        return PyMethod_Check(parent) ? PyMethod_GET_FUNCTION(parent) : NULL;
    case STEP_CACHED:
        return cached_result(parent);
    case STEP_REFERENT:
        return PyWeakref_CheckRef(parent) ? weakref_living(parent) : NULL;
    default:
        return function_part(step->kind, parent);
    }
}

/* Whether the pinned object is `object`. A weak reference whose object died holds None, which itself is
 * never held weakly. */
static inline int pinned(const Step *step, PyObject *object) {
    if (!step->weak) return step->object == object;
    return weakref_object(step->object) == object && object != Py_None;
}

Py_ssize_t guard_length_of(PyObject *object) {
    if (PyList_Check(object) || PyTuple_Check(object)) return Py_SIZE(object);
    if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
    if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
    return is_sequence(object) ? Py_TYPE(object)->tp_as_sequence->sq_length(object) : -1;
}

static int length_is(PyObject *object, Py_ssize_t length) {
    Py_ssize_t own = PyUnicode_Check(object) ? PyUnicode_GET_LENGTH(object) : guard_length_of(object);
    return own == length;
}

static int key_is(PyObject *key, PyObject *expected) {
    return key == expected || (constant_supported(expected) && constant_equal(key, expected));
}

/* Whether a set has exactly these members, and iterates over them in this order. */
static int members_are(const Step *step, PyObject *set) {
    if (!PyAnySet_CheckExact(set) || PySet_GET_SIZE(set) != PyTuple_GET_SIZE(step->object)) return 0;
    PyObject *members = PySequence_List(set);
    int same = members != NULL;
    for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(members); i++)
        same = key_is(PyList_GET_ITEM(members, i), PyTuple_GET_ITEM(step->object, i));
    Py_XDECREF(members);
    PyErr_Clear();
    return same;
}

/* An OrderedDict keeps its own order, which the iteration of dict does not use. */
static int ordered_keys_are(PyObject *dict, PyObject *expected) {
    int is_plain = Py_TYPE(dict)->tp_iter == PyODict_Type.tp_iter; /* iterating runs no Python */
    PyObject *keys = is_plain ? PySequence_List(dict) : NULL;
    int same = keys && PyList_GET_SIZE(keys) == PyTuple_GET_SIZE(expected);
    for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(keys); i++)
        same = key_is(PyList_GET_ITEM(keys, i), PyTuple_GET_ITEM(expected, i));
    Py_XDECREF(keys);
    PyErr_Clear();
    return same;
}

static int keys_are(const Step *step, PyObject *dict) {
    if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(step->object)) return 0;
    if (PyODict_Check(dict)) return ordered_keys_are(dict, step->object);
    Py_ssize_t at = 0, i = 0;
    PyObject *key;
    while (PyDict_Next(dict, &at, &key, NULL))
        if (!key_is(key, PyTuple_GET_ITEM(step->object, i++))) return 0;
    return 1;
}

int guard_extent(const Step *step, PyObject *object, uintptr_t *low, uintptr_t *high) {
    if (step->kind == CHECK_NO_OVERLAP) return tensor_extent(object, low, high);
    *low = (uintptr_t)object;
    *high = *low + 1;
    return 1;
}

/* Sorts the nodes by address, starting from the order of the last call, which rarely changes. */
static int no_overlap(const Step *step, PyObject **values) {
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
        apart = guard_extent(step, values[node], &extent.low, &extent.high);
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

static inline int check(const Step *step, PyObject **values) {
    PyObject *object = values[step->node];
    switch (step->kind) {
    case CHECK_TYPE:
        return pinned(step, (PyObject *)Py_TYPE(object));
    case CHECK_IS:
        return pinned(step, object);
    case CHECK_EQUAL:
        return constant_equal(object, step->object);
    case CHECK_LENGTH:
        if (!length_is(object, step->number)) return 0;
        if (step->object) guard_known_length(step);
        return 1;
    case CHECK_KEYS:
        return keys_are(step, object);
    case CHECK_MEMBERS:
        return members_are(step, object);
    case CHECK_NO_KEY:
        return PyDict_Check(object) &&
               (guard_key(step) == NULL || guard_dict_find(object, guard_key(step), step->number) == NULL);
    case CHECK_NO_CLASS_ATTR:
        return PyType_Check(object) && guard_class_lookup(object, step->object) == NULL;
    case CHECK_OFFSET:
        return tensor_offset_is(object, step->number);
    case CHECK_OFFSET_MULTIPLE:
        return tensor_offset_divides(object, step->number);
    case CHECK_ACCUMULATES:
        return tensor_accumulates(object);
    case CHECK_HISTORY:
        return tensor_has_history(object);
    case CHECK_UNCHANGED:
        return tensor_unchanged(step->object, step->number, object);
    case CHECK_OUTCOME:
        return guard_outcome(step, values);
    case CHECK_SIZES:
        return guard_sizes(step, values);
    case CHECK_NEW_LENGTH:
        return guard_new_length(step, object);
    case CHECK_RETURNS:
        return guard_returns(object, step->object);
    case CHECK_SUBCLASS:
        return 1; /* checked before the loads: see guard_subclass_holds */
    case CHECK_SAME:
        return object == values[step->parent];
    case CHECK_DIFFERENT:
        return object != values[step->parent];
    case CHECK_TENSOR:
        return tensor_matches(step->tensor, object);
    default:
        return no_overlap(step, values);
    }
}

/* Whether the step passes; a load stores its object in `values`. */
static inline int run_step(const Step *step, const Call *call, PyObject **values) {
    if (step->kind > STEP_LAST_LOAD) return check(step, values);
    PyObject *value = load(step, call, values);
    values[step->node] = value;
    return value != NULL;
}

static void forget_fresh(Guards *guards, PyObject **values) {
    for (Py_ssize_t i = 0; i < guards->fresh_count; i++) values[guards->fresh_nodes[i]] = NULL;
}

Py_ssize_t guards_walk(Guards *guards, const Call *call, PyObject **values) {
    forget_fresh(guards, values);
    if (guards->global_state && !global_state_matches(guards->global_state)) return GUARDS_GLOBAL_STATE;
    for (Py_ssize_t i = 0; i < guards->step_count; i++)
        if (guards->steps[i].kind == CHECK_SUBCLASS && !guard_subclass_holds(&guards->steps[i])) return i;
    for (Py_ssize_t i = 0; i < guards->step_count; i++)
        if (!run_step(&guards->steps[i], call, values)) return i;
    return GUARDS_PASS;
}

void guards_release(Guards *guards, PyObject **values) {
    for (Py_ssize_t i = 0; i < guards->fresh_count; i++) Py_CLEAR(values[guards->fresh_nodes[i]]);
}

/* --- the short walk --- */

/* The version of the object that a section reads; 0 if it has none. */
static inline uint64_t version_of(PyObject *object) {
    if (PyDict_Check(object)) return dict_version(object);
    return PyType_Check(object) ? type_version((PyTypeObject *)object) : 0;
}

static int run_section(Guards *guards, Move *move, PyObject *of, const Call *call) {
    const int32_t *numbers = guards->sections->order + move->first;
    move->version = 0;
    for (int32_t i = 0; i < move->count; i++)
        if (!run_step(&guards->steps[numbers[i]], call, guards->sections->values)) return 0;
    /* Looking up an attribute gives a class a version. No step lets other code run meanwhile. */
    move->version = of ? version_of(of) : 1;
    return 1;
}

static inline int section_holds(Guards *guards, Move *move, PyObject *of, const Call *call) {
    uint64_t version = of ? version_of(of) : 1;
    return (version && version == move->version) || run_section(guards, move, of, call);
}

static inline int make_move(Guards *guards, Move *move, const Call *call, PyObject **values) {
    switch ((MoveKind)move->kind) {
    case MOVE_SUBCLASS:
        return guard_subclass_holds(&guards->steps[move->first]);
    case MOVE_STEP:
        return run_step(&guards->steps[move->first], call, values);
    case MOVE_SECTION:
        return section_holds(guards, move, move->node < 0 ? NULL : values[move->node], call);
    case MOVE_INSTANCE:
        if ((PyObject *)Py_TYPE(values[move->node]) != weakref_object(move->type)) return 0;
        /* fall through */
    case MOVE_DICT: {
        PyObject *dict = values[move->dict] = guard_dict_of(values[move->node]);
        return dict && (move->count == 0 || section_holds(guards, move, dict, call));
    }
    case MOVE_LENGTH:
        return PyDict_GET_SIZE(values[move->node]) == move->length;
    case MOVE_TENSOR:
        return tensor_matches(move->tensor, values[move->node]);
    }
    Py_UNREACHABLE();
}

static int short_walk(Guards *guards, const Call *call) {
    Sections *sections = guards->sections;
    PyObject **values = sections->values;
    for (Move *move = sections->moves, *end = move + sections->move_count; move < end; move++)
        if (!make_move(guards, move, call, values)) return 0;
    return 1;
}

/* For a walk inside a walk, which a finalizer may start: it does not use `sections`. */
static int pass_apart(Guards *guards, const Call *call, PyObject **slots) {
    PyObject **values = PyMem_Calloc(guards_node_count(guards) + 1, sizeof *values);
    if (values == NULL) return 0;
    int passed = guards_walk(guards, call, values) == GUARDS_PASS;
    for (Py_ssize_t i = 0; passed && i < guards->slot_count; i++)
        slots[i] = Py_NewRef(values[guards->slot_nodes[i]]);
    guards_release(guards, values);
    PyMem_Free(values);
    return passed;
}

int guards_pass(Guards *guards, const Call *call, PyObject **slots) {
    if (guards->global_state && !global_state_matches(guards->global_state)) return 0;
    if (guards->sections == NULL && (guards->sections = sections_new(guards)) == NULL) {
        PyErr_Clear();
        return 0;
    }
    Sections *sections = guards->sections;
    if (sections->busy) return pass_apart(guards, call, slots);
    sections->busy = 1;
    PyObject **values = sections->values;
    forget_fresh(guards, values);
    int passed = short_walk(guards, call);
    for (Py_ssize_t i = 0; passed && i < guards->slot_count; i++)
        slots[i] = Py_NewRef(values[guards->slot_nodes[i]]);
    guards_release(guards, values);
    sections->busy = 0;
    return passed;
}
