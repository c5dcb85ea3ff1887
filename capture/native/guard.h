/* Declarations of guards: what a kind of load or check is, the steps of a program, and the program.
 *
 * A kind is one row of a table, next to its functions: loads are in guard_loads.c, checks in
 * guard_objects.c, guard_containers.c, guard_tensors.c, guard_lengths.c, guard_numbers.c and
 * guard_sizes.c. No other file names it, except for the Python code that notes it.
 */
#ifndef FRAMELOOM_GUARDS_H
#define FRAMELOOM_GUARDS_H

#include "capture.h"

typedef struct GuardKind GuardKind;

/* Kept small: the guards of a model are hundreds of steps. */
typedef struct {
    const GuardKind *kind;
    int32_t node;      /* the node that is loaded, or checked */
    int32_t parent;    /* loads: the node it comes from.  "same", "different": the other node */
    Py_ssize_t number; /* position, length, or hash of `object` */
    PyObject *object;  /* key, name, constant, pinned object, tuple of keys, or Lengths; may be NULL */
    union {
        TensorSpec *tensor;
        Py_ssize_t *order; /* no overlap, distinct: `number` nodes, in the address order of the last call */
    };
    uint8_t weak; /* `object` is a weak reference to the intended object */
} Step;

/* How long a step holds once it passed. "Its object" is what a check tests, and what a load reads from. */
typedef enum {
    FOR_CALL,    /* it runs at every call */
    FOR_EVER,    /* it always holds */
    WITH_OBJECT, /* as long as its object is the same one */
    WITH_TABLE,  /* as long as its object, a dictionary or a class, has the same version */
    WITH_TUPLE,  /* as WITH_OBJECT if its object is a tuple */
    WITH_BOTH,   /* as long as its object and the node `parent` are the same ones */
    WITH_TYPE,   /* a check of the type */
    WITH_LENGTH, /* a check of the length */
    WITH_KEYS    /* a check of the keys in their order */
} Holds;

/* The short walk (see guard_sections.c) is a list of moves; frequent kinds of moves contain their data. */
typedef enum {
    MOVE_STEP,
    MOVE_SECTION,
    MOVE_INSTANCE,
    MOVE_DICT,
    MOVE_LENGTH,
    MOVE_TENSOR,
    MOVE_ARG,
    MOVE_SUBCLASS
} MoveKind;

/* A kind of load or check. Functions that are NULL have a default. None but `actual` and `failure` may run
 * Python code. */
struct GuardKind {
    const char *name;
    /* Stores the key of a load, or the value of a check; NULL: there is none. -1: an exception, or none if
     * the value has a wrong type. `nodes`: the number of nodes so far. */
    int (*take)(Step *step, PyObject *value, Py_ssize_t nodes);
    /* One of these, which run at each call. A load returns a borrowed reference, or a new one if it is
     * `fresh`; NULL without an exception. */
    PyObject *(*load)(const Step *step, PyObject *parent, const Call *call);
    int (*check)(const Step *step, PyObject *object, PyObject **values);
    Holds holds;
    MoveKind move;               /* how the short walk runs it if it runs at every call */
    char reads_dict;             /* its object is a dictionary whose contents it depends on */
    void (*release)(Step *step); /* frees what `take` made, except for `object` */
    int (*traverse)(Step *step, visitproc visit, void *arg);

    /* Loads. */
    char root;                           /* it comes from the call, not from a parent */
    char fresh;                          /* it makes a new reference */
    PyTypeObject *type;                  /* of what it loads, if that is always the same */
    const char *attribute;               /* the attribute that new code reads */
    PyObject *(*read)(PyObject *object); /* what new code calls, a new reference; by default `load` */
    const char *path;                    /* Python's format of the path, of the parent's path and the key */

    /* Checks. */
    char many;          /* it reads other nodes than `node` and `parent` */
    const char *demand; /* what must be true, as text after the path: a format of `subject`, or of `number` */
    PyObject *(*subject)(const Guards *guards, const Step *step);
    PyObject *(*actual)(const Step *step, PyObject *object);         /* by default its repr */
    PyObject *(*text)(const Guards *guards, const Step *step);       /* the whole sentence */
    PyObject *(*failure)(const Guards *, const Step *, PyObject **); /* the whole sentence */
    int (*stale)(const Step *step);                                  /* whether it can never pass any more */
};

/* Each ends with a row without a name. */
extern const GuardKind guard_loads[], guard_object_checks[], guard_container_checks[], guard_tensor_checks[],
    guard_length_checks[], guard_number_checks[], guard_size_checks[];
const GuardKind *guard_kind_named(const GuardKind *rows, PyObject *name); /* NULL if there is none */

typedef struct {
    int32_t kind;  /* MoveKind */
    int32_t node;  /* section: the dictionary or class, -1 if it never changes; else the node to check */
    int32_t dict;  /* instance, dict: the node of the dictionary of `node` */
    int32_t first; /* the section's first in `order`; subclass: the step */
    int32_t count; /* number of the section's steps */
    union {
        uint64_t version; /* at which the section's steps passed last, 0: none */
        Py_ssize_t length, position;
        const TensorSpec *tensor; /* borrowed from the step */
        const Step *step;
    };
    PyObject *type; /* instance: weak reference to its class, borrowed from the step */
} Move;

typedef struct {
    Move *moves;
    Py_ssize_t move_count;
    int32_t *order;    /* numbers of the steps of sections */
    PyObject **values; /* by node: the loaded object; only valid for nodes that this walk has visited */
    int busy;          /* whether a walk that uses `values` is running */
} Sections;

struct Guards {
    PyObject_HEAD
    Step *steps;
    Py_ssize_t step_count, step_room;
    PyObject *paths;        /* list: per node, its path in the terms of the user */
    Py_ssize_t *slot_nodes; /* the nodes that are inputs of the plan, in order */
    Py_ssize_t slot_count, slot_room;
    Py_ssize_t *fresh_nodes; /* the nodes whose load makes a new reference */
    Py_ssize_t fresh_count, fresh_room;
    GlobalState *global_state; /* NULL: not checked */
    Sections *sections;        /* NULL until the first call */
    int overridden;            /* whether reading one of the tensors could run a __torch_function__ */
};

#define GUARDS_PASS         (-1)
#define GUARDS_GLOBAL_STATE (-2)
static inline Py_ssize_t guards_node_count(const Guards *guards) { return PyList_GET_SIZE(guards->paths); }

/* --- guard_walk.c, guard_sections.c --- */
/* Walks all steps in the order of creation. `values` has room for every node and receives borrowed
 * references, except those of fresh_nodes, which are owned until guards_release. Returns GUARDS_PASS,
 * GUARDS_GLOBAL_STATE, or the number of the step that failed. */
Py_ssize_t guards_walk(Guards *guards, const Call *call, PyObject **values);
void guards_release(Guards *guards, PyObject **values);
Sections *sections_new(const Guards *guards); /* NULL with an exception set */
void sections_free(Sections *sections);

/* --- guard_lookup.c --- */
int constant_equal(PyObject *left, PyObject *right);
int constant_supported(PyObject *object);
/* Borrowed; NULL without an exception if nothing is found or if Python code would have to run. */
PyObject *guard_dict_find(PyObject *dict, PyObject *key, Py_hash_t hash);
PyObject *guard_load_attr(PyObject *object, PyObject *name); /* a new reference */
PyObject *guard_class_lookup(PyObject *class, PyObject *key);
PyObject *guard_class_order(PyObject *class);
extern PyObject *guard_no_attributes; /* the dictionary for all instances that have no attributes yet */
static inline PyObject *guard_dict_of(PyObject *object) { return instance_dict(object, guard_no_attributes); }

/* --- guard_loads.c --- */
PyObject *guard_key(const Step *step); /* borrowed; NULL if it is a tensor that was freed */
/* `take` for a key, an attribute of a class, a number, a tuple, and the number of a node. */
int guard_take_key(Step *step, PyObject *key, Py_ssize_t nodes);
int guard_take_class_key(Step *step, PyObject *key, Py_ssize_t nodes);
int guard_take_number(Step *step, PyObject *value, Py_ssize_t nodes);
int guard_take_tuple(Step *step, PyObject *value, Py_ssize_t nodes);
int guard_node_known(Py_ssize_t node, Py_ssize_t nodes);

/* --- guard_objects.c, guard_lengths.c, guard_tensors.c --- */
int guard_subclass_holds(Step *step);
void guard_known_length(const Step *step);
PyObject *guard_length_text(const Step *step, PyObject *object);
PyObject *guard_actual_tensor(const Step *step, PyObject *object); /* also for steps without a TensorSpec */

/* --- guard_text.c --- */
PyObject *guard_repr(PyObject *object);    /* shortened */
PyObject *guard_repr_of(PyObject *object); /* the same; steals `object`, which may be NULL */
PyObject *guard_identity_text(PyObject *object);
PyObject *guard_object_text(const Guards *guards, const Step *step); /* a `subject`: the repr of `object` */
PyObject *guard_format(const char *format, PyObject *text);          /* steals `text`, which may be NULL */
static inline PyObject *guard_path(const Guards *guards, Py_ssize_t node) {
    return PyList_GET_ITEM(guards->paths, node);
}
/* The object that a step compares with, borrowed. */
static inline PyObject *guard_intended(const Step *step) {
    return step->weak ? weakref_object(step->object) : step->object;
}
PyObject *guard_demand(const Guards *guards, const Step *step);
PyObject *guard_failure(const Guards *guards, const Step *step,
                        PyObject **values); /* of the step that failed */
PyObject *guards_texts(Guards *guards);

#endif
