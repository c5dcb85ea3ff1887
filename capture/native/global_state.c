/* The state of the thread and of PyTorch that a captured graph relies on.
 *
 * It is checked before everything else: the thread's dispatch key sets (inference mode, autocast, dispatch
 * modes, function transforms), grad mode, function modes (a default device is one), default dtype,
 * deterministic algorithms. The functions are found with dlsym, so no PyTorch header is needed;
 * thread-local addresses are kept per thread. Without these symbols, a tuple of answers of torch._C is
 * compared.
 *
 * The stance that the program gives to compilers (`set_stance`) is read here, too: one of them lets no entry
 * run.
 */
#include "capture.h"

#include <dlfcn.h>

typedef struct {
    uint64_t keys[2];   /* included, excluded */
    unsigned char grad; /* the byte of AutogradState that holds grad, inference and forward-grad mode */
    signed char dtype;  /* the default one */
    char deterministic;
    char functions;          /* whether __torch_function__ is disabled */
    signed char autocast[2]; /* dtype on CPU and CUDA; only if some autocast is on */
    char unused[2];          /* no padding, so that states are compared as bytes */
    int64_t mode_count;      /* of the stack of function modes */
} State;
_Static_assert(sizeof(State) == 32, "padding would be compared");

struct GlobalState {
    State state;
    int autocast;
    PyObject *modes;   /* tuple of the function modes on the stack, or NULL if there are none */
    PyObject *answers; /* without the symbols: the answers of torch._C */
};

static struct {
    int searched, usable;
    void *core; /* libc10 */
    void *(*autograd_state)(void);
    int grad_offset;
    signed char (*default_dtype)(void);
    char (*deterministic)(const void *);
    const void *context;
    int64_t (*mode_count)(void);
    int (*functions_disabled)(void);
    void (*functions_set)(int);
    signed char (*autocast_dtype)(signed char);
    PyObject *mode_at; /* torch._C._get_function_stack_at */
} torch_state;

static __thread const uint64_t *thread_keys;
static __thread const unsigned char *thread_grad;

/* Grad mode is one bit of a byte in the thread's AutogradState: changes the mode and finds the byte that
 * changes. */
static int find_grad_byte(const char *state) {
    enum { SPAN = 40 };
    char before[SPAN];
    PyObject *was = torch_ask("is_grad_enabled", NULL), *done;
    if (was == NULL) return -1;
    memcpy(before, state, SPAN);
    done = torch_ask("_set_grad_enabled", was == Py_True ? Py_False : Py_True);
    Py_XDECREF(done);
    int offset = -1;
    for (int i = 0; i < SPAN && done; i++)
        if (before[i] != state[i]) offset = offset == -1 ? i : -2;
    done = torch_ask("_set_grad_enabled", was);
    Py_XDECREF(done);
    Py_DECREF(was);
    return done && offset >= 0 ? offset : -1;
}

static void search(void) {
    if (torch_state.searched) return;
    torch_state.searched = 1;
    void *core = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD),
         *cpu = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (core == NULL || cpu == NULL) return;
    torch_state.core = core;
    void *keys = dlsym(core, "_ZN3c104impl26raw_local_dispatch_key_setE");
    *(void **)&torch_state.autograd_state = dlsym(core, "_ZN3c1013AutogradState13get_tls_stateEv");
    *(void **)&torch_state.default_dtype = dlsym(core, "_ZN3c1031get_default_dtype_as_scalartypeEv");
    *(void **)&torch_state.deterministic = dlsym(cpu, "_ZNK2at7Context23deterministicAlgorithmsEv");
    *(void **)&torch_state.mode_count = dlsym(cpu, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    *(void **)&torch_state.functions_disabled =
        dlsym(cpu, "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv");
    *(void **)&torch_state.functions_set = dlsym(
        cpu, "_ZN2at4impl22PythonTorchFunctionTLS18set_disabled_stateENS0_26TorchFunctionDisabledStateE");
    *(void **)&torch_state.autocast_dtype =
        dlsym(cpu, "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE");
    const void *(*context)(void);
    *(void **)&context = dlsym(cpu, "_ZN2at13globalContextEv");
    if (!keys || !torch_state.autograd_state || !torch_state.default_dtype || !torch_state.deterministic ||
        !context || !torch_state.mode_count || !torch_state.functions_disabled || !torch_state.autocast_dtype)
        return;
    torch_state.context = context();
    torch_state.grad_offset = find_grad_byte(torch_state.autograd_state());
    torch_state.mode_at = torch_c("_get_function_stack_at");
    PyErr_Clear();
    torch_state.usable = torch_state.grad_offset >= 0 && torch_state.mode_at != NULL;
}

static void find_thread(void) {
    thread_keys = dlsym(torch_state.core, "_ZN3c104impl26raw_local_dispatch_key_setE");
    thread_grad = (const unsigned char *)torch_state.autograd_state() + torch_state.grad_offset;
}

/* PyTorch's TorchFunctionDisabledState. */
enum { FUNCTIONS_ON, FUNCTIONS_OFF_FOR_SUBCLASSES };

int functions_turn_off(void) {
    if (!torch_state.usable || !torch_state.functions_set) return 0;
    if ((char)torch_state.functions_disabled() != FUNCTIONS_ON) return 0;
    torch_state.functions_set(FUNCTIONS_OFF_FOR_SUBCLASSES);
    return 1;
}

void functions_turn_back(int was_on) {
    if (was_on) torch_state.functions_set(FUNCTIONS_ON);
}

static void state_read(State *state, int autocast) {
    memset(state, 0, sizeof *state);
    if (thread_keys == NULL) find_thread();
    memcpy(state->keys, thread_keys, sizeof state->keys);
    state->grad = *thread_grad;
    state->dtype = torch_state.default_dtype();
    state->deterministic = torch_state.deterministic(torch_state.context);
    state->functions = (char)torch_state.functions_disabled();
    state->mode_count = torch_state.mode_count();
    if (autocast)
        for (signed char device = 0; device < 2; device++)
            state->autocast[device] = torch_state.autocast_dtype(device);
}

/* The function modes of this thread; new tuple. */
static PyObject *function_modes(int64_t count) {
    PyObject *modes = PyTuple_New(count);
    for (int64_t i = 0; i < count && modes; i++) {
        PyObject *mode = PyObject_CallFunction(torch_state.mode_at, "L", (long long)i);
        if (mode == NULL)
            Py_CLEAR(modes);
        else
            PyTuple_SET_ITEM(modes, i, mode);
    }
    return modes;
}

/* Captures support one kind of mode, that of the default device. PyTorch makes a new one for each `with`,
 * so devices are compared. */
static int same_mode(PyObject *a, PyObject *b) {
    if (a == b) return 1;
    if (Py_TYPE(a) != Py_TYPE(b)) return 0;
    PyObject *of_a = PyObject_GetAttrString(a, "device"), *of_b = PyObject_GetAttrString(b, "device");
    int same = of_a && of_b && PyObject_RichCompareBool(of_a, of_b, Py_EQ) == 1;
    Py_XDECREF(of_a);
    Py_XDECREF(of_b);
    PyErr_Clear();
    return same;
}

static int same_modes(PyObject *expected, int64_t count) {
    PyObject *modes = function_modes(count);
    int same = modes != NULL;
    if (modes == NULL) PyErr_Clear();
    for (int64_t i = 0; i < count && same; i++)
        same = same_mode(PyTuple_GET_ITEM(modes, i), PyTuple_GET_ITEM(expected, i));
    Py_XDECREF(modes);
    return same;
}

/* The answers of torch._C about the state: new tuple, with None for a function that this PyTorch lacks. */
enum { ANSWER_AUTOCAST, ANSWER_MODES };
static PyObject *answers(void) {
    static const char *const names[] = {
        [ANSWER_AUTOCAST] = "_is_any_autocast_enabled",
        [ANSWER_MODES] = "_len_torch_function_stack",
        "is_grad_enabled",
        "is_inference_mode_enabled",
        "_is_fwd_grad_enabled",
        "get_default_dtype",
        "_is_torch_function_enabled",
        "_len_torch_dispatch_stack",
        "_get_deterministic_algorithms",
    };
    PyObject *result = PyTuple_New(Py_ARRAY_LENGTH(names));
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names) && result; i++) {
        PyObject *answer = torch_ask(names[i], NULL);
        if (answer == NULL) {
            PyErr_Clear();
            answer = Py_NewRef(Py_None);
        }
        PyTuple_SET_ITEM(result, i, answer);
    }
    return result;
}

/* PyTorch keeps the stance in a variable of a module of its compiler, which set_stance imports: each change
 * stores a new object. */
static struct {
    PyObject *variables; /* of that module, once it is imported */
    PyObject *object;    /* whose answers these are */
    PyObject *text;
    int forbids_entries;
} stance;

/* The dictionary of that module, borrowed; NULL, without an exception, if it is not imported. Attributes of
 * the module `torch` would import it. */
static PyObject *stance_variables(void) {
    static const char *const path[] = {"_dynamo", "eval_frame"};
    static PyObject *names[Py_ARRAY_LENGTH(path)];
    if (stance.variables) return stance.variables;
    PyObject *module = torch_header.torch;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(path) && module; i++) {
        if (names[i] == NULL) names[i] = PyUnicode_InternFromString(path[i]);
        PyObject *variables = PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
        module = variables && names[i] ? PyDict_GetItemWithError(variables, names[i]) : NULL;
    }
    if (module && PyModule_Check(module)) stance.variables = Py_XNewRef(PyModule_GetDict(module));
    PyErr_Clear();
    return stance.variables;
}

static void stance_read(void) {
    static PyObject *name;
    PyObject *variables = stance_variables();
    if (variables == NULL) return;
    if (name == NULL) name = PyUnicode_InternFromString("_stance");
    PyObject *object = name ? PyDict_GetItemWithError(variables, name) : NULL;
    if (object && object != stance.object) {
        PyObject *text = PyObject_GetAttrString(object, "stance");
        int known = text && PyUnicode_Check(text);
        stance.forbids_entries = known && PyUnicode_CompareWithASCIIString(text, "force_eager") == 0;
        Py_XSETREF(stance.text, known ? Py_NewRef(text) : NULL);
        Py_XSETREF(stance.object, Py_NewRef(object));
        Py_XDECREF(text);
    }
    PyErr_Clear();
}

PyObject *compile_stance(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    stance_read();
    return stance.text ? Py_NewRef(stance.text) : PyUnicode_FromString("default");
}

GlobalState *global_state_new(void) {
    if (torch_header_ready() < 0) return NULL;
    search();
    GlobalState *result = PyMem_Calloc(1, sizeof *result);
    if (result == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (!torch_state.usable) {
        result->answers = answers();
        if (result->answers) return result;
        global_state_free(result);
        return NULL;
    }
    PyObject *device[2] = {PyUnicode_FromString("cpu"), PyUnicode_FromString("cuda")};
    for (int i = 0; i < 2; i++) {
        PyObject *on = device[i] ? torch_ask("is_autocast_enabled", device[i]) : NULL;
        if (on == NULL) PyErr_Clear();
        result->autocast |= on != Py_False;
        Py_XDECREF(on);
        Py_XDECREF(device[i]);
    }
    state_read(&result->state, result->autocast);
    if (result->state.mode_count) {
        result->modes = function_modes(result->state.mode_count);
        if (result->modes == NULL) {
            global_state_free(result);
            return NULL;
        }
    }
    return result;
}

void global_state_free(GlobalState *state) {
    if (state == NULL) return;
    Py_XDECREF(state->modes);
    Py_XDECREF(state->answers);
    PyMem_Free(state);
}

int global_state_traverse(GlobalState *state, visitproc visit, void *arg) {
    if (state == NULL) return 0;
    Py_VISIT(state->modes);
    Py_VISIT(state->answers);
    return 0;
}

/* Autocast and function modes have more state than the answers contain: then nothing matches. */
static int answers_match(const GlobalState *state) {
    PyObject *now = answers();
    int same = now ? PyObject_RichCompareBool(now, state->answers, Py_EQ) : -1;
    if (same > 0)
        same = PyObject_Not(PyTuple_GET_ITEM(now, ANSWER_AUTOCAST)) &&
               PyObject_Not(PyTuple_GET_ITEM(now, ANSWER_MODES));
    Py_XDECREF(now);
    if (same < 0) PyErr_Clear();
    return same == 1;
}

int global_state_matches(const GlobalState *state) {
    stance_read();
    if (stance.forbids_entries) return 0;
    if (state->answers) return answers_match(state);
    State now;
    state_read(&now, state->autocast);
    if (memcmp(&now, &state->state, sizeof now) != 0) return 0;
    return state->modes == NULL || same_modes(state->modes, now.mode_count);
}

PyObject *global_state_difference(const GlobalState *state) {
    if (global_state_matches(state)) return NULL;
    if (stance.forbids_entries) return PyUnicode_FromString("set_stance forbids compiled code");
    if (state->answers) return PyUnicode_FromString("PyTorch's global state differs");
    State now;
    const State *then = &state->state;
    state_read(&now, state->autocast);
    const char *what = "the stack of torch function modes differs";
    if (now.grad != then->grad)
        what = "grad mode (or inference mode) differs";
    else if (now.keys[0] != then->keys[0] || now.keys[1] != then->keys[1])
        what = "the thread's dispatch keys differ (inference mode, autocast, a dispatch mode or a function "
               "transform)";
    else if (now.dtype != then->dtype)
        what = "the default dtype differs";
    else if (now.deterministic != then->deterministic)
        what = "torch.use_deterministic_algorithms differs";
    else if (now.functions != then->functions)
        what = "__torch_function__ is enabled or disabled differently";
    else if (memcmp(now.autocast, then->autocast, sizeof now.autocast))
        what = "the autocast dtype differs";
    return PyUnicode_FromString(what);
}
