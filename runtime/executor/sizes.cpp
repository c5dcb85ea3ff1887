// Finds what depends on each size, and updates it if a call has other sizes than the call before.
#include "program.h"

#include <algorithm>

namespace frameloom {

namespace {

// Goes through a program and adds each place that holds a size, and everything that is derived from
// such a place, to the group of the size.
class Binder {
  public:
    explicit Binder(Program *program) : program(program), sizes(program->sizes) {}

    bool bind() {
        if (!order()) return false;
        for (Buffer &buffer : program->buffers) {
            bind_layout(&buffer.layout);
            place(&buffer.offset, buffer.offset_size);
        }
        for (size_t i = 0; i < program->views.size(); i++) bind_view((int)i);
        for (size_t i = 0; i < program->kernels.size(); i++) bind_kernel((int)i);
        for (size_t i = 0; i < program->launches.size(); i++) bind_launch((int)i);
        for (size_t i = 0; i < program->externs.size(); i++) bind_extern((int)i);
        place(&program->arena_bytes, program->arena_bytes_size);
        for (const Output &output : program->outputs)
            if (output.kind == Output::SIZE) group_of(output.number);
        return good || wrong("a plan names a size that it does not have");
    }

  private:
    Program *program;
    Sizes &sizes;
    bool good = true;

    // Finds when each size is known, and where it is read.
    bool order() {
        for (Size &size : sizes.all) {
            if (is_of_a_result(size) && !bind_result(size)) return false;
            if (size.kind == Size::COMPUTED)
                for (size_t i = 0; i < size.count; i++)
                    size.step = std::max(size.step, sizes.all[size.operands[i]].step);
        }
        std::vector<int> steps{-1};
        for (const Size &size : sizes.all)
            if (is_of_a_result(size)) steps.push_back(size.step);
        std::sort(steps.begin(), steps.end());
        steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
        for (int step : steps) {
            sizes.groups.emplace_back();
            sizes.groups.back().step = step;
            if (step < 0) continue;
            if (program->steps[step].kind == Step::READ) {
                program->reads[program->steps[step].number].sizes = (int)sizes.groups.size() - 1;
                continue;
            }
            Extern &call = program->externs[program->steps[step].number];
            call.sizes = (int)sizes.groups.size() - 1;
            /* Such a shim needs the results' sizes before the call. */
            if (call.shim.shim && call.shim.shim->out) call.shim = ShimCall{};
        }
        for (const Read &read : program->reads)
            if (read.sizes < 0) return wrong("what is read is a size");
        for (size_t i = 0; i < sizes.all.size(); i++) {
            const Size &size = sizes.all[i];
            if (size.kind == Size::COMPUTED)
                group_of((int)i)->computed.push_back((int)i);
            else if (size.kind != Size::CONST && !bind_source((int)i))
                return false;
        }
        return true;
    }

    static bool is_of_a_result(const Size &size) {
        return size.kind == Size::AFTER || size.kind == Size::ITEM;
    }

    bool bind_result(const Size &size) const {
        if (size.kind == Size::ITEM) {
            bool reads = size.step >= 0 && size.step < (int)program->steps.size() &&
                         program->steps[size.step].kind == Step::READ &&
                         program->reads[program->steps[size.step].number].buffer == size.operands[0];
            return reads || wrong("a size is known after the step that reads it");
        }
        if (size.step < 0 || size.step >= (int)program->steps.size() ||
            program->steps[size.step].kind != Step::EXTERN)
            return wrong("a size is known after a library call");
        const Extern &call = program->externs[program->steps[size.step].number];
        bool result = std::count(call.results.begin(), call.results.end(), size.operands[0]) == 1;
        return (result && !call.out_form && size.operands[0] >= 0) ||
               wrong("a size is that of a library call's result");
    }

    bool bind_source(int number) {
        const Size &size = sizes.all[number];
        int at = size.operands[0], dimension = size.operands[1];
        if (at < 0 || at >= (int)program->buffers.size())
            return wrong("a plan names a buffer that it does not have");
        const Buffer &buffer = program->buffers[at];
        bool has = dimension >= 0 && dimension < (int)buffer.layout.shape.size();
        bool fits = size.kind == Size::ITEM     ? is_item(buffer, dimension)
                    : size.kind == Size::NUMBER ? buffer.kind == Buffer::NUMBER && !buffer.is_float
                    : size.kind == Size::AFTER  ? has
                    : size.kind == Size::OFFSET ? buffer.kind == Buffer::INPUT
                                                : buffer.kind == Buffer::INPUT && has;
        if (!fits) return wrong("a size is read from a dimension of an input, or from an int");
        std::vector<SizeSource> &sources = group_of(number)->sources;
        auto same = [&](const SizeSource &source) { return source.kind == size.kind && source.buffer == at; };
        auto source = std::find_if(sources.begin(), sources.end(), same);
        if (source == sources.end()) source = sources.insert(source, SizeSource{size.kind, at, {}, 0, {}});
        bool single = size.kind == Size::NUMBER || size.kind == Size::OFFSET;
        source->wanted.emplace_back(single ? 0 : dimension, number);
        if (!single) source->rank = std::max(source->rank, dimension + 1);
        return true;
    }

    // Whether it is an element of a contiguous vector on the CPU whose size is fixed.
    static bool is_item(const Buffer &buffer, int index) {
        const Layout &layout = buffer.layout;
        return buffer.kind != Buffer::NUMBER && buffer.device == "cpu" && layout.shape.size() == 1 &&
               !layout.is_sized() && layout.strides[0] == 1 && index >= 0 && index < layout.shape[0];
    }

    SizeGroup *group_of(int size) {
        good &= size < (int)sizes.all.size();
        int step = good ? sizes.all[size].step : -1;
        for (SizeGroup &group : sizes.groups)
            if (group.step == step) return &group;
        return &sizes.groups[0];
    }

    void place(int64_t *at, int size) {
        if (size >= 0) group_of(size)->places.push_back({at, size});
    }

    template <typename Item> static void add_once(std::vector<Item> *items, Item item) {
        if (std::find(items->begin(), items->end(), item) == items->end()) items->push_back(item);
    }

    void bind_layout(Layout *layout) {
        for (size_t i = 0; i < layout->shape_sizes.size(); i++)
            place(&layout->shape[i], layout->shape_sizes[i]);
        for (size_t i = 0; i < layout->stride_sizes.size(); i++)
            place(&layout->strides[i], layout->stride_sizes[i]);
        each_size(*layout, [&](int size) { add_once(&group_of(size)->layouts, layout); });
    }

    void bind_view(int number) {
        View &view = program->views[number];
        bind_layout(&view.layout);
        place(&view.offset, view.offset_size);
        auto add = [&](int size) { add_once(&group_of(size)->views, number); };
        each_size(view, add);
        each_size(program->buffers[view.buffer], add);
    }

    void bind_kernel(int number) {
        Kernel &kernel = program->kernels[number];
        for (size_t i = 0; i < kernel.sizes.size(); i++) place(&kernel.values[i], kernel.sizes[i]);
        place(&kernel.bytes_moved, kernel.bytes_size);
        if (kernel.bytes_size >= 0) group_of(kernel.bytes_size)->kernels.push_back(number);
    }

    void bind_launch(int number) {
        Launch &launch = program->launches[number];
        for (int i = 0; i < 3; i++) place(&launch.extents[i], launch.grid_sizes[i]);
        each_size(launch, [&](int size) { add_once(&group_of(size)->launches, number); });
    }

    void bind_extern(int number) {
        Extern &call = program->externs[number];
        for (const Argument &argument : call.arguments) bind_argument(argument, number);
        for (ShimArgument &argument : call.shim.arguments)
            for (size_t i = 0; i < argument.sizes.size(); i++)
                place(argument.type == 'I' ? &argument.integers[i] : &argument.value.integer,
                      argument.sizes[i]);
    }

    void bind_argument(const Argument &argument, int call) {
        if (argument.kind == Argument::SIZE) group_of(argument.number);
        if (argument.kind == Argument::VIEW)
            each_size(program->views[argument.number].layout,
                      [&](int size) { add_once(&group_of(size)->externs, call); });
        for (const Argument &item : argument.items) bind_argument(item, call);
    }
};

// Reads the sizes, strides or offset of a tensor; nullptr with an error set.
const int64_t *read_tensor(SizeSource *source, const Tensor &tensor) {
    LayoutField field = source->kind == Size::STRIDES  ? LayoutField::STRIDES
                        : source->kind == Size::OFFSET ? LayoutField::OFFSET
                                                       : LayoutField::SHAPE;
    if (!tensor_has_rank(tensor, source->rank)) return nullptr;
    return tensor_layout_field(tensor, field, &source->room);
}

// Returns 1 if a value differs from the last call, 0 if none does, -1 with an error set.
int read(Sizes *sizes, SizeSource *source, const Tensor *tensors, void *const *data) {
    const int64_t *from = reinterpret_cast<const int64_t *>(&data[source->buffer]);
    if (source->kind == Size::ITEM) {
        from = static_cast<const int64_t *>(data[source->buffer]);
    } else if (source->kind != Size::NUMBER) {
        from = read_tensor(source, tensors[source->buffer]);
        if (from == nullptr) return -1;
    }
    int64_t other = 0;
    for (const auto &[dimension, size] : source->wanted) {
        other |= sizes->values[size] ^ from[dimension];
        sizes->values[size] = from[dimension];
    }
    return other != 0;
}

bool compute(Sizes *sizes, int number) {
    const Size &size = sizes->all[number];
    const std::vector<int64_t> &values = sizes->values;
    return int_op(size.op, values[size.operands[0]], values[size.operands[1]], &sizes->values[number]);
}

bool update_launch(const Sizes &sizes, Launch *launch) {
    for (size_t i = 0; i < launch->sizes.size(); i++) {
        auto [size, narrow] = launch->sizes[i];
        int64_t value = sizes.values[size];
        if (narrow && value != (int32_t)value) return false;
        launch->values[i] = reinterpret_cast<void *>((uintptr_t)value);
    }
    launch->uneven = false;
    for (int size : launch->even) launch->uneven |= sizes.values[(size_t)size] % (int64_t)GPU_ALIGNMENT != 0;
    launch->beyond = launch->limited >= 0 && sizes.values[(size_t)launch->limited] > launch->most;
    launch->skipped = false;
    for (int i = 0; i < 3; i++) {
        if (launch->extents[i] < 0) return false;
        launch->skipped |= launch->extents[i] == 0;
    }
    for (int i = 0; i < 3 && !launch->skipped; i++) {
        if (launch->extents[i] > most_blocks(i)) return false;
        launch->grid[i] = (unsigned)launch->extents[i];
    }
    return true;
}

// Computes the bytes of each arena; false with an error set.
bool update_arenas(Program *program) {
    for (Arena &arena : program->arenas)
        if (arena.is_sized) arena.bytes = 0;
    for (int number : program->scratch) {
        const Buffer &buffer = program->buffers[number];
        Arena &arena = program->arenas[buffer.arena];
        int64_t bytes, end;
        if (!arena.is_sized) continue;
        if (!buffer.layout.span(&bytes) || buffer.offset < 0 ||
            __builtin_add_overflow(buffer.offset, bytes, &end) || (bytes && end > program->arena_bytes))
            return wrong("a buffer lies outside of the plan's scratch memory");
        if (bytes) arena.bytes = std::max(arena.bytes, end);
    }
    return true;
}

// Returns 1 if done, 0 if the sizes are refused, -1 with an error set.
int update_group(Program *program, SizeGroup *group) {
    Sizes &sizes = program->sizes;
    for (int size : group->computed)
        if (!compute(&sizes, size)) return 0;
    for (const SizePlace &place : group->places) *place.at = sizes.values[place.size];
    int64_t bytes;
    for (const Layout *layout : group->layouts)
        if (!layout->span(&bytes)) return 0;
    for (int number : group->launches)
        if (!update_launch(sizes, &program->launches[number])) return 0;
    for (int number : group->kernels) {
        Kernel &kernel = program->kernels[number];
        kernel.leaves_lock = kernel.bytes_moved >= LOCK_BYTES;
    }
    for (int number : group->externs) {
        Extern &call = program->externs[number];
        int64_t all = 0;
        for (const Argument &argument : call.arguments) all += argument_bytes(*program, argument);
        call.leaves_lock = all >= LOCK_BYTES / 4;
    }
    return group->step >= 0 || update_arenas(program) ? 1 : -1;
}

} // namespace

bool sizes_bind(Program *program) { return Binder(program).bind(); }

int64_t argument_bytes(const Program &program, const Argument &argument) {
    int64_t bytes = 0;
    if (argument.kind == Argument::VIEW) {
        const Layout &layout = program.views[argument.number].layout;
        bytes += layout.elements() * layout.item_size;
    }
    for (const Argument &item : argument.items) bytes += argument_bytes(program, item);
    return bytes;
}

int sizes_same(Program *program, Object *const *inputs) {
    const Sizes &sizes = program->sizes;
    for (SizeSource &source : program->sizes.groups[0].sources) {
        if (source.kind == Size::NUMBER) continue;
        Tensor tensor;
        const int64_t *from =
            host::borrow(inputs[source.buffer], &tensor) ? read_tensor(&source, tensor) : nullptr;
        if (from == nullptr) return -1;
        for (const auto &[dimension, size] : source.wanted)
            if (sizes.values[size] != from[dimension]) return 0;
    }
    return 1;
}

int sizes_update(Program *program, SizeGroup *group, const Tensor *tensors, void *const *data) {
    static uint64_t changes = 0; // under the lock
    Sizes &sizes = program->sizes;
    bool other = !group->known;
    for (SizeSource &source : group->sources) {
        int changed = read(&sizes, &source, tensors, data);
        if (changed < 0) {
            group->known = false;
            sizes.stamp = ++changes; // some values may already be those of this call
            return -1;
        }
        other |= changed > 0;
    }
    if (!other) return 1;
    for (SizeGroup &each : sizes.groups)
        if (each.step >= group->step) each.known = false;
    sizes.stamp = ++changes;
    int done = update_group(program, group);
    group->known = done > 0;
    return done;
}

} // namespace frameloom
