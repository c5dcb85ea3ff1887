// One call of a plan: what it has been given, what it makes, and the tensors of views.
//
// Everything that a call makes belongs to its Frame and goes with it, whatever fails.
#pragma once

#include "plan.h"

namespace frameloom {

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
    bool restarts = true; // whether a failure means that the call starts anew

    Frame(Plan *plan, const Program &program, Program *sized, PyObject *const *inputs, Tensor *tensors,
          Tensor *views, void **data)
        : plan(plan), program(program), inputs(inputs), tensors(tensors), views(views), data(data),
          sized(sized) {}
    Frame(const Frame &) = delete;

    ~Frame() {
        for (size_t i = 0; i < program.views.size(); i++) views[i].release();
        for (size_t i = program.input_count; i < program.buffers.size(); i++) tensors[i].release();
        for (int i = 0; i < program.input_count && owned; i++) Py_CLEAR(owned[i]);
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

    // With an exception set: another one, where the call starts anew.
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
        for (const NumberStep &step : program.numbers) good = good && number_run(step, tensors, data);
        if (!good) PyErr_SetNone(program.refused);
        return good;
    }

    // False with an exception set: the call is left to Python, where it did not begin.
    bool find_sizes(size_t group) {
        int done = sizes_update(sized, &sized->sizes.groups[group], tensors, data);
        if (scratch && scratch->stamp != sized->sizes.stamp) {
            scratch->forget(sized->sizes.groups[group]);
            scratch->stamp = sized->sizes.stamp;
        }
        if (done == 0 && group == 0)
            PyErr_SetNone(program.refused);
        else if (done == 0)
            PyErr_SetString(PyExc_RuntimeError, "what a library call returned leads to impossible sizes");
        return done > 0;
    }

    // Compares the inputs with the sizes that were read: a size comes from one of the tensors that have it.
    // False with an exception set: the call is left to Python.
    bool inputs_fit() {
        std::vector<int64_t> room, more;
        for (int number : program.tensor_inputs) {
            const Layout &layout = program.buffers[number].layout;
            if (!layout.is_sized()) continue;
            const int64_t *shape = tensor_form(tensors[number], Form::SHAPE, &room);
            const int64_t *strides = shape ? tensor_form(tensors[number], Form::STRIDES, &more) : nullptr;
            if (strides == nullptr) return false;
            for (size_t i = 0; i < layout.shape.size(); i++)
                if (shape[i] != layout.shape[i] || (shape[i] > 1 && strides[i] != layout.strides[i])) {
                    PyErr_SetNone(program.refused);
                    return false;
                }
        }
        return true;
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
        /* PyTorch asks on which device an address lies, and none without elements has to */
        char *start = view.layout.elements()
                          ? static_cast<char *>(address) + view.offset * view.layout.item_size
                          : nullptr;
        return tensor_at(start, view.layout, program.buffers[view.buffer].layout, result) ? result : nullptr;
    }

    // A library call (plan_run_externs.cpp).
    bool run_extern(const Extern &call);

  private:
    bool adopt(const Extern &call);
    bool adopt(int number);
    bool in_scratch(const void *address) const;
    int run_shim(const Extern &call);
    void put(int number, Tensor tensor);
    PyObject *argument(const Argument &source);
    bool set_named(PyObject *kwargs, const std::string &name, PyObject *value);
    bool set_out(const Extern &call, PyObject *kwargs);
    bool take_results(const Extern &call, PyObject *returned);
    bool run_python(const Extern &call);
};

} // namespace frameloom
