// CUDA by its driver interface, loaded when the first kernel is; see cuda.cpp.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

namespace frameloom {

// A kernel loaded into the primary context of one device; lives as long as the process.
struct GpuFunction {
    void *function, *context; // CUfunction, CUcontext
    int32_t device;
    int extra; // null pointers behind the parameters
    unsigned threads, shared;
};

constexpr unsigned GPU_WORDS = 508; // what fits into the parameters of a kernel

// What one call of a plan knows of the GPU it launches on.  The device that was current is so again
// afterwards.
class Gpu {
  public:
    Gpu() = default;
    Gpu(const Gpu &) = delete;
    ~Gpu();
    // `values` has a pointer per parameter; `parameters` points to each of them and to the nulls behind.
    bool launch(const GpuFunction &function, const unsigned *grid, void **parameters, PyObject *name) {
        return (active == function.device || enter(function)) && start(function, grid, parameters, name);
    }
    // place[i * step] = words[i] for up to GPU_WORDS words, in the order of the stream that `user` would be
    // launched on.
    bool write(const GpuFunction &user, void *place, const uint64_t *words, unsigned count, unsigned step,
               PyObject *name);

    // The current stream of the function's device, which becomes current; false with an exception set.
    bool find_stream(const GpuFunction &function, void **result) {
        if (active != function.device && !enter(function)) return false;
        *result = stream;
        return true;
    }

  private:
    bool enter(const GpuFunction &function);
    bool start(const GpuFunction &function, const unsigned *grid, void **parameters, PyObject *name);

    int32_t active = -1; // the device that is current; -1: not looked at yet
    void *stream = nullptr, *guard = nullptr;
};

// PyTorch's current stream on a device.
bool gpu_stream(int32_t device, void **stream);
// Whether what is done on this stream is recorded into a graph; false with no exception where that is
// unknown.
bool gpu_recording(void *stream);

// A function of the driver's library; null where there is none.
void *driver_symbol(const char *name);

// load_cubin(data, symbol, shared, extra, threads, device) -> handle
PyObject *load_cubin(PyObject *module, PyObject *args);

} // namespace frameloom
