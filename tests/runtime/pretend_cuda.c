// A CUDA driver and the parts of PyTorch's C interface that deal with CUDA, for machines without a GPU.
//
// Device memory is the CPU's, a "cubin" is any bytes, and a kernel is a function of this file that gets the launch's
// parameters.  Built twice: once named libcuda.so.1, once libtorch_cuda.so, which holds the state.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int current_device, guards, captured, version;
static void *stream, *contexts[4] = {(void *)101, (void *)102, (void *)103, (void *)104};

typedef struct {
    int launches, writes, last_device, last_extra_null, graphs, updates, alive;
    unsigned grid[3], threads, shared;
    void *stream, *context;
    const char *name;
} Log;
static Log state;
Log *pretend_log(void) { return &state; }
void pretend_stream(void *value) { stream = value; }
void pretend_device(int value) { current_device = value; }
void pretend_capture(int value) { captured = value; }
void pretend_version(int value) { version = value; }
int pretend_version_now(void) { return version; }
int pretend_current(void) { return current_device; }
int pretend_captured(void) { return captured; }
int pretend_guards(void) { return guards; }

int aoti_torch_get_current_cuda_stream(int32_t device, void **result) {
    *result = (char *)stream + device;
    return 0;
}
int aoti_torch_create_cuda_guard(int32_t device, void **guard) {
    guards++;
    *guard = (void *)(intptr_t)(current_device + 1);
    current_device = device;
    return 0;
}
int aoti_torch_cuda_guard_set_index(void *guard, int32_t device) { return current_device = device, 0; }
int aoti_torch_delete_cuda_guard(void *guard) { return guards--, current_device = (int)(intptr_t)guard - 1, 0; }

#ifdef DRIVER
#include <dlfcn.h>
static void *torch_side(const char *name) { return dlsym(dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD), name); }
static int device_now(void) { return ((int (*)(void))torch_side("pretend_current"))(); }

typedef struct { const char *name; int arity; } Function;
static Function functions[] = {{"twice", 2}, {"add", 3}, {"big", 2}, {"fails", 2}, {"any_twice", 2},
    {"frameloom_write_words", 4}, {"list_twice", 3}, {"scale", 4}}, real = {"real", 0};

int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int number) { return *device = number, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = contexts[device], 0; }
int cuCtxGetCurrent(void **context) { return *context = contexts[device_now()], 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxPushCurrent_v2(void *context) { return 0; }
int cuCtxPopCurrent_v2(void **context) { return 0; }
// Real machine code is taken, too, but can't be run.
int cuModuleLoadData(void **module, const void *data) {
    *module = memcmp(data, "\x7f" "ELF", 4) ? (void *)1 : &real;
    return *module != &real && memcmp(data, "ok", 2) && memcmp(data, "\n.version", 9) ? 200 : 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    if (module == &real) return *function = module, 0;
    for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name)) return *function = &functions[i], 0;
    return 500;
}
int cuFuncSetAttribute(void *function, int attribute, int value) { return value > 227 << 10 ? 1 : 0; }
int cuStreamIsCapturing(void *s, int *status) {
    *status = ((int (*)(void))torch_side("pretend_captured"))();
    return 0;
}
int cuGetErrorString(int code, const char **text) {
    *text = code == 200 ? "device kernel image is invalid" : code == 500 ? "named symbol not found" : "invalid argument";
    return 0;
}
int cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *s, void **parameters, void **extra) {
    Log *log = ((Log * (*)(void)) torch_side("pretend_log"))();
    if (!strcmp(f->name, "fails")) return 1;
    if (!strcmp(f->name, "frameloom_write_words")) {
        int64_t *place = *(int64_t **)parameters[0], *words = parameters[3];
        unsigned step = *(unsigned *)parameters[1], count = *(unsigned *)parameters[2];
        log->writes++;
        for (unsigned i = 0; i < count; i++) place[i * step] = words[i];
        return 0;
    }
    log->launches++;
    log->last_device = device_now();
    log->grid[0] = gx, log->grid[1] = gy, log->grid[2] = gz;
    log->threads = bx, log->shared = shared, log->stream = s, log->name = f->name;
    log->last_extra_null = *(void **)parameters[f->arity] == 0 && *(void **)parameters[f->arity + 1] == 0;
    if (f->arity == 3 && !strcmp(f->name, "list_twice")) {
        // Columns are from and to, blocks have 8 elements.
        float ***table = parameters[0];
        int64_t *fixed = *(int64_t **)parameters[1];
        int32_t *blocks = *(int32_t **)parameters[2];
        for (unsigned i = 0; i < gx; i++) {
            int64_t row = blocks[2 * i], at = 8 * (int64_t)blocks[2 * i + 1];
            for (int64_t k = at; k < at + 8 && k < fixed[row]; k++)
                table[0][2 * row + 1][k] = 2 * table[0][2 * row][k];
        }
        return 0;
    }
    float *a = *(float **)parameters[0], *b = *(float **)parameters[1];
    if (f->arity == 4) {
        // How many, of 32 bits, and by what.
        for (int32_t i = 0; i < *(int32_t *)parameters[2]; i++) b[i] = *(int64_t *)parameters[3] * a[i];
    } else if (f->arity == 3) {
        float *c = *(float **)parameters[2];
        for (int i = 0; i < 32; i++) c[i] = a[i] + b[i];
    } else {
        for (int i = 0; i < 32; i++) b[i] = 2 * a[i];
    }
    return 0;
}

// Graphs are chains of at most 8 kernels, each with the values that its parameters had.
typedef struct {
    Function *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra, *kernel, *context;
} Parameters;
typedef struct { Parameters what; void *values[8]; } Node;
typedef struct { int count; Node nodes[8]; } Graph;

static Log *log_now(void) { return ((Log * (*)(void)) torch_side("pretend_log"))(); }
static void keep(Node *node, const Parameters *given) {
    node->what = *given;
    for (int i = 0; i < given->function->arity + 2; i++) node->values[i] = *(void **)given->parameters[i];
}

int cuDriverGetVersion(int *result) { return *result = ((int (*)(void))torch_side("pretend_version_now"))(), 0; }
int cuGraphCreate(Graph **graph, unsigned flags) { return *graph = calloc(1, sizeof **graph), 0; }
int cuGraphAddKernelNode_v2(void **node, Graph *graph, void *const *before, size_t count, const Parameters *given) {
    if (count != (graph->count ? 1 : 0) || (count && before[0] != (void *)(intptr_t)graph->count)) return 1;
    keep(&graph->nodes[graph->count++], given);
    *node = (void *)(intptr_t)graph->count;
    return 0;
}
int cuGraphInstantiateWithFlags(Graph **exec, Graph *graph, unsigned long long flags) {
    *exec = malloc(sizeof **exec);
    **exec = *graph;
    log_now()->alive++;
    return 0;
}
int cuGraphExecKernelNodeSetParams_v2(Graph *exec, void *node, const Parameters *given) {
    keep(&exec->nodes[(intptr_t)node - 1], given);
    log_now()->updates++;
    return 0;
}
int cuGraphLaunch(Graph *exec, void *s) {
    log_now()->graphs++;
    for (int i = 0; i < exec->count; i++) {
        Node *n = &exec->nodes[i];
        void *parameters[8];
        for (int k = 0; k < 8; k++) parameters[k] = &n->values[k];
        int error = cuLaunchKernel(n->what.function, n->what.grid[0], n->what.grid[1], n->what.grid[2], n->what.block[0],
                                   1, 1, n->what.shared, s, parameters, 0);
        if (error) return error;
    }
    return 0;
}
int cuGraphExecDestroy(Graph *exec) { return log_now()->alive--, free(exec), 0; }
int cuGraphDestroy(Graph *graph) { return free(graph), 0; }
#endif
