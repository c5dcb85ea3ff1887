/* Finds the steps of a guard program that need not run at every call.
 *
 * Every version of a dictionary, or of a class, is a number that no other one ever has. So a check holds
 * as long as the version of one dictionary is the same if it depends only on the contents of this
 * dictionary: values under known keys, and immutable properties of these values. Such steps form a
 * *section* of that dictionary. The dictionary holds the values, so they stay alive and the same. This
 * applies to attributes of a class, too.
 *
 * Everything that can change without a change of a dictionary is checked at every call: the dictionary and
 * the class of an instance, lists, cells, parts of functions, tensors. Steps that read arguments come
 * first, because these differ most often.
 */
#include "guard.h"

enum { EACH_CALL = -1, ALWAYS = 0 }; /* instead of the number of a section */

typedef struct {
    const Guards *guards;
    Py_ssize_t nodes;
    PyTypeObject **types; /* by node: borrowed, the type that the guards require; NULL if none */
    int32_t *held;        /* by node: the section that determines which object it is; EACH_CALL, ALWAYS */
    int32_t *own;         /* by node: the section of this dictionary or class; 0 none */
    int32_t *owner;       /* by step: its section */
    char *near;           /* by node: reachable from the arguments without any section */
    int32_t *type_step;   /* by node: the check of its type at each call, -1 none */
    int32_t *dict_step;   /* by node: the load of its dictionary, -1 none */
    char *placed;         /* by step: whether it is already part of a move */
    int32_t sections;
    Sections *result;
    void *tables[8];
    size_t table_count;
} Sealing;

static int is_tuple(const Sealing *s, int32_t node) {
    return s->types[node] && PyType_IsSubtype(s->types[node], &PyTuple_Type);
}

static int32_t own_section(Sealing *s, int32_t node) {
    if (s->own[node] == 0) s->own[node] = ++s->sections;
    return s->own[node];
}

/* Whether the class of this class's objects cannot be changed by assignment. */
static int is_for_ever(PyTypeObject *type) {
    return PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE) && !PyType_IsSubtype(type, &PyModule_Type);
}

static int32_t owner_of(Sealing *s, const Step *step) {
    int32_t node = step->kind->load ? step->parent : step->node, held = s->held[node];
    PyTypeObject *type = s->types[node];
    switch (step->kind->holds) {
    case FOR_EVER:
        return ALWAYS;
    case WITH_OBJECT:
        return held;
    case WITH_TABLE:
        return own_section(s, node);
    case WITH_TUPLE:
        return is_tuple(s, node) ? held : EACH_CALL;
    case WITH_BOTH:
        return held == s->held[step->parent] ? held : EACH_CALL;
    case WITH_TYPE:
        if (type == NULL || !is_for_ever(type)) return EACH_CALL;
        return held == EACH_CALL && s->own[node] ? s->own[node] : held;
    case WITH_LENGTH:
        if (type && PyType_IsSubtype(type, &PyDict_Type) && s->own[node]) return s->own[node];
        return is_tuple(s, node) || type == &PyUnicode_Type ? held : EACH_CALL;
    case WITH_KEYS: /* the order of an OrderedDict is not part of its version */
        return type && !PyType_IsSubtype(type, &PyODict_Type) && s->own[node] ? s->own[node] : EACH_CALL;
    default:
        return EACH_CALL;
    }
}

/* Finds the types that the program requires, and the dictionaries of which more than the length is read. */
static void look_ahead(Sealing *s) {
    for (Py_ssize_t node = 0; node < s->nodes; node++) s->type_step[node] = s->dict_step[node] = -1;
    for (Py_ssize_t i = 0; i < s->guards->step_count; i++) {
        const Step *step = &s->guards->steps[i];
        if (step->kind->holds == WITH_TYPE) {
            PyObject *type = guard_intended(step);
            if (PyType_Check(type)) s->types[step->node] = (PyTypeObject *)type;
        } else if (step->kind->reads_dict) {
            own_section(s, step->kind->load ? step->parent : step->node);
        }
    }
}

static void find_owners(Sealing *s) {
    for (Py_ssize_t i = 0; i < s->guards->step_count; i++) {
        const Step *step = &s->guards->steps[i];
        const GuardKind *kind = step->kind;
        s->owner[i] = owner_of(s, step);
        if (kind->check) {
            if (s->owner[i] == EACH_CALL && kind->holds == WITH_TYPE) s->type_step[step->node] = (int32_t)i;
            continue;
        }
        s->held[step->node] = s->owner[i];
        if (kind->type) s->types[step->node] = kind->type;
        if (kind->move == MOVE_DICT) s->dict_step[step->parent] = (int32_t)i;
        s->near[step->node] =
            kind->root ? kind->move == MOVE_ARG
                       : s->near[step->parent] && s->owner[i] == EACH_CALL && kind->move != MOVE_DICT;
    }
}

static int is_near(const Sealing *s, Py_ssize_t i) {
    const Step *step = &s->guards->steps[i];
    if (s->owner[i] != EACH_CALL || step->kind->many || !s->near[step->node]) return 0;
    return step->kind->holds != WITH_BOTH || s->near[step->parent];
}

static int is_dict(const Sealing *s, int32_t node) {
    return s->types[node] && is_for_ever(s->types[node]) && PyType_IsSubtype(s->types[node], &PyDict_Type);
}

/* The section's move if it has not been taken yet, else one without steps. `sections`: moves by section. */
static Move take_section(Move *sections, int32_t section) {
    Move move = sections[section];
    sections[section].count = 0;
    return move;
}

/* The dictionary of an instance, its class and the dictionary's own section in one move. */
static Move instance_move(Sealing *s, int32_t node, Move *sections) {
    const Step *load = &s->guards->steps[s->dict_step[node]];
    int32_t section = s->own[load->node];
    Move move = section ? take_section(sections, section) : (Move){0};
    move.kind = MOVE_DICT;
    move.node = node;
    move.dict = load->node;
    s->placed[s->dict_step[node]] = 1;
    int32_t check = s->type_step[node];
    if (check >= 0 && !s->placed[check] && s->guards->steps[check].weak) {
        move.kind = MOVE_INSTANCE;
        move.type = s->guards->steps[check].object;
        s->placed[check] = 1;
    }
    return move;
}

static Move plain_move(Sealing *s, int32_t i) {
    const Step *step = &s->guards->steps[i];
    s->placed[i] = 1;
    if (step->kind->move == MOVE_TENSOR)
        return (Move){.kind = MOVE_TENSOR, .node = step->node, .tensor = step->tensor};
    if (step->kind->move == MOVE_ARG)
        return (Move){.kind = MOVE_ARG, .node = step->node, .position = step->number};
    return (Move){.kind = MOVE_STEP, .step = step};
}

static Move step_move(Sealing *s, int32_t i, Move *sections) {
    const Step *step = &s->guards->steps[i];
    if (step->kind->move == MOVE_DICT) return instance_move(s, step->parent, sections);
    if (step->kind->holds == WITH_TYPE && s->dict_step[step->node] >= 0 &&
        !s->placed[s->dict_step[step->node]])
        return instance_move(s, step->node, sections);
    s->placed[i] = 1;
    if (step->kind->move == MOVE_LENGTH && is_dict(s, step->node) && s->held[step->node] != EACH_CALL)
        return (Move){.kind = MOVE_LENGTH, .node = step->node, .length = step->number};
    return plain_move(s, i);
}

/* Makes one move for each step that runs at each call, and one for each section, at the place of its first
 * step. */
static void lay_out(Sealing *s, Move *sections) {
    Move *move = s->result->moves;
    int32_t steps = (int32_t)s->guards->step_count;
    for (int32_t i = 0; i < steps; i++) {
        if (s->guards->steps[i].kind->move != MOVE_SUBCLASS) continue;
        s->placed[i] = 1;
        *move++ = (Move){.kind = MOVE_SUBCLASS, .first = i};
    }
    for (int32_t i = 0; i < steps; i++) {
        if (is_near(s, i)) *move++ = plain_move(s, i);
    }
    for (int32_t i = 0; i < steps; i++) {
        int32_t owner = s->owner[i];
        if (owner != EACH_CALL && sections[owner].count)
            *move++ = take_section(sections, owner);
        else if (owner == EACH_CALL && !s->placed[i])
            *move++ = step_move(s, i, sections);
    }
    s->result->move_count = move - s->result->moves;
}

/* Fills `order` with the numbers of the steps, section by section. */
static int gather(Sealing *s) {
    int32_t size = s->sections + 1, steps = (int32_t)s->guards->step_count, start = 0;
    Move *sections = PyMem_Calloc(size, sizeof *sections);
    if (sections == NULL) return -1;
    for (int32_t i = 0; i < steps; i++)
        if (s->owner[i] != EACH_CALL) sections[s->owner[i]].count++;
    for (int32_t k = 0; k < size; k++) {
        sections[k].kind = MOVE_SECTION;
        sections[k].node = -1;
        sections[k].first = start;
        start += sections[k].count;
        sections[k].count = 0;
    }
    for (Py_ssize_t node = 0; node < s->nodes; node++)
        if (s->own[node]) sections[s->own[node]].node = (int32_t)node;
    for (int32_t i = 0; i < steps; i++) {
        if (s->owner[i] == EACH_CALL) continue;
        Move *section = &sections[s->owner[i]];
        s->result->order[section->first + section->count++] = i;
    }
    lay_out(s, sections);
    PyMem_Free(sections);
    return 0;
}

/* Zeroed memory that is freed with `s`; NULL if there is no memory. */
static void *table(Sealing *s, size_t count, size_t size) {
    if (s->table_count == Py_ARRAY_LENGTH(s->tables)) return NULL;
    return s->tables[s->table_count++] = PyMem_Calloc(count + 1, size);
}

static int make_tables(Sealing *s) {
    size_t nodes = s->nodes, steps = s->guards->step_count;
    s->types = table(s, nodes, sizeof *s->types);
    s->held = table(s, nodes, sizeof *s->held);
    s->own = table(s, nodes, sizeof *s->own);
    s->near = table(s, nodes, 1);
    s->type_step = table(s, nodes, sizeof *s->type_step);
    s->dict_step = table(s, nodes, sizeof *s->dict_step);
    s->owner = table(s, steps, sizeof *s->owner);
    s->placed = table(s, steps, 1);
    s->result->moves = PyMem_Calloc(steps + 1, sizeof *s->result->moves);
    s->result->order = PyMem_Calloc(steps + 1, sizeof *s->result->order);
    s->result->values = PyMem_Calloc(nodes + 1, sizeof *s->result->values);
    int good = s->result->moves && s->result->order && s->result->values;
    for (size_t i = 0; i < s->table_count; i++) good = good && s->tables[i];
    return good;
}

Sections *sections_new(const Guards *guards) {
    Sealing s = {.guards = guards, .nodes = guards_node_count(guards)};
    s.result = PyMem_Calloc(1, sizeof *s.result);
    int good = s.result && make_tables(&s);
    if (good) {
        look_ahead(&s);
        find_owners(&s);
        good = gather(&s) == 0;
    }
    for (size_t i = 0; i < s.table_count; i++) PyMem_Free(s.tables[i]);
    if (good) return s.result;
    sections_free(s.result);
    PyErr_NoMemory();
    return NULL;
}

void sections_free(Sections *sections) {
    if (sections == NULL) return;
    PyMem_Free(sections->moves);
    PyMem_Free(sections->order);
    PyMem_Free(sections->values);
    PyMem_Free(sections);
}
