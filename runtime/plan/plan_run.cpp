// Runs a plan.  Every call pays for what is done here.
//
// A call computes numbers and sizes, allocates outputs, runs the steps in order, and makes Python
// tensors of the outputs.
#include "plan_frame.h"

#include <alloca.h>

#include <cstring>
#include <new>

namespace frameloom {

namespace {

struct Call : Frame {
    using Frame::Frame;

    // Returns 1 if the plan must not draw random numbers in this call, else 0; -1 with an exception
    // set.  A recorded CUDA graph needs new numbers at every replay, which only PyTorch's own
    // kernels support; and which numbers dropout draws depends on addresses.
    int draws_otherwise() {
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

    // --- steps ---

    static bool as_number(PyObject *object, void **number) {
        if (object == nullptr) return false;
        unsigned long long value = PyLong_AsUnsignedLongLongMask(object);
        Py_DECREF(object);
        *number = reinterpret_cast<void *>((uintptr_t)value);
        return !PyErr_Occurred();
    }

    bool run_draw(const Draw &draw) {
        if (!as_number(PyObject_CallNoArgs(draw.get_seed), &data[draw.seed]) ||
            !as_number(PyObject_CallNoArgs(draw.get_offset), &data[draw.offset]))
            return false;
        uint64_t next = reinterpret_cast<uintptr_t>(data[draw.offset]) + (uint64_t)draw.increment;
        PyObject *given = PyLong_FromUnsignedLongLong(next);
        PyObject *done = given ? PyObject_CallOneArg(draw.set_offset, given) : nullptr;
        Py_XDECREF(given);
        Py_XDECREF(done);
        return done != nullptr;
    }

    bool run_kernel(const Kernel &kernel, void **pointers) {
        for (size_t i = 0; i < kernel.buffers.size(); i++) pointers[i] = data[kernel.buffers[i]];
        PyThreadState *state = kernel.release_gil ? PyEval_SaveThread() : nullptr;
        int failed = kernel.function(pointers, kernel.values.data());
        if (state) PyEval_RestoreThread(state);
        if (failed) PyErr_NoMemory();
        return !failed;
    }

    // Whether the function that was loaded for aligned pointers and sizes can be used.
    bool is_aligned(const Launch &launch) const { return !launch.uneven && has_aligned_pointers(launch); }

    bool has_aligned_pointers(const Launch &launch) const {
        uintptr_t bits = 0;
        for (int number : launch.doubtful) bits |= reinterpret_cast<uintptr_t>(data[number]);
        return bits % GPU_ALIGNMENT == 0;
    }

    // Returns 1 if it was launched as one graph, 0 if not, -1 with an exception set.
    int run_chain(const LaunchRun &run) {
        Chain &chain = *run.chain;
        void *stream;
        if (!gpu.find_stream(*chain.nodes[0].function, &stream)) return -1;
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
            if (sized == nullptr) continue;
            for (size_t i = 0; i < launch.values.size(); i++)
                chain.set(k, buffers.size() + i, launch.values[i]);
            chain.set_grid(k, launch.grid);
        }
        return chain.launch(stream);
    }

    bool run_launches(const LaunchRun &run, void **pointers, void **parameters) {
        int done = run_chain(run);
        if (done != 0) return done > 0;
        for (int number : run.launches)
            if (!run_launch(program.launches[number], pointers, parameters)) return false;
        return true;
    }

    bool run_launch(const Launch &launch, void **pointers, void **parameters) {
        if (launch.skipped) return true;
        const GpuFunction *function = function_for(launch, is_aligned(launch));
        if (function == nullptr) return false;
        size_t count = launch.buffers.size();
        for (size_t i = 0; i < count; i++) pointers[i] = data[launch.buffers[i]];
        for (void *value : launch.values) pointers[count++] = value;
        for (int i = 0; i < function->extra; i++) pointers[count + i] = nullptr;
        return gpu.launch(*function, launch.grid, parameters, launch.name);
    }

    bool run_list(const List &list, void **values, void **parameters) {
        ScratchMemory *table = &scratch->memory[program.buffers[list.table].arena];
        if (!list_fill(list, data, table, &gpu)) return false;
        values[0] = table->base;
        values[1] = data[list.fixed];
        values[2] = data[list.blocks];
        for (int i = 0; i < list.function->extra; i++) values[3 + i] = nullptr;
        return gpu.launch(*list.function, list.grid, parameters, list.name);
    }

    // Returns the function for these pointers and sizes; nullptr with an exception set.  All except
    // `launch.function` are compiled at their first use.
    static const GpuFunction *function_for(const Launch &launch, bool aligned) {
        if (!aligned && launch.unaligned != Py_None) return made(launch.unaligned, &launch.other);
        return launch.beyond ? made(launch.longer, &launch.longest) : launch.function;
    }

    static const GpuFunction *made(PyObject *by, const GpuFunction **cached) {
        if (*cached) return *cached;
        PyObject *handle = PyObject_CallNoArgs(by);
        if (handle == nullptr) return nullptr;
        *cached = static_cast<const GpuFunction *>(PyLong_AsVoidPtr(handle));
        Py_DECREF(handle);
        return *cached;
    }

    bool run_check(const Check &check) {
        if (*static_cast<const char *>(data[check.buffer]) == 0) return true;
        PyErr_SetObject(check.exception, check.message);
        return false;
    }

    bool run_steps() {
        void **pointers = static_cast<void **>(alloca((size_t)(program.widest_kernel + 1) * sizeof(void *)));
        size_t width = (size_t)program.widest_launch;
        void **values = static_cast<void **>(alloca((2 * width + 1) * sizeof(void *)));
        void **parameters = values + width; /* the driver takes a pointer to each value */
        for (size_t i = 0; i < width; i++) parameters[i] = &values[i];
        for (const Step &step : program.steps) {
            restarts = step.restarts;
            bool good = make(step.born);
            if (!good) return false;
            if (step.kind == Step::KERNEL)
                good = run_kernel(program.kernels[step.number], pointers);
            else if (step.kind == Step::RUN)
                good = run_launches(program.runs[step.number], values, parameters);
            else if (step.kind == Step::LIST)
                good = run_list(program.lists[step.number], values, parameters);
            else if (step.kind == Step::EXTERN)
                good = run_extern(program.externs[step.number]);
            else if (step.kind == Step::DRAW)
                good = run_draw(program.draws[step.number]);
            else if (step.kind == Step::READ)
                good = find_sizes((size_t)program.reads[step.number].sizes);
            else
                good = run_check(program.checks[step.number]);
            if (!good) return false;
            for (int number : step.dead_views) views[number].release();
            for (int number : step.dead_buffers) tensors[number].release();
            if (owned) {
                for (int number : step.dead_input_views) views[number].release();
                drop_inputs(step.dead_inputs);
            }
        }
        return true;
    }

    // --- results ---

    // An output that is a view is a new object, even if an input or an earlier output is the same
    // view.
    PyObject *output(const Output &source) {
        if (source.kind == Output::INPUT) return Py_NewRef(inputs[source.number]);
        if (source.kind == Output::CONSTANT) return Py_NewRef(source.constant);
        if (source.kind == Output::SIZE)
            return PyLong_FromLongLong(program.sizes.values[(size_t)source.number]);
        const View &wanted = program.views[source.number];
        if (wanted.buffer < program.input_count)
            return tensor_strided_view(inputs[wanted.buffer], wanted.layout, wanted.offset);
        if (source.base >= 0) {
            Tensor *all = view(source.base, false);
            PyObject *base = all ? tensor_object(all) : nullptr;
            if (base == nullptr) return nullptr;
            const View &seen = program.views[source.base];
            int64_t before = seen.offset * seen.layout.item_size / wanted.layout.item_size;
            return tensor_strided_view(base, wanted.layout, wanted.offset - before);
        }
        Tensor *tensor = view(source.number, false);
        return tensor ? Py_XNewRef(tensor_object(tensor)) : nullptr;
    }

    // Steals the reference to `item`.
    [[gnu::noinline]] static PyObject *read_lazily(PyObject *item, PyObject *calls) {
        for (Py_ssize_t k = 0; item && k < PyTuple_GET_SIZE(calls); k++) {
            PyObject *made = PyObject_CallOneArg(PyTuple_GET_ITEM(calls, k), item);
            Py_SETREF(item, made);
        }
        return item;
    }

    PyObject *results(NoGrad &no_grad) {
        PyObject *result = PyTuple_New((Py_ssize_t)program.outputs.size());
        for (size_t i = 0; i < program.outputs.size() && result; i++) {
            no_grad.set(!program.outputs[i].recorded);
            int first = program.outputs[i].first;
            PyObject *item =
                first < 0 ? output(program.outputs[i]) : Py_NewRef(PyTuple_GET_ITEM(result, first));
            if (program.outputs[i].lazy && first < 0) item = read_lazily(item, program.outputs[i].lazy);
            if (item)
                PyTuple_SET_ITEM(result, (Py_ssize_t)i, item);
            else
                Py_CLEAR(result);
        }
        return result;
    }
};

bool takes(const Plan *plan, Py_ssize_t given) {
    if (plan->program == nullptr)
        PyErr_SetString(PyExc_RuntimeError, "this plan has been torn down");
    else if (given != plan->program->input_count)
        PyErr_Format(PyExc_TypeError, "the plan takes %d inputs, %zd were given", plan->program->input_count,
                     given);
    else
        return true;
    return false;
}

// Returns a program with sizes that no other call uses; nullptr with an exception set.
[[gnu::noinline]] Program *program_alone(Plan *plan) {
    Program *program = plan->program;
    for (; program && program->in_use; program = program->next.get()) {
    }
    if (program == nullptr) {
        std::unique_ptr<Program> made = program_parse(plan->spec);
        if (made == nullptr) return nullptr;
        program = made.get();
        made->next = std::move(plan->program->next);
        plan->program->next = std::move(made);
    }
    program->in_use = true;
    return program;
}

PyObject *run(Plan *plan, PyObject *const *inputs, PyObject **owned);

// Runs the plan that was compiled for the sizes of this call; it frees `owned`.
PyObject *run_other(PyObject *plan, PyObject *const *inputs, PyObject **owned) {
    Py_INCREF(plan);
    PyObject *results = run(reinterpret_cast<Plan *>(plan), inputs, owned);
    Py_DECREF(plan);
    return results;
}

// `owned`: the inputs if the call frees them, else null.
PyObject *run(Plan *plan, PyObject *const *inputs, PyObject **owned) {
    plan->calls++;
    PyObject *cached = plan->hot_shapes ? plan->hot_shapes->cached_plan(plan->program->sizes.stamp) : nullptr;
    if (cached) {
        int same = sizes_same(plan->program, inputs);
        if (same > 0) return run_other(cached, inputs, owned);
        if (same < 0) {
            for (int i = 0; i < plan->program->input_count && owned; i++) Py_CLEAR(owned[i]);
            return nullptr;
        }
    }
    constexpr size_t ON_STACK = 256;
    size_t buffers = plan->program->buffers.size(), count = buffers + plan->program->views.size();
    size_t bytes = count * sizeof(Tensor) + buffers * sizeof(void *);
    std::unique_ptr<char[]> on_heap(count > ON_STACK ? new char[bytes] : nullptr);
    char *room = on_heap ? on_heap.get() : static_cast<char *>(alloca(bytes));
    std::memset(room, 0, bytes);
    Tensor *tensors = reinterpret_cast<Tensor *>(room);
    Program *sized = plan->program->is_sized ? program_alone(plan) : nullptr;
    const Program &program = sized ? *sized : *plan->program;
    Call frame(plan, program, sized, inputs, tensors, tensors + buffers,
               reinterpret_cast<void **>(tensors + count));
    frame.owned = owned;
    if (program.is_sized && !sized) return nullptr;
    if (!frame.take_inputs() || !frame.find_addresses()) return nullptr;
    // Guards do not check saved tensors: a program may have replaced one by another tensor.
    if (!frame.find_numbers() || (sized && !frame.find_sizes(0)) ||
        (sized && program.owned && !frame.inputs_fit())) {
        frame.owned = nullptr; // a refused call frees nothing
        return nullptr;
    }
    if (sized && plan->hot_shapes) {
        PyObject *other = plan->hot_shapes->record(reinterpret_cast<PyObject *>(plan), program);
        if (other) {
            frame.owned = nullptr;
            return run_other(other, inputs, owned);
        }
    }
    if (!program.draws.empty()) {
        int otherwise = frame.draws_otherwise();
        if (otherwise < 0) return nullptr;
        if (otherwise > 0)
            return PyObject_Vectorcall(program.otherwise, inputs, (size_t)program.input_count, nullptr);
    }
    if (owned) frame.drop_inputs(program.unused);
    NoGrad no_grad(program.calls_torch);
    PyObject *before = program.remember ? PyObject_CallNoArgs(program.remember) : nullptr;
    if (program.remember && before == nullptr) return nullptr;
    bool good = frame.take_scratch() && frame.make(program.made) && frame.run_steps();
    if (!good) frame.fail(before);
    Py_XDECREF(before);
    return good ? frame.results(no_grad) : nullptr;
}

// Puts the inputs of a refused call back into the list; other calls have freed theirs.
void give_back(PyObject *list, const std::vector<PyObject *> &owned) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    for (PyObject *object : owned) {
        if (object == nullptr) continue;
        if (PyList_Append(list, object) < 0) PyErr_Clear();
        Py_DECREF(object);
    }
    PyErr_Restore(type, error, traceback);
}

} // namespace

PyObject *plan_run(Plan *plan, PyObject *const *inputs, size_t nargsf, PyObject *names) try {
    if (names && PyTuple_GET_SIZE(names))
        return PyErr_Format(PyExc_TypeError, "the plan takes no named inputs");
    return takes(plan, PyVectorcall_NARGS(nargsf)) ? run(plan, inputs, nullptr) : nullptr;
} catch (const std::bad_alloc &) {
    return PyErr_NoMemory();
}

PyObject *plan_consume(Plan *plan, PyObject *list) try {
    if (!PyList_Check(list)) return PyErr_Format(PyExc_TypeError, "consume takes a list");
    Py_ssize_t count = PyList_GET_SIZE(list);
    if (!takes(plan, count)) return nullptr;
    std::vector<PyObject *> owned((size_t)count);
    for (Py_ssize_t i = 0; i < count; i++) owned[(size_t)i] = Py_NewRef(PyList_GET_ITEM(list, i));
    if (PyList_SetSlice(list, 0, count, nullptr) < 0) {
        for (PyObject *object : owned) Py_DECREF(object);
        return nullptr;
    }
    PyObject *results = run(plan, owned.data(), owned.data());
    if (results == nullptr) give_back(list, owned);
    return results;
} catch (const std::bad_alloc &) {
    return PyErr_NoMemory();
}

} // namespace frameloom
