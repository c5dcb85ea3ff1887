// Puts a Program together from plain structures, and checks that the parts fit.
//
// A host sets the plain fields of the Program first (counts and objects), then adds the parts in this
// order: buffers, numbers, sizes, steps, outputs.  A part that does not fit throws
// std::invalid_argument.
#pragma once

#include "program.h"

#include <stdexcept>
#include <unordered_map>

namespace frameloom {

[[noreturn]] inline void refuse(const char *what) { throw std::invalid_argument(what); }

inline void require(bool good, const char *what) {
    if (!good) refuse(what);
}

class Builder {
  public:
    // `byte`: the layout of one byte on the CPU; scratch memory is made of such.
    Builder(Program *program, Layout byte) : program(program), byte(std::move(byte)) {}

    int known_buffer(long long number) const; // throws if there is none
    int known_size(long long number) const;

    // A table has the kind ARENA, and memory of its own.
    void add(Buffer &&buffer, bool is_table = false);
    void end_buffers(); // there is none after them
    void add(NumberStep step);
    void add(Size size, int64_t value); // `value`: of a constant
    int add(View &&view);               // returns its number, which equal views share
    void add(Kernel &&kernel);
    void add(Launch &&launch); // from `extents`, `buffers` and `sizes`, it finds the rest
    void add(List &&list);
    void add(Extern &&call); // likewise from `arguments` and `results`
    void add(Check &&check) { add_step(Step::CHECK, &program->checks, std::move(check)); }
    void add(Draw &&draw);
    void add(Read &&read) { add_step(Step::READ, &program->reads, std::move(read)); }
    void add(Output output);
    // The first so many steps restart a failed call; false with an error set.
    bool finish(long long restarting);

    // The device of the tensors of a library call; "": it has none.  Tensors on the CPU beside those
    // on a GPU do not count: they may be numbers.
    std::string device_of(const std::vector<Argument> &arguments) const;

  private:
    Program *program;
    Layout byte;
    std::unordered_map<int, std::vector<int>> views_of; // by buffer

    // Adds a step, whose own data is added at the end of `all`.
    template <typename Item> void add_step(Step::Kind kind, std::vector<Item> *all, Item &&item) {
        program->steps.push_back({kind, (int)all->size(), {}, {}, {}, {}, {}});
        all->push_back(std::move(item));
    }
    int place(View &&view);
    int whole(int buffer);
    int arena_for(const Layout &layout); // on its device; makes it for the first buffer
    int new_arena(const Layout &layout, bool is_table);
    void place_in_arena(Buffer *buffer, bool is_table);
    void share_bases();
    const Output *base_among(const std::vector<Output *> &outputs) const;
};

} // namespace frameloom
