// Loads kernels and launches them through the CUDA driver interface.
//
// CUDA's headers and toolkit are not needed: the few functions are declared here and found in the
// driver's library.  Contexts are the primary ones of the devices, which PyTorch uses, too; streams
// and the current device are PyTorch's, read through its C interface.
#include "cuda.h"

#include "tensors.h"

#include <dlfcn.h>

#include <cstring>
#include <map>

namespace frameloom {

namespace {

using Result = int;
constexpr int MAX_DYNAMIC_SHARED = 8; // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned SHARED_WITHOUT_ASKING = 48 << 10;

// A kernel that writes its own parameters to memory.  The driver has copied them when a launch
// returns, and a CUDA graph keeps its own copy: so nothing has to stay in the CPU's memory, and
// nothing waits.
constexpr char WRITER_NAME[] = "frameloom_write_words", WRITER[] = R"(
.version 6.0
.target sm_70
.address_size 64
.visible .entry frameloom_write_words(
    .param .u64 place, .param .u32 step, .param .u32 count, .param .align 8 .b8 words[4064])
{
    .reg .pred %none;
    .reg .b32 %i, %n, %s;
    .reg .b64 %from, %to, %word;
    mov.u32 %i, %tid.x;
    ld.param.u32 %n, [count];
    setp.ge.u32 %none, %i, %n;
    @%none bra done;
    mov.b64 %from, words;
    mad.wide.u32 %from, %i, 8, %from;
    ld.param.b64 %word, [%from];
    ld.param.b64 %to, [place];
    cvta.to.global.u64 %to, %to;
    ld.param.u32 %s, [step];
    mul.lo.u32 %s, %s, %i;
    mad.wide.u32 %to, %s, 8, %to;
    st.global.b64 [%to], %word;
done:
    ret;
}
)";

struct Driver {
    Result (*init)(unsigned);
    Result (*device_get)(int *, int);
    Result (*retain_context)(void **, int);
    Result (*get_context)(void **);
    Result (*set_context)(void *);
    Result (*push_context)(void *);
    Result (*pop_context)(void **);
    Result (*load_module)(void **, const void *);
    Result (*get_function)(void **, void *, const char *);
    Result (*set_attribute)(void *, int, int);
    Result (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                     void **, void **);
    Result (*error_text)(Result, const char **);
    Result (*is_capturing)(void *, int *); // may be nullptr
    // Functions of PyTorch:
    int32_t (*current_stream)(int32_t, void **);
    int32_t (*make_guard)(int32_t, void **);
    int32_t (*set_guard)(void *, int32_t);
    int32_t (*delete_guard)(void *);
};
Driver driver;
bool driver_loaded = false;

void *driver_library() { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); }

bool find_driver() {
    if (driver_loaded) return true;
    if (driver_library() == nullptr) {
        const char *reason = dlerror();
        std::string text =
            std::string("the CUDA driver cannot be loaded: ") + (reason ? reason : "libcuda.so.1");
        return host::raise(Error::SYSTEM, text.c_str());
    }
    auto has = [](auto *&function, const char *name) { return find(function, name, driver_symbol); };
    has(driver.is_capturing, "cuStreamIsCapturing");
    bool available =
        has(driver.init, "cuInit") && has(driver.device_get, "cuDeviceGet") &&
        has(driver.retain_context, "cuDevicePrimaryCtxRetain") &&
        has(driver.get_context, "cuCtxGetCurrent") && has(driver.set_context, "cuCtxSetCurrent") &&
        has(driver.push_context, "cuCtxPushCurrent_v2") && has(driver.pop_context, "cuCtxPopCurrent_v2") &&
        has(driver.load_module, "cuModuleLoadData") && has(driver.get_function, "cuModuleGetFunction") &&
        has(driver.set_attribute, "cuFuncSetAttribute") && has(driver.launch, "cuLaunchKernel") &&
        has(driver.error_text, "cuGetErrorString") &&
        find(driver.current_stream, "aoti_torch_get_current_cuda_stream") &&
        find(driver.make_guard, "aoti_torch_create_cuda_guard") &&
        find(driver.set_guard, "aoti_torch_cuda_guard_set_index") &&
        find(driver.delete_guard, "aoti_torch_delete_cuda_guard");
    if (!available)
        return host::raise(Error::SYSTEM,
                           "the CUDA driver or PyTorch's C interface lacks what launching needs");
    return driver_loaded = true;
}

bool succeeded(Result result, const char *what, const std::string &name) {
    if (result == 0) return true;
    const char *known = nullptr;
    driver.error_text(result, &known);
    std::string text = std::string("CUDA error: ") + (known ? known : "unknown error") + " (" +
                       std::to_string(result) + "), " + what + " " + name;
    return host::raise(Error::DEVICE, text.c_str());
}

bool context_of(int32_t device, void **context, const std::string &name) {
    static std::map<int32_t, void *> contexts; // under the lock
    auto known = contexts.find(device);
    if (known != contexts.end()) {
        *context = known->second;
        return true;
    }
    int number;
    if (!succeeded(driver.init(0), "starting CUDA for", name) ||
        !succeeded(driver.device_get(&number, device), "finding the device for", name) ||
        !succeeded(driver.retain_context(context, number), "finding the context for", name))
        return false;
    contexts[device] = *context;
    return true;
}

// Loads `data` (machine code or PTX) into the context of `made`.
bool load_into_context(const char *data, const char *name, const std::string &shown, GpuFunction *made) {
    void *module = nullptr, *before;
    if (!succeeded(driver.push_context(made->context), "entering the context for", shown)) return false;
    Result result = driver.load_module(&module, data);
    if (result == 0) result = driver.get_function(&made->function, module, name);
    if (result == 0 && made->shared > SHARED_WITHOUT_ASKING)
        result = driver.set_attribute(made->function, MAX_DYNAMIC_SHARED, (int)made->shared);
    driver.pop_context(&before);
    return succeeded(result, "loading", shown);
}

const GpuFunction *writer_of(int32_t device, const std::string &name) {
    static std::map<int32_t, GpuFunction> writers; // under the lock
    auto known = writers.find(device);
    if (known != writers.end()) return &known->second;
    constexpr unsigned THREADS = 512;
    static_assert(GPU_WORDS <= THREADS, "a word a thread");
    GpuFunction made{nullptr, nullptr, device, 0, THREADS, 0};
    if (!context_of(device, &made.context, name) || !load_into_context(WRITER, WRITER_NAME, name, &made))
        return nullptr;
    return &(writers[device] = made);
}

} // namespace

const GpuFunction *gpu_load(const char *data, const std::string &symbol, int shared, int extra, int threads,
                            int device) {
    if (!find_driver()) return nullptr;
    GpuFunction made{nullptr, nullptr, device, extra, (unsigned)threads, (unsigned)shared};
    if (!context_of(device, &made.context, symbol) || !load_into_context(data, symbol.c_str(), symbol, &made))
        return nullptr;
    return new GpuFunction(made);
}

void *driver_symbol(const char *name) {
    void *cuda = driver_library();
    return cuda ? dlsym(cuda, name) : nullptr;
}

bool gpu_stream(int32_t device, void **stream) {
    if (!find_driver()) return false;
    if (driver.current_stream(device, stream) == 0) return true;
    return host::raise(Error::RUNTIME, "PyTorch could not name its current CUDA stream");
}

bool gpu_recording(void *stream) {
    int status = 0;
    return driver.is_capturing && driver.is_capturing(stream, &status) == 0 && status != 0;
}

void Gpu::leave() { driver.delete_guard(guard); }

bool Gpu::enter(const GpuFunction &function) {
    void *context = nullptr;
    driver.get_context(&context);
    if (context != function.context || guard) {
        int32_t error =
            guard ? driver.set_guard(guard, function.device) : driver.make_guard(function.device, &guard);
        if (error) {
            std::string text =
                "PyTorch could not make device " + std::to_string(function.device) + " current";
            return host::raise(Error::RUNTIME, text.c_str());
        }
        /* In a thread that has not used CUDA yet, the device is current, but its context is not. */
        driver.get_context(&context);
        if (context != function.context) driver.set_context(function.context);
    }
    if (!gpu_stream(function.device, &stream)) return false;
    active = function.device;
    return true;
}

bool Gpu::start(const GpuFunction &function, const unsigned *grid, void **parameters,
                const std::string &name) {
    return succeeded(driver.launch(function.function, grid[0], grid[1], grid[2], function.threads, 1, 1,
                                   function.shared, stream, parameters, nullptr),
                     "launching", name);
}

bool Gpu::write(const GpuFunction &user, void *place, const uint64_t *words, unsigned count, unsigned step,
                const std::string &name) {
    if (active != user.device && !enter(user)) return false;
    const GpuFunction *writer = writer_of(user.device, name);
    if (writer == nullptr) return false;
    uint64_t copied[GPU_WORDS] = {};
    std::memcpy(copied, words, count * sizeof(uint64_t));
    void *parameters[] = {&place, &step, &count, copied};
    const unsigned grid[] = {1, 1, 1};
    return start(*writer, grid, parameters, name);
}

} // namespace frameloom
