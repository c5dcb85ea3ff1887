// One call of a plan: its inputs, the tensors that it makes, and its views.
//
// Everything that a call makes belongs to its Frame and is freed with it, also after a failure.
#pragma once

#include "scratch.h"

#include <utility>

namespace frameloom {

struct Frame {
    Scratch **kept; // the scratch memory that the plan keeps; nullptr while a call uses it
    const Program &program;
    Object *const *inputs;
    Tensor *tensors; // per buffer
    Tensor *views;   // per view; Scratch has those of scratch memory and constants
    void **data;     // per buffer: what kernels get
    Scratch *scratch = nullptr;
    Object **owned = nullptr; // `inputs` if this call frees them, else nullptr
    Program *const sized;     // `program` if it has sizes, else nullptr; only this call uses it
    Gpu gpu;
    bool restarts = true; // whether the call restarts if it fails now

    // `tensors`, `views` and `data` are all zero.
    Frame(Scratch **kept, const Program &program, Program *sized, Object *const *inputs, Tensor *tensors,
          Tensor *views, void **data)
        : kept(kept), program(program), inputs(inputs), tensors(tensors), views(views), data(data),
          sized(sized) {}
    Frame(const Frame &) = delete;

    ~Frame() {
        for (size_t i = 0; i < program.views.size(); i++) views[i].release();
        for (size_t i = program.input_count; i < program.buffers.size(); i++) tensors[i].release();
        for (int i = 0; i < program.input_count && owned; i++)
            if (owned[i]) host::release(std::exchange(owned[i], nullptr));
        if (scratch) give_back_scratch();
        if (sized) sized->in_use = false;
    }

    void give_back_scratch() {
        /* Another call may have given back its own in the meantime. */
        if (*kept == nullptr) {
            scratch->give_back(program);
            *kept = scratch;
        } else {
            delete scratch;
        }
    }

    bool take_inputs() {
        for (int number : program.tensor_inputs)
            if (!host::borrow(inputs[number], &tensors[number])) return false;
        return true;
    }

    bool take_scratch() {
        if (!program.keeps_scratch) return true;
        scratch = std::exchange(*kept, nullptr);
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
            if (owned[number]) host::release(std::exchange(owned[number], nullptr));
        }
    }

    // Computes the numbers.  False with an error set: the call is refused.
    bool find_numbers() {
        bool good = true;
        for (int number : program.number_inputs)
            good = good && host::read_number(inputs[number], program.buffers[number].is_float, &data[number]);
        for (const NumberStep &step : program.numbers) good = good && number_run(step, tensors, data);
        return good || host::raise_object(program.refused, nullptr);
    }

    // Computes the sizes of a group.  False with an error set: the call is refused if no step
    // has run.
    bool find_sizes(size_t group) {
        int done = sizes_update(sized, &sized->sizes.groups[group], tensors, data);
        if (scratch && scratch->stamp != sized->sizes.stamp) {
            scratch->forget(sized->sizes.groups[group]);
            scratch->stamp = sized->sizes.stamp;
        }
        if (done == 0 && group == 0) return host::raise_object(program.refused, nullptr);
        if (done == 0)
            return host::raise(Error::RUNTIME, "what a library call returned leads to impossible sizes");
        return done > 0;
    }

    // Compares the inputs with the sizes that were read, as each size is read from only one of the
    // tensors that have it.  False with an error set: the call is refused.
    bool inputs_fit() {
        for (int number : program.tensor_inputs) {
            const Layout &layout = program.buffers[number].layout;
            if (!layout.is_sized() || tensor_matches(&tensors[number], layout) > 0) continue;
            return host::raise_object(program.refused, nullptr); // in place of the error for another shape
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
            if (buffer.kind == Buffer::CONSTANT && !host::borrow(buffer.constant, &tensors[number]))
                return false;
            if (!tensor_data(tensors[number], &data[number])) return false;
        }
        return true;
    }

    // Returns the tensor of a view, borrowed; nullptr with an error set.  A C function reads it
    // during one call and keeps nothing; a tensor for the host has to keep its memory alive.
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
        if (buffer.kind == Buffer::CONSTANT && !base->present() && !host::borrow(buffer.constant, base))
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

    // Finds what the steps start from: addresses, numbers and sizes.  False with an error set: no step
    // has run.
    bool begin() {
        if (!take_inputs() || !find_addresses()) return false;
        // Guards do not check saved tensors: a program may have replaced one by another tensor.
        if (find_numbers() && (!sized || find_sizes(0)) && (!sized || !program.owned || inputs_fit()))
            return true;
        owned = nullptr; // a refused call frees nothing
        return false;
    }

    bool run() { return take_scratch() && make(program.made) && run_steps(); }

    // steps.cpp
    // Returns 1 if the plan must not draw random numbers in this call, else 0; -1 with an error set.
    int draws_otherwise() const;
    bool run_steps();

    // externs.cpp
    bool run_extern(const Extern &call);
    // Makes the returned tensors of a library call fit the planned layouts.
    bool adopt(const Extern &call);
    // Stores a result; number -1: nothing uses it.
    void put(int number, Tensor tensor);

  private:
    bool adopt(int number);
    bool in_scratch(const void *address) const;
    int run_shim(const Extern &call);
};

} // namespace frameloom
