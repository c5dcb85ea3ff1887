// Runs a plan: the part that every call pays for.
//
// Outputs are allocated first, then the steps run in order, then the outputs become Python tensors.
// Everything that a call makes belongs to its Frame and goes with it, whatever fails.
#include "plan.h"

#include <alloca.h>

#include <cstring>
#include <new>

namespace frameloom {

namespace {

struct Frame {
    Plan *plan;
    const Program &program;
    PyObject *const *inputs;
    Tensor *tensors; // per buffer
    Tensor *views;   // per view; those of scratch memory and constants are kept elsewhere
    void **data;     // per buffer: what kernels are given
    Scratch *scratch = nullptr;
    PyObject **owned = nullptr; // `inputs`, where this call is to let go of them
    Program *const sized;       // `program`, where it has sizes: this call's alone
    Gpu gpu;

    Frame(Plan *plan, const Program &program, Program *sized, PyObject *const *inputs, Tensor *tensors,
          Tensor *views, void **data)
        : plan(plan), program(program), inputs(inputs), tensors(tensors), views(views), data(data),
          sized(sized) {}
    Frame(const Frame &) = delete;

    ~Frame() {
        for (size_t i = 0; i < program.views.size(); i++) views[i].release();
        for (size_t i = program.input_count; i < program.buffers.size(); i++) tensors[i].release();
        for (int i = 0; i < program.input_count && owned; i++) Py_XDECREF(owned[i]);
        if (scratch) give_back_scratch();
        if (sized) sized->in_use = false;
    }

    void give_back_scratch() {
        /* A call that ran meanwhile may have put its own back. */
        if (plan->scratch == nullptr) {
            scratch->give_back(program);
            plan->scratch = scratch;
        } else {
            delete scratch;
        }
    }

    bool take_inputs() {
        for (int number : program.tensor_inputs)
            if (!tensor_borrow(inputs[number], &tensors[number])) return false;
        return true;
    }

    bool take_scratch() {
        if (!program.keeps_scratch) return true;
        scratch = plan->scratch;
        plan->scratch = nullptr;
        if (scratch == nullptr) scratch = new Scratch(program.arenas.size(), program.views.size());
        if (!scratch->take(program)) return false;
        for (int number : program.scratch) {
            const Buffer &buffer = program.buffers[number];
            data[number] = static_cast<char *>(scratch->memory[buffer.arena].base) + buffer.offset;
        }
        return true;
    }

    void drop_inputs(const std::vector<int> &numbers) {
        for (int number : numbers) {
            tensors[number] = Tensor{};
            Py_CLEAR(owned[number]);
        }
    }

    // False with an exception set: the call is left to Python.
    bool find_numbers() {
        bool good = true;
        for (int number : program.number_inputs)
            good = good && number_bits(inputs[number], program.buffers[number].is_float, &data[number]);
        for (const NumberStep &step : program.numbers) good = good && number_run(step, data);
        if (!good) PyErr_SetNone(program.refused);
        return good;
    }

    // False with an exception set: the call is left to Python where it did not begin.
    bool find_sizes(size_t group) {
        int done = sizes_update(sized, &sized->sizes.groups[group], tensors, data);
        if (scratch && scratch->stamp != sized->sizes.stamp) {
            scratch->forget(sized->sizes.groups[group]);
            scratch->stamp = sized->sizes.stamp;
        }
        if (done == 0 && group == 0) PyErr_SetNone(program.refused);
        if (done == 0 && group > 0)
            PyErr_SetString(PyExc_RuntimeError, "what a library call returned leads to impossible sizes");
        return done > 0;
    }

    // Fresh tensors for these buffers.
    bool make(const std::vector<int> &numbers) {
        for (int number : numbers)
            if (!tensor_empty(program.buffers[number].layout, &tensors[number]) ||
                !tensor_data(tensors[number], &data[number]))
                return false;
        return true;
    }

    bool find_addresses() {
        for (int number : program.addressed) {
            const Buffer &buffer = program.buffers[number];
            if (buffer.kind == Buffer::CONSTANT && !tensor_borrow(buffer.constant, &tensors[number]))
                return false;
            if (!tensor_data(tensors[number], &data[number])) return false;
        }
        return true;
    }

    // The tensor of a view, borrowed; nullptr with an exception set.  A C function reads it during one call
    // and keeps nothing; what is handed to Python has to keep its memory alive.
    Tensor *view(int number, bool for_c) {
        const View &view = program.views[number];
        const Buffer &buffer = program.buffers[view.buffer];
        Tensor *base = &tensors[view.buffer];
        if (buffer.kind == Buffer::ARENA) {
            Tensor *placed = &scratch->views[number];
            if (placed->present()) return placed;
            int64_t offset = buffer.offset + view.offset * view.layout.item_size;
            return tensor_in_pool(scratch->memory[buffer.arena].tensor, view.layout, offset, placed)
                       ? placed
                       : nullptr;
        }
        if (buffer.kind == Buffer::CONSTANT && !base->present() && !tensor_borrow(buffer.constant, base))
            return nullptr;
        if (view.whole) return base;
        if (for_c && view.layout.dtype >= 0 &&
            (buffer.kind == Buffer::INPUT || buffer.kind == Buffer::CONSTANT))
            return lasting_view(number, *base);
        Tensor *result = &views[number];
        if (result->present()) return result;
        return tensor_view(*base, buffer.layout, view.layout, view.offset, result) ? result : nullptr;
    }

    // Weights lie where they lay in the last call, and so do the views of them.
    Tensor *lasting_view(int number, const Tensor &base) {
        Tensor *result = &scratch->views[number];
        void *address;
        if (!tensor_data(base, &address)) return nullptr;
        if (result->present() && scratch->addresses[number] == address) return result;
        const View &view = program.views[number];
        result->release();
        scratch->addresses[number] = address;
        char *start = static_cast<char *>(address) + view.offset * view.layout.item_size;
        return tensor_at(start, view.layout, program.buffers[view.buffer].layout, result) ? result : nullptr;
    }

    // 1: random numbers are drawn by others in this call.  What is recorded into a graph gets new ones at
    // every replay, which only PyTorch's own kernels know of; and which ones dropout draws depends on
    // addresses.
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

    void run_kernel(const Kernel &kernel, void **pointers) {
        for (size_t i = 0; i < kernel.buffers.size(); i++) pointers[i] = data[kernel.buffers[i]];
        PyThreadState *state = kernel.release_gil ? PyEval_SaveThread() : nullptr;
        kernel.function(pointers, kernel.values.data());
        if (state) PyEval_RestoreThread(state);
    }

    // Whether the function that is loaded for it serves.
    bool is_aligned(const Launch &launch) const {
        uintptr_t bits = 0;
        for (int number : launch.doubtful) bits |= reinterpret_cast<uintptr_t>(data[number]);
        return bits % GPU_ALIGNMENT == 0;
    }

    // 1 launched as one graph, 0 not, -1 exception.
    int run_chain(const LaunchRun &run) {
        Chain &chain = *run.chain;
        void *stream;
        if (!gpu.find_stream(*chain.nodes[0].function, &stream)) return -1;
        if (!chain.serves(stream) || gpu_recording(stream)) return 0;
        for (int number : run.launches)
            if (!is_aligned(program.launches[number]) || program.launches[number].skipped) return 0;
        for (size_t k = 0; k < run.launches.size(); k++) {
            const Launch &launch = program.launches[run.launches[k]];
            const std::vector<int> &buffers = launch.buffers;
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
        const GpuFunction *function = launch.function;
        if (launch.skipped) return true;
        if (!is_aligned(launch) && !unaligned(launch, &function)) return false;
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

    // The function for pointers that are not multiples of 16: compiled when it is first wanted.
    static bool unaligned(const Launch &launch, const GpuFunction **function) {
        if (launch.other == nullptr && launch.unaligned != Py_None) {
            PyObject *made = PyObject_CallNoArgs(launch.unaligned);
            if (made == nullptr) return false;
            launch.other = static_cast<const GpuFunction *>(PyLong_AsVoidPtr(made));
            Py_DECREF(made);
            if (PyErr_Occurred()) return false;
        }
        if (launch.other) *function = launch.other;
        return true;
    }

    // Takes what a library call returned, which is there by now, as the tensors of its buffers.
    bool adopt(const Extern &call) {
        if (call.sizes >= 0 && !find_sizes((size_t)call.sizes)) return false;
        for (int number : call.results)
            if (number >= 0 && !adopt(number)) return false;
        return true;
    }

    bool adopt(int number) {
        const Layout &layout = program.buffers[number].layout;
        Tensor *tensor = &tensors[number];
        int matches = tensor_matches(tensor, layout);
        if (matches < 0) return false;
        if (matches == 0 && !tensor_restride(tensor, layout)) return false;
        if (!tensor_data(*tensor, &data[number])) return false;
        /* The call handed out a view of scratch memory, which later steps overwrite. */
        return !in_scratch(data[number]) ||
               (tensor_restride(tensor, layout) && tensor_data(*tensor, &data[number]));
    }

    bool in_scratch(const void *address) const {
        for (size_t i = 0; i < program.arenas.size() && scratch; i++) {
            const char *start = static_cast<const char *>(scratch->memory[i].base);
            if (start && address >= start && address < start + scratch->memory[i].bytes) return true;
        }
        return false;
    }

    // 1 done, 0 the C function reported an error (Python then raises it), -1 exception.
    int run_shim(const Extern &call) {
        const ShimCall &shim = call.shim;
        size_t count = shim.arguments.size(), lists = 0;
        for (const ShimArgument &argument : shim.arguments)
            lists += argument.is_list() ? argument.views.size() : 0;
        ShimValue values[16];
        Handle *list = static_cast<Handle *>(alloca((lists + 1) * sizeof(Handle)));
        const Handle **optional = static_cast<const Handle **>(alloca((lists + 1) * sizeof(Handle *)));
        for (size_t i = 0; i < count; i++) {
            const ShimArgument &argument = shim.arguments[i];
            values[i] = argument.value;
            if (argument.type == 'I') {
                values[i].integers = argument.integers.data();
                values[i].count = (int64_t)argument.integers.size();
            } else if (argument.is_list()) {
                values[i].tensors = list;
                values[i].optionals = optional;
                values[i].count = (int64_t)argument.views.size();
            }
            for (int number : argument.views) {
                Tensor *tensor = number < 0 ? nullptr : view(number, true);
                if (number >= 0 && tensor == nullptr) return -1;
                if (tensor && tensor->handle == nullptr) return 0;
                values[i].tensor = tensor ? tensor->handle : nullptr;
                if (!argument.is_list()) continue;
                *list = values[i].tensor;
                *optional++ = tensor ? list : nullptr;
                list++;
            }
        }
        Handle results[SHIM_RESULTS] = {};
        Tensor fresh{};
        if (call.out_form) {
            for (size_t i = 0; i < call.results.size(); i++) {
                Tensor *tensor = view(call.result_views[i], true);
                if (tensor == nullptr) return -1;
                results[i] = tensor->handle;
            }
        } else if (shim.shim->out) {
            if (call.results[0] < 0) return 1; // nothing uses the only result
            if (!tensor_empty(program.buffers[call.results[0]].layout, &fresh)) return -1;
            results[0] = fresh.handle;
        }
        PyThreadState *state = call.release_gil ? PyEval_SaveThread() : nullptr;
        int32_t error = shim.shim->invoke(shim.function, values, results);
        if (state) PyEval_RestoreThread(state);
        if (error || call.out_form) {
            fresh.release();
            return error == 0;
        }
        for (size_t i = 0; i < call.results.size(); i++) {
            Tensor tensor =
                shim.shim->out ? fresh : Tensor{results[i], nullptr, results[i] != nullptr, false};
            put(call.results[i], tensor);
        }
        return adopt(call) ? 1 : -1;
    }

    // A result that is there, -1: nothing uses it.
    void put(int number, Tensor tensor) {
        if (number >= 0) std::swap(tensors[number], tensor);
        tensor.release();
    }

    // New reference; nullptr with an exception set.
    PyObject *argument(const Argument &source) {
        if (source.kind == Argument::OBJECT) return Py_NewRef(source.object);
        if (source.kind == Argument::INPUT) return Py_NewRef(inputs[source.number]);
        if (source.kind == Argument::NUMBER)
            return number_object(data[source.number], program.buffers[source.number].is_float);
        if (source.kind == Argument::SIZE)
            return PyLong_FromLongLong(program.sizes.values[(size_t)source.number]);
        if (source.kind == Argument::VIEW) {
            Tensor *tensor = view(source.number, false);
            return tensor ? Py_XNewRef(tensor_object(tensor)) : nullptr;
        }
        Py_ssize_t count = (Py_ssize_t)source.items.size();
        PyObject *result = source.kind == Argument::LIST ? PyList_New(count) : PyTuple_New(count);
        for (Py_ssize_t i = 0; i < count && result; i++) {
            PyObject *item = argument(source.items[i]);
            if (item == nullptr)
                Py_CLEAR(result);
            else if (source.kind == Argument::LIST)
                PyList_SET_ITEM(result, i, item);
            else
                PyTuple_SET_ITEM(result, i, item);
        }
        return result;
    }

    bool set_named(PyObject *kwargs, const std::string &name, PyObject *value) {
        bool good = value && PyDict_SetItemString(kwargs, name.c_str(), value) == 0;
        Py_XDECREF(value);
        return good;
    }

    bool set_out(const Extern &call, PyObject *kwargs) {
        PyObject *all = PyTuple_New((Py_ssize_t)call.results.size());
        bool good = all != nullptr;
        for (size_t i = 0; i < call.results.size() && good; i++) {
            Tensor *tensor = view(call.result_views[i], false);
            PyObject *object = tensor ? tensor_object(tensor) : nullptr;
            good = object != nullptr;
            if (good) PyTuple_SET_ITEM(all, (Py_ssize_t)i, Py_NewRef(object));
        }
        if (good && call.out_names.size() > 1)
            for (size_t i = 0; i < call.out_names.size() && good; i++)
                good = set_named(kwargs, call.out_names[i], Py_NewRef(PyTuple_GET_ITEM(all, (Py_ssize_t)i)));
        else if (good)
            good = set_named(kwargs, call.out_names[0],
                             Py_NewRef(call.results.size() == 1 ? PyTuple_GET_ITEM(all, 0) : all));
        Py_XDECREF(all);
        return good;
    }

    bool take_results(const Extern &call, PyObject *returned) {
        bool several = PyTuple_Check(returned) || PyList_Check(returned);
        size_t count = several ? (size_t)PySequence_Fast_GET_SIZE(returned) : 1;
        for (size_t i = 0; i < call.results.size(); i++) {
            if (call.results[i] < 0) continue;
            if (i >= count) {
                PyErr_Format(PyExc_RuntimeError, "%R returned %zu results, planned were %zu", call.function,
                             count, call.results.size());
                return false;
            }
            Tensor tensor{};
            PyObject *result = several ? PySequence_Fast_GET_ITEM(returned, (Py_ssize_t)i) : returned;
            if (!tensor_adopt(Py_NewRef(result), &tensor)) return false;
            put(call.results[i], tensor);
        }
        return adopt(call);
    }

    bool run_python(const Extern &call) {
        PyObject *args = PyTuple_New((Py_ssize_t)call.positional), *kwargs = PyDict_New(),
                 *returned = nullptr;
        bool good = args && kwargs;
        for (size_t i = 0; i < call.arguments.size() && good; i++) {
            PyObject *value = argument(call.arguments[i]);
            if (i < call.positional) {
                good = value != nullptr;
                if (good) PyTuple_SET_ITEM(args, (Py_ssize_t)i, value);
            } else {
                good = set_named(kwargs, call.names[i - call.positional], value);
            }
        }
        if (good && call.out_form) good = set_out(call, kwargs);
        if (good) returned = PyObject_Call(call.native ? call.native : call.function, args, kwargs);
        Py_XDECREF(args);
        Py_XDECREF(kwargs);
        good = returned && (call.out_form || take_results(call, returned));
        Py_XDECREF(returned);
        return good;
    }

    bool run_extern(const Extern &call) {
        if (call.shim.shim) {
            int done = run_shim(call);
            if (done != 0) return done > 0;
        }
        return run_python(call);
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
        void **parameters = values + width; /* the driver wants to be told where each value is */
        for (size_t i = 0; i < width; i++) parameters[i] = &values[i];
        for (const Step &step : program.steps) {
            bool good = make(step.born);
            if (!good) return false;
            if (step.kind == Step::KERNEL)
                run_kernel(program.kernels[step.number], pointers);
            else if (step.kind == Step::RUN)
                good = run_launches(program.runs[step.number], values, parameters);
            else if (step.kind == Step::LIST)
                good = run_list(program.lists[step.number], values, parameters);
            else if (step.kind == Step::EXTERN)
                good = run_extern(program.externs[step.number]);
            else if (step.kind == Step::DRAW)
                good = run_draw(program.draws[step.number]);
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

    // A view that autograd and `_base` know; made by eager PyTorch itself.
    static PyObject *view_of(PyObject *base, const View &view, int64_t offset) {
        return PyObject_CallMethod(torch_api()->fallback, "strided_view", "OLNNO", base, (long long)offset,
                                   view.layout.shape_tuple(), view.layout.stride_tuple(),
                                   view.layout.dtype_object);
    }

    // An output that is a view is an object of its own, even where it shows what an input or an earlier
    // output shows.
    PyObject *output(const Output &source, PyObject *earlier) {
        if (source.kind == Output::INPUT) return Py_NewRef(inputs[source.number]);
        if (source.kind == Output::CONSTANT) return Py_NewRef(source.constant);
        if (source.kind == Output::SIZE)
            return PyLong_FromLongLong(program.sizes.values[(size_t)source.number]);
        const View &wanted = program.views[source.number];
        if (wanted.buffer < program.input_count) return view_of(inputs[wanted.buffer], wanted, wanted.offset);
        if (source.repeats >= 0) return view_of(PyTuple_GET_ITEM(earlier, source.repeats), wanted, 0);
        Tensor *tensor = view(source.number, false);
        return tensor ? Py_XNewRef(tensor_object(tensor)) : nullptr;
    }

    PyObject *results() {
        PyObject *result = PyTuple_New((Py_ssize_t)program.outputs.size());
        for (size_t i = 0; i < program.outputs.size() && result; i++) {
            PyObject *item = output(program.outputs[i], result);
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

// A program with sizes that no other call has; nullptr with an exception set.
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

// `owned`: null, or the inputs as a call finds them that is to let go of them.
PyObject *run(Plan *plan, PyObject *const *inputs, PyObject **owned) {
    constexpr size_t ON_STACK = 256;
    size_t buffers = plan->program->buffers.size(), count = buffers + plan->program->views.size();
    size_t bytes = count * sizeof(Tensor) + buffers * sizeof(void *);
    std::unique_ptr<char[]> on_heap(count > ON_STACK ? new char[bytes] : nullptr);
    char *room = on_heap ? on_heap.get() : static_cast<char *>(alloca(bytes));
    std::memset(room, 0, bytes);
    Tensor *tensors = reinterpret_cast<Tensor *>(room);
    plan->calls++;
    Program *sized = plan->program->is_sized ? program_alone(plan) : nullptr;
    const Program &program = sized ? *sized : *plan->program;
    Frame frame(plan, program, sized, inputs, tensors, tensors + buffers,
                reinterpret_cast<void **>(tensors + count));
    frame.owned = owned;
    if (program.is_sized && !sized) return nullptr;
    if (!frame.take_inputs() || !frame.find_addresses() || !frame.find_numbers()) return nullptr;
    if (sized && !frame.find_sizes(0)) return nullptr;
    if (!program.draws.empty()) {
        int otherwise = frame.draws_otherwise();
        if (otherwise < 0) return nullptr;
        if (otherwise > 0)
            return PyObject_Vectorcall(program.otherwise, inputs, (size_t)program.input_count, nullptr);
    }
    if (owned) frame.drop_inputs(program.unused);
    if (!frame.take_scratch() || !frame.make(program.made) || !frame.run_steps()) return nullptr;
    return frame.results();
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
    return run(plan, owned.data(), owned.data());
} catch (const std::bad_alloc &) {
    return PyErr_NoMemory();
}

} // namespace frameloom
