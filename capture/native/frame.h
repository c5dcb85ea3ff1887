/* A fresh interpreter frame, for every supported CPython version: its code, and how to make it run other
 * code.
 *
 * Only for frames that were pushed and have not executed anything: their arguments are in place, every
 * other local is NULL, cells are not made yet. Only hook.c includes this file, because it needs CPython's
 * internal headers.
 */
#ifndef FRAMELOOM_FRAME_H
#define FRAMELOOM_FRAME_H

#include "compat.h"

#include <pycore_frame.h>

#if PY_VERSION_HEX < 0x030C0000
#define FRAME_FUNCTION(frame) ((PyObject *)(frame)->f_func)
#define FRAME_CODE(frame)     ((PyObject *)(frame)->f_code)
#define CODE_FRAME_SIZE(code) ((code)->co_nlocalsplus + (code)->co_stacksize + FRAME_SPECIALS_SIZE)
#define CODE_EXTRA_REQUEST    _PyEval_RequestCodeExtraIndex
#define CODE_EXTRA_GET        _PyCode_GetExtra
#define CODE_EXTRA_SET        _PyCode_SetExtra
#elif PY_VERSION_HEX < 0x030E0000
#define FRAME_FUNCTION(frame) ((frame)->f_funcobj)
#define CODE_FRAME_SIZE(code) ((code)->co_framesize)
#define CODE_EXTRA_REQUEST    PyUnstable_Eval_RequestCodeExtraIndex
#define CODE_EXTRA_GET        PyUnstable_Code_GetExtra
#define CODE_EXTRA_SET        PyUnstable_Code_SetExtra
#if PY_VERSION_HEX < 0x030D0000
#define FRAME_CODE(frame) ((PyObject *)(frame)->f_code)
#else
#define FRAME_CODE(frame) ((frame)->f_executable)
#endif
#else
#error "this CPython's frames are not known"
#endif

static inline int frame_is_fresh(_PyInterpreterFrame *frame, PyCodeObject *code) {
#if PY_VERSION_HEX < 0x030D0000
    return frame->owner == FRAME_OWNED_BY_THREAD && frame->prev_instr == _PyCode_CODE(code) - 1;
#else
    return frame->owner == FRAME_OWNED_BY_THREAD && frame->instr_ptr == _PyCode_CODE(code);
#endif
}

/* The frame that runs in this thread; NULL if there is none. */
static inline _PyInterpreterFrame *frame_current(PyThreadState *thread) {
#if PY_VERSION_HEX < 0x030D0000
    return thread->cframe->current_frame;
#else
    return thread->current_frame;
#endif
}

/* With a hook, every Python call uses the C stack, which 3.12 and 3.13 count separately and more strictly
 * than recursion itself. Lending the cost of a call keeps the depth that a program can reach as it is
 * without the hook. */
static inline void frame_lend_recursion(PyThreadState *thread, int units) {
#if PY_VERSION_HEX >= 0x030C0000
    thread->c_recursion_remaining += units;
#else
    (void)thread, (void)units;
#endif
}

/* How many more calls of Python functions the recursion limit allows in this thread. */
static inline int frame_stack_room(PyThreadState *thread) {
#if PY_VERSION_HEX >= 0x030C0000
    return Py_MIN(thread->py_recursion_remaining, thread->c_recursion_remaining);
#else
    return thread->recursion_remaining;
#endif
}

/* Allows only this thread `units` calls more than the recursion limit; returns how many more were allowed
 * before. */
static inline int frame_lend_calls(PyThreadState *thread, int units) {
#if PY_VERSION_HEX >= 0x030C0000
    int *limit = &thread->py_recursion_limit, *remaining = &thread->py_recursion_remaining;
#else
    int *limit = &thread->recursion_limit, *remaining = &thread->recursion_remaining;
#endif
    int depth = *limit - *remaining, general = Py_GetRecursionLimit(), lent = *limit - general;
    *limit = general + units;
    *remaining = *limit - depth;
    return lent;
}

/* Makes `frame` run `code`, which takes the same arguments and free variables. 0: its stack chunk has no
 * room for it. */
static inline int frame_swap_code(PyThreadState *thread, _PyInterpreterFrame *frame, PyCodeObject *code) {
    PyObject *old = FRAME_CODE(frame), **base = (PyObject **)frame;
    Py_ssize_t old_size = CODE_FRAME_SIZE((PyCodeObject *)old), size = CODE_FRAME_SIZE(code);
    if (size != old_size) {
        if (base + old_size != thread->datastack_top || base + size >= thread->datastack_limit) return 0;
        thread->datastack_top = base + size;
    }
    for (int i = ((PyCodeObject *)old)->co_nlocalsplus; i < code->co_nlocalsplus; i++)
        frame->localsplus[i] = NULL;
    frame->stacktop = code->co_nlocalsplus;
#if PY_VERSION_HEX < 0x030D0000
    frame->f_code = (PyCodeObject *)Py_NewRef((PyObject *)code);
    frame->prev_instr = _PyCode_CODE(code) - 1;
#else
    frame->f_executable = Py_NewRef((PyObject *)code);
    frame->instr_ptr = _PyCode_CODE(code);
#endif
    Py_DECREF(old);
    return 1;
}

/* Whether frame_discard can take the frame off its stack: not if it is the first of its chunk. */
static inline int frame_can_be_discarded(PyThreadState *thread, _PyInterpreterFrame *frame) {
    return (PyObject **)frame != &thread->datastack_chunk->data[0];
}

/* Ends a frame that will not run. In 3.11 the caller of the evaluation function does this; in later
 * versions the function itself. */
static inline void frame_discard(PyThreadState *thread, _PyInterpreterFrame *frame) {
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *function = FRAME_FUNCTION(frame), *code = FRAME_CODE(frame);
    for (int i = 0; i < frame->stacktop; i++) Py_XDECREF(frame->localsplus[i]);
    Py_XDECREF(frame->f_locals);
    thread->datastack_top = (PyObject **)frame;
    Py_XDECREF(function);
    Py_DECREF(code);
#else
    (void)thread, (void)frame;
#endif
}

#endif
