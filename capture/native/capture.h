/* Shared declarations of the C half: the guard program, the compiled entry, and the call that both
 * inspect.
 *
 * Ownership: a field holds a strong reference unless its comment says otherwise.
 */
#ifndef FRAMELOOM_CAPTURE_H
#define FRAMELOOM_CAPTURE_H

#include "compat.h"

#include <string.h>

/* One call as guards see it; all references are borrowed from the caller. */
typedef struct {
    PyObject *const *slots; /* bound arguments in the order of localsplus */
    Py_ssize_t slot_count;
    PyFunctionObject *function; /* gives globals and closure */
} Call;

/* --- tensor_check.c: checks of the header of a tensor --- */
typedef struct TensorSpec TensorSpec;
TensorSpec *tensor_spec_new(PyObject *tensor); /* NULL with an exception set */
void tensor_spec_free(TensorSpec *spec);
int tensor_spec_traverse(TensorSpec *spec, visitproc visit, void *arg);
int tensor_matches(const TensorSpec *spec, PyObject *object);
PyObject *tensor_spec_text(const TensorSpec *spec); /* "tensor float32 [4, 8]" */
/* The same for another object; names the differences. */
PyObject *tensor_text(const TensorSpec *spec, PyObject *object);
enum { SIZE_DIMENSION, SIZE_STRIDE };
/* Reads a size or stride; returns 0 if there is none, or if it is not known how to read it. */
int tensor_size(PyObject *object, int what, int64_t dimension, int64_t *value);
/* Whether its storage offset, in elements, is this number, or a multiple of it. */
int tensor_offset_is(PyObject *object, int64_t offset);
int tensor_storage_is(PyObject *object, int64_t bytes); /* whether its storage has that size */
int tensor_offset_divides(PyObject *object, int64_t by);
/* Whether autograd accumulates gradients in its `grad`. */
int tensor_accumulates(PyObject *object);
PyObject *accumulates(PyObject *module, PyObject *object); /* for Python */
/* Whether it holds an autograd history. If the base of a view got one since, autograd makes the view's
 * history only when it is read. */
int tensor_has_history(PyObject *object);
PyObject *tensor_layout(PyObject *module, PyObject *args); /* for Python */
PyObject *tensors_where(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *tensors_lie(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
/* Bytes that a tensor spans: [*low, *high).  0 if `object` is not a tensor whose memory can be located. */
int tensor_extent(PyObject *object, uintptr_t *low, uintptr_t *high);

/* --- tensor_version.c: whether a tensor was written to --- */
/* Writes to `tensor`. `others`: tensors that are no views of it, up to a NULL. */
void tensor_version_calibrate(PyObject *tensor, PyObject *const *others);
int tensor_versions_known(void);
PyObject *tensors_written(PyObject *module, PyObject *args); /* for Python */
int64_t tensor_version(PyObject *object); /* number of writes to it; -1 if they are not counted */
/* Whether `object` is the tensor that `alias` was made from by `detach` at this version, with the same
 * values. */
int tensor_unchanged(PyObject *alias, int64_t version, PyObject *object);

/* --- tensor_accumulator.c: hooks where autograd adds up the gradients of a leaf --- */
void tensor_accumulator_calibrate(void);
/* Whether its AccumulateGrad node has hooks; 1 if that is unknown. */
int tensor_accumulator_hooked(PyObject *object);
PyObject *accumulator_hooked(PyObject *module, PyObject *object); /* for Python */

/* --- silent_end.c: whether the end of an object shows --- */
int object_ends_silently(PyObject *object, Py_ssize_t held);
int items_end_silently(PyObject *object);
int attribute_ends_silently(PyObject *object, PyObject *name, Py_ssize_t held);
PyObject *stored_ends_silently(PyObject *module, PyObject *args); /* for Python */
PyObject *ends_silently(PyObject *module, PyObject *object);      /* for Python */

/* --- torch_header.c: offsets in PyTorch's structures, measured once --- */
typedef struct { /* an attribute of a tensor that a C function computes */
    const char *name;
    getter get;
    void *closure;
} TensorFlag;
typedef struct {
    int raw; /* the offsets below are valid; else tensors are read through their attributes */
    int keys, dtype, ndim, sizes, strides, storage, storage_offset, autograd_meta;
    int storage_data;  /* offset of the data pointer in a storage */
    int storage_bytes; /* offset of the size in a storage; -1 unknown */
    int requires_grad; /* offset of the flag in the autograd data; -1 unknown */
    int history;       /* offset of the history's node in the autograd data; -1 unknown */
    PyTypeObject *tensor_type;
    PyObject *torch; /* the module */
    TensorFlag requires_grad_flag, is_leaf_flag;
    int item_size[64]; /* by scalar type code; 0 unknown */
} TorchHeader;
extern TorchHeader torch_header;
/* Measures at the first call; 0, or -1 with an exception set (PyTorch cannot be imported). */
int torch_header_ready(void);
PyObject *torch_c(const char *name);                       /* torch._C.<name>, a new reference */
PyObject *torch_ask(const char *name, PyObject *argument); /* calls it; `argument` may be NULL */
/* The attribute at `path` ("a.b()" means: get a, then call b), a new reference; and as an integer, -1 with an
 * exception on failure. */
PyObject *attribute_at(PyObject *object, const char *path);
int64_t number_at(PyObject *object, const char *path);
int64_t dispatch_keys(PyObject *tensor); /* -1 with an exception on failure */

enum { OBJECT_IMPL = 16 }; /* offset of the pointer to a tensor's header in the object */
static inline const char *impl_of(PyObject *tensor) { return *(char **)((char *)tensor + OBJECT_IMPL); }
static inline int64_t word(const char *at) {
    int64_t value;
    memcpy(&value, at, 8);
    return value;
}
static inline int32_t half_word(const char *at) {
    int32_t value;
    memcpy(&value, at, 4);
    return value;
}
static inline const char *pointer(const char *at) { return (const char *)(uintptr_t)word(at); }

/* --- global_state.c --- */
typedef struct GlobalState GlobalState;
GlobalState *global_state_new(void);
void global_state_free(GlobalState *state);
int global_state_traverse(GlobalState *state, visitproc visit, void *arg);
int global_state_matches(const GlobalState *state);
PyObject *compile_stance(PyObject *module, PyObject *ignored); /* for Python: what set_stance was told */
/* Makes PyTorch ignore the __torch_function__ of classes, so that reading a tensor runs no Python code; the
 * result is the argument of functions_turn_back. */
int functions_turn_off(void);
void functions_turn_back(int was_on);
PyObject *global_state_difference(const GlobalState *state); /* in words; NULL without exception if none */

/* --- guard.h: the guards of one entry --- */
typedef struct Guards Guards;
extern PyTypeObject Guards_Type, Lengths_Type;
/* Whether all guards pass, by the short walk. Then `slots` receives owned references to the plan's inputs.
 */
int guards_pass(Guards *guards, const Call *call, PyObject **slots);
PyObject *guards_explain(Guards *guards,
                         const Call *call); /* the first failing check in words, None if all pass */
/* Whether guards read its items: add_sequence_type has added its type. */
int guard_is_sequence(PyObject *object);
/* The length of a container, read without running Python code; -1 for other objects. */
Py_ssize_t guard_length_of(PyObject *object);
PyObject *add_sequence_type(PyObject *module, PyObject *type);
/* For Python: the kinds of loads, and the operations of conditions on sizes. */
int guards_add_loads(PyObject *module);
int guards_add_size_ops(PyObject *module);

/* --- entry.c --- */
typedef enum { ENTRY_DIRECT, ENTRY_CODE, ENTRY_PLAIN } EntryKind;
typedef struct Recipe Recipe;
typedef struct {
    PyObject_HEAD
    EntryKind kind;
    Guards *guards;
    PyObject *target; /* the plan, the function of the rewritten code, or the reason to run as plain Python */
    Recipe *recipe;
    Py_ssize_t calls;
    char varies; /* whether it serves several shapes */
} Entry;
extern PyTypeObject Entry_Type;

typedef enum { TRIED_MISS, TRIED_DONE, TRIED_CODE, TRIED_PLAIN } Tried;
/* Checks the guards. A direct entry runs at once: *result is its result (NULL: an exception), and
 * TRIED_DONE is returned. */
Tried entry_try(Entry *entry, const Call *call, PyObject **result);
/* Tries the entries of a tuple from the last to the first; *entry is the last one that was tried, borrowed.
 */
Tried entries_try(PyObject *entries, const Call *call, Entry **entry, PyObject **result);
/* A new tuple that has `entry`, too, as its first or its last item; `entries` may be NULL. */
PyObject *entries_with(PyObject *entries, Entry *entry, int first);

/* --- bind.c --- */
#define BOUND_ON_STACK 32
typedef struct {
    PyObject **slots; /* in the order of localsplus */
    Py_ssize_t count;
    int owned; /* the slots are strong references, and the array may have to be freed */
    PyObject *room[BOUND_ON_STACK];
} Bound;
/* 1: bound (release afterwards), 0: the arguments do not fit, -1: exception. `names` may be NULL; its
 * values follow `args`. */
int bind_arguments(PyFunctionObject *function, PyObject *const *args, Py_ssize_t nargs, PyObject *names,
                   Bound *bound);
void bound_release(Bound *bound);
PyObject *call_slots(const Call *call); /* new tuple */

/* --- jit_function.c --- */
extern PyTypeObject JitFunction_Type;
extern PyObject *RunPlainly;

/* --- hook.c --- */
extern __thread int calls_suspended; /* jitted calls of this thread run as plain Python */
int hook_setup(PyObject *module);
const char *hook_unsupported(void); /* NULL: this interpreter is supported */
void hook_leave_code_alone(PyCodeObject *code);
void hook_enter(void);
void hook_exit(void);
/* Enters the hook for Python code that a jitted function runs (owner is borrowed); returns the argument
 * for hook_end. */
PyObject *hook_begin(PyObject *owner);
void hook_end(PyObject *previous);
int hook_has_callback(void);
/* The first argument of this thread's current function, borrowed, if its code is `code`, which does not
 * change this argument; else NULL. */
PyObject *hook_first_argument(PyObject *code);
/* This thread's next frame of this code runs unchanged; `code` is borrowed and only compared. */
void hook_pass_next(PyObject *code);
/* Whether the callback is not asked for frames of this thread that have no entry; returns the previous
 * setting. */
int hook_ask_nothing(int yes);

#endif
