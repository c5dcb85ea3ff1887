// Runs the steps of a program in order.  Every call pays for what is done here.
#include "frame.h"

#include <alloca.h>

namespace frameloom {

namespace {

class Steps {
  public:
    // Room for what a kernel gets: `pointers` on the CPU; on a GPU `values`, and in `parameters` a
    // pointer to each value.
    Steps(Frame &frame, void **pointers, void **values, void **parameters)
        : frame(frame), program(frame.program), data(frame.data), pointers(pointers), values(values),
          parameters(parameters) {}

    bool run() {
        for (const Step &step : program.steps) {
            frame.restarts = step.restarts;
            bool good = frame.make(step.born);
            if (!good) return false;
            if (step.kind == Step::KERNEL)
                good = kernel(program.kernels[step.number]);
            else if (step.kind == Step::RUN)
                good = launches(program.runs[step.number]);
            else if (step.kind == Step::LIST)
                good = list(program.lists[step.number]);
            else if (step.kind == Step::EXTERN)
                good = frame.run_extern(program.externs[step.number]);
            else if (step.kind == Step::DRAW)
                good = draw(program.draws[step.number]);
            else if (step.kind == Step::READ)
                good = frame.find_sizes((size_t)program.reads[step.number].sizes);
            else
                good = check(program.checks[step.number]);
            if (!good) return false;
            free_dead(step);
        }
        return true;
    }

  private:
    Frame &frame;
    const Program &program;
    void **const data, **const pointers, **const values, **const parameters;

    void free_dead(const Step &step) {
        for (int number : step.dead_views) frame.views[number].release();
        for (int number : step.dead_buffers) frame.tensors[number].release();
        if (frame.owned) {
            for (int number : step.dead_input_views) frame.views[number].release();
            frame.drop_inputs(step.dead_inputs);
        }
    }

    bool draw(const Draw &draw) {
        uint64_t seed = 0, offset = 0;
        if (!host::draw(draw, &seed, &offset)) return false;
        data[draw.seed] = reinterpret_cast<void *>((uintptr_t)seed);
        data[draw.offset] = reinterpret_cast<void *>((uintptr_t)offset);
        return true;
    }

    bool kernel(const Kernel &kernel) {
        for (size_t i = 0; i < kernel.buffers.size(); i++) pointers[i] = data[kernel.buffers[i]];
        void *left = kernel.leaves_lock ? host::leave_lock() : nullptr;
        int failed = kernel.function(pointers, kernel.values.data());
        if (left) host::take_lock(left);
        return !failed || host::raise(Error::MEMORY, nullptr);
    }

    // Whether the function that was loaded for aligned pointers and sizes can be used.
    bool is_aligned(const Launch &launch) const { return !launch.uneven && has_aligned_pointers(launch); }

    bool has_aligned_pointers(const Launch &launch) const {
        uintptr_t bits = 0;
        for (int number : launch.doubtful) bits |= reinterpret_cast<uintptr_t>(data[number]);
        return bits % GPU_ALIGNMENT == 0;
    }

    // Returns 1 if it was launched as one graph, 0 if not, -1 with an error set.
    int as_graph(const LaunchRun &run) {
        Chain &chain = *run.chain;
        void *stream;
        if (!frame.gpu.find_stream(*chain.nodes[0].function, &stream)) return -1;
        if (!chain.serves(stream) || gpu_recording(stream)) return 0;
        for (int number : run.launches)
            if (!has_aligned_pointers(program.launches[number]) || program.launches[number].skipped) return 0;
        for (size_t k = 0; k < run.launches.size(); k++) {
            const Launch &launch = program.launches[run.launches[k]];
            const std::vector<int> &buffers = launch.buffers;
            const GpuFunction *function = function_for(launch, !launch.uneven);
            if (function == nullptr) return -1;
            if (function->extra != launch.function->extra) return 0;
            chain.set_function(k, function);
            for (size_t i = 0; i < buffers.size(); i++) chain.set(k, i, data[buffers[i]]);
            if (frame.sized == nullptr) continue;
            for (size_t i = 0; i < launch.values.size(); i++)
                chain.set(k, buffers.size() + i, launch.values[i]);
            chain.set_grid(k, launch.grid);
        }
        return chain.launch(stream);
    }

    bool launches(const LaunchRun &run) {
        int done = as_graph(run);
        if (done != 0) return done > 0;
        for (int number : run.launches)
            if (!launch(program.launches[number])) return false;
        return true;
    }

    bool launch(const Launch &launch) {
        if (launch.skipped) return true;
        const GpuFunction *function = function_for(launch, is_aligned(launch));
        if (function == nullptr) return false;
        size_t count = launch.buffers.size();
        for (size_t i = 0; i < count; i++) values[i] = data[launch.buffers[i]];
        for (void *value : launch.values) values[count++] = value;
        for (int i = 0; i < function->extra; i++) values[count + i] = nullptr;
        return frame.gpu.launch(*function, launch.grid, parameters, launch.name);
    }

    bool list(const List &list) {
        ScratchMemory *table = &frame.scratch->memory[program.buffers[list.table].arena];
        if (!list_fill(list, data, table, &frame.gpu)) return false;
        values[0] = table->base;
        values[1] = data[list.fixed];
        values[2] = data[list.blocks];
        for (int i = 0; i < list.function->extra; i++) values[3 + i] = nullptr;
        return frame.gpu.launch(*list.function, list.grid, parameters, list.name);
    }

    // Returns the function for these pointers and sizes; nullptr with an error set.  All except
    // `launch.function` are compiled at their first use.
    static const GpuFunction *function_for(const Launch &launch, bool aligned) {
        if (!aligned && launch.unaligned) return loaded(launch.unaligned, &launch.other);
        return launch.beyond ? loaded(launch.longer, &launch.longest) : launch.function;
    }

    static const GpuFunction *loaded(Object *by, const GpuFunction **cached) {
        if (*cached == nullptr) *cached = host::load_function(by);
        return *cached;
    }

    bool check(const Check &check) {
        return *static_cast<const char *>(data[check.buffer]) == 0 ||
               host::raise_object(check.exception, check.message);
    }
};

} // namespace

// A recorded CUDA graph needs new numbers at every replay, which only PyTorch's own kernels support;
// and which numbers dropout draws depends on addresses.
int Frame::draws_otherwise() const {
    for (const Draw &draw : program.draws) {
        void *address, *stream;
        if (draw.aligned >= 0) {
            if (!tensor_data(tensors[draw.aligned], &address)) return -1;
            if (reinterpret_cast<uintptr_t>(address) % DRAW_ALIGNMENT) return 1;
        }
        if (draw.device >= 0) {
            if (!gpu_stream(draw.device, &stream)) return -1;
            if (gpu_recording(stream)) return 1;
        }
    }
    return 0;
}

bool Frame::run_steps() {
    void **pointers = static_cast<void **>(alloca((size_t)(program.widest_kernel + 1) * sizeof(void *)));
    size_t width = (size_t)program.widest_launch;
    void **values = static_cast<void **>(alloca((2 * width + 1) * sizeof(void *)));
    void **parameters = values + width;
    for (size_t i = 0; i < width; i++) parameters[i] = &values[i];
    return Steps(*this, pointers, values, parameters).run();
}

} // namespace frameloom
