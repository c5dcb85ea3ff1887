/* Walks the guard program: this runs on every call.
 *
 * No step runs Python code, releases the GIL or leaves an exception set: a load that fails is a failed
 * guard.
 */
#include "guard.h"

/* Whether the step passes; a load stores its object in `values`. */
static inline int run_step(const Step *step, const Call *call, PyObject **values) {
    const GuardKind *kind = step->kind;
    if (kind->check) return kind->check(step, values[step->node], values);
    PyObject *value = kind->load(step, values[step->parent], call); /* a root ignores the parent */
    values[step->node] = value;
    return value != NULL;
}

static void forget_fresh(Guards *guards, PyObject **values) {
    for (Py_ssize_t i = 0; i < guards->fresh_count; i++) values[guards->fresh_nodes[i]] = NULL;
}

static Py_ssize_t walk(Guards *guards, const Call *call, PyObject **values) {
    for (Py_ssize_t i = 0; i < guards->step_count; i++)
        if (guards->steps[i].kind->move == MOVE_SUBCLASS && !guard_subclass_holds(&guards->steps[i]))
            return i;
    for (Py_ssize_t i = 0; i < guards->step_count; i++)
        if (!run_step(&guards->steps[i], call, values)) return i;
    return GUARDS_PASS;
}

Py_ssize_t guards_walk(Guards *guards, const Call *call, PyObject **values) {
    forget_fresh(guards, values);
    if (guards->global_state && !global_state_matches(guards->global_state)) return GUARDS_GLOBAL_STATE;
    int were_on = guards->overridden && functions_turn_off();
    Py_ssize_t failed = walk(guards, call, values);
    functions_turn_back(were_on);
    return failed;
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
        return run_step(move->step, call, values);
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
    case MOVE_ARG:
        if (move->position >= call->slot_count) return 0;
        values[move->node] = call->slots[move->position];
        return values[move->node] != NULL;
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
    int were_on = guards->overridden && functions_turn_off();
    int passed = short_walk(guards, call);
    functions_turn_back(were_on);
    for (Py_ssize_t i = 0; passed && i < guards->slot_count; i++)
        slots[i] = Py_NewRef(values[guards->slot_nodes[i]]);
    guards_release(guards, values);
    sections->busy = 0;
    return passed;
}

PyObject *guards_explain(Guards *guards, const Call *call) {
    PyObject **values = PyMem_Calloc(guards_node_count(guards) + 1, sizeof *values);
    if (values == NULL) return PyErr_NoMemory();
    Py_ssize_t failed = guards_walk(guards, call, values);
    PyObject *text;
    if (failed == GUARDS_PASS)
        text = Py_NewRef(Py_None);
    else if (failed == GUARDS_GLOBAL_STATE)
        text = global_state_difference(guards->global_state);
    else {
        int were_on = functions_turn_off();
        text = guard_failure(guards, &guards->steps[failed], values);
        functions_turn_back(were_on);
    }
    guards_release(guards, values);
    PyMem_Free(values);
    if (text == NULL && !PyErr_Occurred()) text = Py_NewRef(Py_None);
    return text;
}
