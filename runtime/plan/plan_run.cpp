// Calls a plan from Python: the executor runs it, and its outputs become Python objects.  Every call
// pays for what is done here.
#include "frame.h"
#include "plan.h"

#include <alloca.h>

#include <cstring>
#include <new>

namespace frameloom {

namespace {

struct Call : Frame {
    using Frame::Frame;

    // Replaces the exception that is set if the call restarts as plain Python.
    [[gnu::noinline, gnu::cold]] void fail(PyObject *before) {
        if (!restarts || !program.restart || !PyErr_ExceptionMatches(PyExc_Exception)) return;
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        PyObject *given[] = {value, before ? before : Py_None};
        PyObject *nothing = PyObject_Vectorcall(program.restart, given, 2, nullptr);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        Py_XDECREF(nothing);
        if (nothing) PyErr_SetString(PyExc_SystemError, "a call that starts anew raises");
    }

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

    // Steals the reference to `item`.
    [[gnu::noinline]] static PyObject *with_count(PyObject *item, int writes) {
        PyObject *fallback = python_torch()->fallback;
        PyObject *counted = item ? PyObject_CallMethod(fallback, "with_count", "Oi", item, writes) : nullptr;
        Py_XDECREF(item);
        return counted;
    }

    PyObject *results(NoGrad &no_grad) {
        PyObject *result = PyTuple_New((Py_ssize_t)program.outputs.size());
        for (size_t i = 0; i < program.outputs.size() && result; i++) {
            no_grad.set(!program.outputs[i].recorded);
            int first = program.outputs[i].first;
            PyObject *item =
                first < 0 ? output(program.outputs[i]) : Py_NewRef(PyTuple_GET_ITEM(result, first));
            if (program.outputs[i].writes >= 0 && first < 0)
                item = with_count(item, program.outputs[i].writes);
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
    Program *sized = plan->program->sizes.any() ? program_alone(plan) : nullptr;
    const Program &program = sized ? *sized : *plan->program;
    Call frame(&plan->scratch, program, sized, inputs, tensors, tensors + buffers,
               reinterpret_cast<void **>(tensors + count));
    frame.owned = owned;
    if (program.sizes.any() && !sized) return nullptr;
    if (!frame.begin()) return nullptr;
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
    bool good = frame.run();
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
