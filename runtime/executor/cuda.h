// The CUDA driver interface, loaded with the first kernel; see cuda.cpp.
#pragma once

#include "host.h"

#include <string>

namespace frameloom {

// A kernel loaded into the primary context of one device; lives as long as the process.
struct GpuFunction {
    void *function, *context; // CUfunction, CUcontext
    int32_t device;
    int extra; // null pointers after the parameters
    unsigned threads, shared;
};

constexpr unsigned GPU_WORDS = 508; // the most that fit into the parameters of a kernel

// The GPU state of one call of a plan.  Its destructor restores the device that was current before.
class Gpu {
  public:
    Gpu() = default;
    Gpu(const Gpu &) = delete;
    ~Gpu() {
        if (guard) leave();
    }
    // `parameters` has a pointer to each value: the parameters, then the null pointers.
    bool launch(const GpuFunction &function, const unsigned *grid, void **parameters,
                const std::string &name) {
        return (active == function.device || enter(function)) && start(function, grid, parameters, name);
    }
    // Writes place[i * step] = words[i] for up to GPU_WORDS words, in the order of the stream on
    // which `user` would be launched.
    bool write(const GpuFunction &user, void *place, const uint64_t *words, unsigned count, unsigned step,
               const std::string &name);

    // Finds the current stream of the function's device and makes this device current; false with
    // an error set.
    bool find_stream(const GpuFunction &function, void **result) {
        if (active != function.device && !enter(function)) return false;
        *result = stream;
        return true;
    }

  private:
    bool enter(const GpuFunction &function);
    void leave();
    bool start(const GpuFunction &function, const unsigned *grid, void **parameters, const std::string &name);

    int32_t active = -1; // the current device; -1: not checked yet
    void *stream = nullptr, *guard = nullptr;
};

// Finds PyTorch's current stream on a device; false with an error set.
bool gpu_stream(int32_t device, void **stream);
// Whether work on this stream is recorded into a CUDA graph; false without an error if that is
// unknown.
bool gpu_recording(void *stream);

// Returns a function of the driver's library; null if there is none.
void *driver_symbol(const char *name);

// Loads `data` (machine code or PTX); nullptr with an error set.
const GpuFunction *gpu_load(const char *data, const std::string &symbol, int shared, int extra, int threads,
                            int device);

} // namespace frameloom
