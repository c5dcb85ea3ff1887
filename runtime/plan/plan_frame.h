// One call of a plan: its inputs, the tensors that it makes, and its views.
//
// Everything that a call makes belongs to its Frame and is freed with it, also after a failure.
#pragma once

#include "plan.h"

namespace frameloom {

struct Frame {
    Plan *plan;
    const Program &program;
    PyObject *const *inputs;
    Tensor *tensors; // per buffer
    Tensor *views;   // per view; Scratch has those of scratch memory and constants
    void **data;     // per buffer: what kernels get
    Scratch *scratch = nullptr;
    PyObject **owned = nullptr; // `inputs` if this call frees them, else nullptr
    Program *const sized;       // `program` if it has sizes, else nullptr; only this call uses it
    Gpu gpu;
    bool restarts = true; // whether the call restarts as plain Python if it fails now

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
        /* Another call may have given back its own in the meantime. */
        if (plan->scratch == nullptr) {
            scratch->give_back(program);
            plan->scratch = scratch;
        } else {
            delete scratch;
        }
    }

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

    // Computes the numbers.  False with an exception set: the call runs as plain Python.
    bool find_numbers() {
        bool good = true;
        for (int number : program.number_inputs)
            good = good && number_bits(inputs[number], program.buffers[number].is_float, &data[number]);
        for (const NumberStep &step : program.numbers) good = good && number_run(step, tensors, data);
        if (!good) PyErr_SetNone(program.refused);
        return good;
    }

    // Computes the sizes of a group.  False with an exception set: the call runs as plain Python if
    // no step has run.
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

    // Compares the inputs with the sizes that were read, as each size is read from only one of the
    // tensors that have it.  False with an exception set: the call runs as plain Python.
    bool inputs_fit() {
        for (int number : program.tensor_inputs) {
            const Layout &layout = program.buffers[number].layout;
            if (!layout.is_sized() || tensor_matches(&tensors[number], layout) > 0) continue;
            PyErr_SetNone(program.refused); // in place of the exception for another shape
            return false;
        }
        return true;
    }

    // Allocates tensors for these buffers.
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

    // Returns the tensor of a view, borrowed; nullptr with an exception set.  A C function reads it
    // during one call and keeps nothing; a tensor for Python has to keep its memory alive.
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

    // Returns a view that is kept between calls: weights mostly have the same address as in the
    // last call.
    Tensor *lasting_view(int number, const Tensor &base) {
        Tensor *result = &scratch->views[number];
        void *address;
        if (!tensor_data(base, &address)) return nullptr;
        if (result->present() && scratch->addresses[number] == address) return result;
        const View &view = program.views[number];
        result->release();
        scratch->addresses[number] = address;
        /* PyTorch asks for the device of an address; a view without elements may have any address */
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
