/* The frame hook (PEP 523): compiled code for functions that a jitted function calls but does not inline.
 *
 * While a user has entered the hook, each fresh frame of an ordinary function is looked up: first the
 * entries of its code object are tried, then the frame callback is asked for one. A code entry swaps the
 * code of the frame in place, a direct entry ends the frame with the plan's result, and any other frame
 * runs unchanged. Generators and code that belongs to no function are never changed. If another tool has a
 * hook, it is called, too.
 */
#include "frame.h"

#include "capture.h"

/* What is known about a code object; freed with it. */
typedef struct {
    PyObject *entries; /* tuple, oldest first; may be NULL */
    int closed;        /* the callback is not asked any more */
    int quiet;         /* functions that its frames call run as plain Python, too */
} CodeState;

static struct {
    Py_ssize_t index;          /* of CodeState among a code object's extra data */
    PyObject *callback;        /* NULL: none */
    _PyFrameEvalFunction next; /* the evaluation function before ours */
    int left_behind;           /* another tool's hook calls ours */
    int users;                 /* over all threads */
    int complained;
} hook = {.index = -1};

__thread int calls_suspended;
static __thread int entered;         /* users in this thread */
static __thread int hook_off;        /* frames of this thread run unchanged, e.g. during compilation */
static __thread int depth;           /* of the frames that run unchanged */
static __thread int asks_nothing;    /* the callback is not asked for entries */
static __thread PyObject *pass_next; /* borrowed, only compared */
static __thread _PyInterpreterFrame *passed; /* the frame that the hook before ours has been given */
static __thread PyObject *owner; /* the jitted function whose Python runs; borrowed from its caller */

static void install(void);
static void uninstall(void);

/* Sets a flag of this thread; returns its previous value. */
static int swap(int *flag, int yes) {
    int previous = *flag;
    *flag = yes;
    return previous;
}

static void code_state_free(void *data) {
    CodeState *state = data;
    if (state == NULL) return;
    Py_XDECREF(state->entries);
    PyMem_Free(state);
}

static CodeState *code_state(PyObject *code) {
    void *extra = NULL;
    if (CODE_EXTRA_GET(code, hook.index, &extra) < 0) PyErr_Clear();
    return extra;
}

/* The state of the code, created if there is none; NULL with an exception set. */
static CodeState *code_state_make(PyObject *code) {
    CodeState *state = code_state(code);
    if (state) return state;
    state = PyMem_Calloc(1, sizeof *state);
    if (state == NULL) {
        PyErr_NoMemory();
    } else if (CODE_EXTRA_SET(code, hook.index, state) < 0) {
        PyMem_Free(state);
        state = NULL;
    }
    return state;
}

void hook_leave_code_alone(PyCodeObject *code) {
    CodeState *state = code_state_make((PyObject *)code);
    if (state)
        state->closed = 1;
    else
        PyErr_Clear();
}

/* Code entries keep only the new code here: a function would hold the globals and cells of the call that
 * it was made for. */
static int code_add_entry(PyObject *code, Entry *entry) {
    CodeState *state = code_state_make(code);
    if (state == NULL) return -1;
    if (entry->kind == ENTRY_CODE && PyFunction_Check(entry->target))
        Py_SETREF(entry->target, Py_NewRef(PyFunction_GET_CODE(entry->target)));
    PyObject *longer = entries_with(state->entries, entry, 0);
    if (longer == NULL) return -1;
    Py_XSETREF(state->entries, longer);
    return 0;
}

/* Asks the callback for an entry: new reference, NULL if the frame runs unchanged. Errors are printed
 * once.
 */
static Entry *ask_callback(PyObject *code, const Call *call) {
    PyObject *callback = Py_NewRef(hook.callback), *slots = call_slots(call), *answer = NULL;
    int was_off = swap(&hook_off, 1); /* the compiler's own frames run unchanged */
    if (slots) {
        PyThreadState *thread = PyThreadState_Get();
        PyThreadState_EnterTracing(thread); /* a debugger follows the program, not its compilation */
        answer = PyObject_CallFunctionObjArgs(callback, (PyObject *)call->function, slots, NULL);
        PyThreadState_LeaveTracing(thread);
    }
    Py_XDECREF(slots);
    int is_entry = answer && Py_IS_TYPE(answer, &Entry_Type), not_now = answer == Py_False;
    int quiet = answer == Py_True;
    if (answer && !is_entry && !not_now && !quiet && !Py_IsNone(answer))
        PyErr_Format(PyExc_TypeError, "the frame callback gave %R", answer);
    if (is_entry && code_add_entry(code, (Entry *)answer) < 0) is_entry = 0;
    if (PyErr_Occurred()) {
        int first = !hook.complained;
        hook.complained = 1;
        if (first) PyErr_WriteUnraisable(callback);
        PyErr_Clear();
    }
    hook_off = was_off;
    Py_DECREF(callback);
    if (is_entry) return (Entry *)answer;
    Py_XDECREF(answer);
    if (!not_now) hook_leave_code_alone((PyCodeObject *)code);
    CodeState *state = quiet ? code_state(code) : NULL;
    if (state) state->quiet = 1;
    return NULL;
}

/* Whether `code` can replace `old` in a frame: same arguments in the same slots, same free variables. */
static int same_frame_layout(const PyCodeObject *old, const PyCodeObject *code) {
    const int kinds = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    return old->co_argcount == code->co_argcount && old->co_kwonlyargcount == code->co_kwonlyargcount &&
           old->co_nfreevars == code->co_nfreevars && (old->co_flags & kinds) == (code->co_flags & kinds);
}

typedef enum { FRAME_LEFT, FRAME_QUIET, FRAME_DONE } Taken;

/* DONE: *result is the frame's result, and the frame is freed. LEFT: evaluate the frame; its code may have
 * been swapped. QUIET: evaluate it, and run the functions that it calls unchanged, too. */
static Taken take_frame(PyThreadState *thread, _PyInterpreterFrame *frame, PyCodeObject *code,
                        PyObject **result) {
    CodeState *state = code_state((PyObject *)code);
    if (state && state->closed && state->entries == NULL) return state->quiet ? FRAME_QUIET : FRAME_LEFT;
    PyObject *function = FRAME_FUNCTION(frame), *entries = state ? Py_XNewRef(state->entries) : NULL,
             *owned = NULL;
    Py_ssize_t count = code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
                       ((code->co_flags & CO_VARKEYWORDS) != 0);
    Call call = {frame->localsplus, count, (PyFunctionObject *)function};
    Tried tried = TRIED_MISS;
    Entry *entry = NULL;
    if (!frame_can_be_discarded(thread, frame)) goto done; /* a direct entry could not end it */
    if (entries) tried = entries_try(entries, &call, &entry, result);
    const int room_for_callback = 100;
    if (tried == TRIED_MISS && hook.callback && !asks_nothing && !(state && state->closed) &&
        frame_stack_room(thread) >= room_for_callback) {
        entry = ask_callback((PyObject *)code, &call);
        owned = (PyObject *)entry;
        if (entry) tried = entry_try(entry, &call, result);
    }
    if (tried == TRIED_CODE) {
        PyCodeObject *target = (PyCodeObject *)entry->target;
        if (same_frame_layout(code, target)) frame_swap_code(thread, frame, target);
    }
done:
    Py_XDECREF(entries);
    Py_XDECREF(owned);
    if (tried != TRIED_DONE) {
        state = code_state((PyObject *)code);
        return state && state->quiet ? FRAME_QUIET : FRAME_LEFT;
    }
    frame_discard(thread, frame);
    return FRAME_DONE;
}

/* Evaluates the frame without looking it up. With a hook every Python call takes some of the C stack, so a
 * deep recursion would overflow it. Beyond DEEPEST frames the hook is removed, and further calls do not
 * use the C stack. */
static PyObject *pass(PyThreadState *thread, _PyInterpreterFrame *frame, int throwing) {
    enum { UNITS_OF_A_CALL = 2, DEEPEST = 4000 };
    int deepest = depth == DEEPEST;
    if (deepest) uninstall();
    depth++;
    frame_lend_recursion(thread, UNITS_OF_A_CALL);
    /* A tool that sets its hook again while ours is over it has ours as the one before: each would call the
     * other forever. */
    _PyInterpreterFrame *outer = passed;
    passed = frame;
    _PyFrameEvalFunction run = frame == outer ? _PyEval_EvalFrameDefault : hook.next;
    PyObject *result = run(thread, frame, throwing);
    passed = outer;
    frame_lend_recursion(thread, -UNITS_OF_A_CALL);
    depth--;
    if (deepest && hook.users > 0) install();
    return result;
}

static PyObject *evaluate(PyThreadState *thread, _PyInterpreterFrame *frame, int throwing) {
    PyObject *result = NULL, *code = FRAME_CODE(frame);
    if (entered && !hook_off && !throwing && !calls_suspended && PyCode_Check(code)) {
        const int generators = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
        int flags = ((PyCodeObject *)code)->co_flags, skip = code == pass_next;
        PyObject *function = FRAME_FUNCTION(frame);
        if (skip) pass_next = NULL;
        if (!skip && (flags & (CO_OPTIMIZED | generators)) == CO_OPTIMIZED &&
            frame_is_fresh(frame, (PyCodeObject *)code) && PyFunction_Check(function) &&
            PyFunction_GET_CODE(function) == code && PyDict_CheckExact(frame->f_globals)) {
            Taken taken = take_frame(thread, frame, (PyCodeObject *)code, &result);
            if (taken == FRAME_DONE) return result;
            if (taken == FRAME_QUIET) {
                int previous = swap(&calls_suspended, 1);
                result = pass(thread, frame, throwing);
                calls_suspended = previous;
                return result;
            }
        }
    }
    return pass(thread, frame, throwing);
}

static void install(void) {
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    /* If a tool set its hook after ours, it still calls ours, and calling it would loop forever. */
    if (current == evaluate || (hook.left_behind && current != _PyEval_EvalFrameDefault)) return;
    hook.left_behind = 0;
    hook.next = current;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

static void uninstall(void) {
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate)
        _PyInterpreterState_SetEvalFrameFunc(interpreter, hook.next);
    else
        hook.left_behind = 1; /* another tool's hook calls ours, which now passes everything on */
}

void hook_enter(void) {
    entered++;
    if (hook.users++ == 0) install();
}

void hook_exit(void) {
    if (entered == 0) return;
    entered--;
    if (--hook.users == 0) uninstall();
}

PyObject *hook_begin(PyObject *new_owner) {
    PyObject *previous = owner;
    owner = new_owner;
    hook_enter();
    return previous;
}

void hook_end(PyObject *previous) {
    owner = previous;
    hook_exit();
}

int hook_ask_nothing(int yes) { return swap(&asks_nothing, yes); }

void hook_pass_next(PyObject *code) {
    if (entered) pass_next = code;
}

PyObject *hook_first_argument(PyObject *code) {
    _PyInterpreterFrame *frame = frame_current(PyThreadState_Get());
    return frame && FRAME_CODE(frame) == code ? frame->localsplus[0] : NULL;
}

int hook_has_callback(void) { return hook.callback != NULL; }

const char *hook_unsupported(void) {
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) return "sub-interpreters are not supported";
    return NULL;
}

/* --- module functions --- */

static PyObject *enter(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    hook_enter();
    Py_RETURN_NONE;
}

static PyObject *leave(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    hook_exit();
    Py_RETURN_NONE;
}

static PyObject *set_flag(int *flag, PyObject *value) {
    int yes = PyObject_IsTrue(value);
    return yes < 0 ? NULL : PyBool_FromLong(swap(flag, yes));
}

static PyObject *hook_suspend(PyObject *Py_UNUSED(module), PyObject *yes) { return set_flag(&hook_off, yes); }

static PyObject *calls_suspend(PyObject *Py_UNUSED(module), PyObject *yes) {
    return set_flag(&calls_suspended, yes);
}

static PyObject *hook_owner(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return Py_NewRef(owner ? owner : Py_None);
}

static PyObject *set_frame_callback(PyObject *Py_UNUSED(module), PyObject *callback) {
    if (!Py_IsNone(callback) && !PyCallable_Check(callback))
        return PyErr_Format(PyExc_TypeError, "%R cannot be called", callback);
    Py_XSETREF(hook.callback, Py_IsNone(callback) ? NULL : Py_NewRef(callback));
    hook.complained = 0;
    Py_RETURN_NONE;
}

static PyObject *code_entries(PyObject *Py_UNUSED(module), PyObject *code) {
    if (!PyCode_Check(code)) return PyErr_Format(PyExc_TypeError, "not a code object: %R", code);
    CodeState *state = code_state(code);
    return state && state->entries ? PySequence_List(state->entries) : PyList_New(0);
}

static PyObject *forget_code(PyObject *Py_UNUSED(module), PyObject *code) {
    if (!PyCode_Check(code)) return PyErr_Format(PyExc_TypeError, "not a code object: %R", code);
    CodeState *state = code_state(code);
    if (state) {
        state->closed = 0;
        Py_CLEAR(state->entries);
    }
    Py_RETURN_NONE;
}

static PyObject *lend_calls(PyObject *module, PyObject *number) {
    (void)module;
    long units = PyLong_AsLong(number);
    if (units < 0 && PyErr_Occurred()) return NULL;
    return PyLong_FromLong(frame_lend_calls(PyThreadState_Get(), (int)units));
}

static PyObject *stack_room(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromLong(frame_stack_room(PyThreadState_Get()));
}

static PyMethodDef functions[] = {
    {"hook_enter", enter, METH_NOARGS, "Count one more user of the frame hook in this thread."},
    {"hook_exit", leave, METH_NOARGS, "Count one less."},
    {"hook_suspend", hook_suspend, METH_O,
     "hook_suspend(yes): whether this thread's frames are passed on; whether they were before."},
    {"calls_suspend", calls_suspend, METH_O,
     "calls_suspend(yes): whether jitted calls of this thread run plainly; whether they did before."},
    {"hook_owner", hook_owner, METH_NOARGS, "The jitted function whose Python runs in this thread, or None."},
    {"set_frame_callback", set_frame_callback, METH_O,
     "callback(function, slots) -> Entry | None | False, for frames no entry fits."},
    {"code_entries", code_entries, METH_O, "The entries of a code object, oldest first."},
    {"forget_code", forget_code, METH_O, "Drop the entries of a code object; its frames are looked at anew."},
    {"stack_room", stack_room, METH_NOARGS, "How many more calls the recursion limit lets this thread make."},
    {"lend_calls", lend_calls, METH_O,
     "Let this thread make so many calls more than the recursion limit says; how many more it could so far."},
    {NULL, NULL, 0, NULL},
};

int hook_setup(PyObject *module) {
    if (hook.index < 0) hook.index = CODE_EXTRA_REQUEST(code_state_free);
    if (hook.index < 0) {
        PyErr_SetString(PyExc_ImportError, "no room for extra data in code objects");
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
