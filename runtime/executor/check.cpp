// Checks a parsed Program as a whole: nothing is used before it exists.  Finds which inputs are
// needed, the lifetimes of large buffers, and which launches follow each other.
#include "program.h"

#include <algorithm>
#include <functional>

namespace frameloom {

namespace {

void append(std::vector<int> *all, const std::vector<int> &more) {
    all->insert(all->end(), more.begin(), more.end());
}

void collect(const Argument &argument, Argument::Kind kind, std::vector<int> *numbers) {
    if (argument.kind == kind) numbers->push_back(argument.number);
    for (const Argument &item : argument.items) collect(item, kind, numbers);
}

// Returns the numbers of all arguments of this kind, at any depth.
std::vector<int> numbers_in(const Extern &call, Argument::Kind kind) {
    std::vector<int> numbers;
    for (const Argument &argument : call.arguments) collect(argument, kind, &numbers);
    return numbers;
}

// Returns the buffers that a step reads or writes, except for the results of a library call.
std::vector<int> used_by(const Program &program, const Step &step) {
    if (step.kind == Step::KERNEL) return program.kernels[step.number].buffers;
    if (step.kind == Step::LAUNCH) return program.launches[step.number].buffers;
    if (step.kind == Step::CHECK) return {program.checks[step.number].buffer};
    if (step.kind == Step::READ) return {program.reads[step.number].buffer};
    if (step.kind == Step::DRAW) {
        int aligned = program.draws[step.number].aligned;
        return aligned < 0 ? std::vector<int>{} : std::vector<int>{aligned};
    }
    if (step.kind == Step::LIST) {
        const List &list = program.lists[step.number];
        std::vector<int> used{list.table, list.fixed, list.blocks};
        for (const List::Place &place : list.places) used.push_back(place.buffer);
        return used;
    }
    const Extern &call = program.externs[step.number];
    std::vector<int> used = numbers_in(call, Argument::NUMBER);
    for (int number : numbers_in(call, Argument::VIEW)) used.push_back(program.views[number].buffer);
    return used;
}

bool find_needed(Program *program) {
    std::vector<char> wanted(program->buffers.size()), addressed(program->buffers.size());
    for (const View &view : program->views) wanted[view.buffer] = 1;
    for (const Step &step : program->steps)
        if (step.kind != Step::EXTERN)
            for (int number : used_by(*program, step)) wanted[number] = addressed[number] = 1;
    for (const NumberStep &step : program->numbers)
        if (step.op >= NumberStep::READ_F32) {
            wanted[step.operands[0]] = 1;
            addressed[step.operands[0]] |= step.op < NumberStep::DIM;
        }
    for (const SizeGroup &group : program->sizes.groups)
        for (const SizeSource &source : group.sources) wanted[source.buffer] |= source.kind != Size::NUMBER;
    for (size_t i = 0; i < program->buffers.size(); i++) {
        const Buffer &buffer = program->buffers[i];
        if (wanted[i] && buffer.kind == Buffer::INPUT) program->tensor_inputs.push_back((int)i);
        if (wanted[i] && !buffer.layout.has_dtype()) return wrong("an input that is used has a dtype");
        if (addressed[i] && (buffer.kind == Buffer::INPUT || buffer.kind == Buffer::CONSTANT))
            program->addressed.push_back((int)i);
    }
    program->keeps_scratch = !program->arenas.empty();
    for (const Extern &call : program->externs) program->keeps_scratch |= call.shim.shim != nullptr;
    program->calls_torch = !program->externs.empty();
    for (const Output &output : program->outputs)
        program->calls_torch |=
            output.kind == Output::VIEW &&
            (output.base >= 0 || program->views[output.number].buffer < program->input_count);
    return true;
}

// Checks that a library result is used only after the call that returns it.
bool filled_before_use(const Program &program) {
    std::vector<char> filled(program.buffers.size(), 1);
    for (size_t i = 0; i < filled.size(); i++) {
        Buffer::Kind kind = program.buffers[i].kind;
        filled[i] = kind != Buffer::EXTERN && (kind != Buffer::NUMBER || (int)i < program.input_count);
    }
    for (const NumberStep &step : program.numbers) {
        for (size_t i = 0; i < step.count; i++)
            if (step.operands[i] >= 0 && !filled[step.operands[i]])
                return wrong("a number is computed from one that is not there yet");
        filled[step.result] = 1;
    }
    for (const SizeGroup &group : program.sizes.groups)
        for (const SizeSource &source : group.sources)
            if (source.kind == Size::NUMBER && !filled[source.buffer])
                return wrong("a size is a number that is not there yet");
    for (const Step &step : program.steps) {
        for (int number : used_by(program, step))
            if (!filled[number]) return wrong("a plan uses a library result before the call that returns it");
        if (step.kind == Step::DRAW) {
            const Draw &draw = program.draws[step.number];
            filled[draw.seed] = filled[draw.offset] = 1;
        }
        if (step.kind == Step::EXTERN)
            for (int number : program.externs[step.number].results)
                if (number >= 0) filled[number] = 1;
    }
    for (const Output &output : program.outputs)
        if (output.kind == Output::VIEW && !filled[program.views[output.number].buffer])
            return wrong("a plan returns a library result that no call returns");
    return true;
}

// Finds the step after which all sizes that it is given are known; -1: when a call begins.
struct KnownAfter {
    const Program &program;
    int step = -1;

    void operator()(int size) { step = std::max(step, program.sizes.all[size].step); }

    void add(const Argument &argument) {
        if (argument.kind == Argument::SIZE) (*this)(argument.number);
        if (argument.kind == Argument::VIEW) each_size(program.views[argument.number], std::ref(*this));
        for (const Argument &item : argument.items) add(item);
    }
};

int known_after(const Program &program, const Buffer &buffer) {
    KnownAfter known{program};
    each_size(buffer, std::ref(known));
    return known.step;
}

int known_after(const Program &program, const Step &step) {
    KnownAfter known{program};
    for (int number : used_by(program, step)) each_size(program.buffers[number], std::ref(known));
    if (step.kind == Step::KERNEL) {
        const Kernel &kernel = program.kernels[step.number];
        for (int size : kernel.sizes) known(size);
        if (kernel.bytes_size >= 0) known(kernel.bytes_size);
    }
    if (step.kind == Step::LAUNCH) each_size(program.launches[step.number], std::ref(known));
    if (step.kind == Step::EXTERN)
        for (const Argument &argument : program.externs[step.number].arguments) known.add(argument);
    return known.step;
}

// Checks that values that depend on the size of a library result are used only after the call.
bool sized_before_use(const Program &program) {
    if (program.sizes.groups.size() < 2) return true;
    std::vector<char> made(program.buffers.size());
    for (size_t i = 0; i < program.steps.size(); i++) {
        const Step &step = program.steps[i];
        if (known_after(program, step) >= (int)i) return wrong("a plan uses a size before it is known");
        for (int number : used_by(program, step)) made[number] = 1;
        if (step.kind != Step::EXTERN) continue;
        const Extern &call = program.externs[step.number];
        for (int number : call.results) {
            if (number < 0) continue;
            made[number] = 1;
            if (known_after(program, program.buffers[number]) > (int)i - call.out_form)
                return wrong("a plan uses a size before it is known");
        }
    }
    for (size_t i = 0; i < program.buffers.size(); i++) {
        const Buffer &buffer = program.buffers[i];
        bool early = buffer.kind == Buffer::ARENA || (buffer.kind == Buffer::OUTPUT && !made[i]);
        if (early && known_after(program, buffer) >= 0)
            return wrong("scratch memory is there before a call's results are");
    }
    int size = program.arena_bytes_size;
    return size < 0 || program.sizes.all[size].step < 0 ||
           wrong("scratch memory is there before a call's results are");
}

bool is_large(const Buffer &buffer) {
    constexpr int64_t LARGE = 1 << 20;
    return buffer.is_sized() || buffer.layout.elements() * buffer.layout.item_size >= LARGE;
}

bool is_made_by_a_step(const Buffer &buffer) {
    return buffer.kind == Buffer::TRANSIENT || (buffer.kind == Buffer::OUTPUT && is_large(buffer));
}

// Finds the first and last use of buffers.  Large ones are allocated only in between, so that a
// long plan needs no more memory than eager execution.
void find_lives(Program *program) {
    constexpr int NEVER = -1;
    std::vector<int> first(program->buffers.size(), NEVER), last = first;
    std::vector<char> retained(program->buffers.size());
    for (size_t i = 0; i < program->steps.size(); i++) {
        const Step &step = program->steps[i];
        std::vector<int> used = used_by(*program, step);
        if (step.kind == Step::EXTERN) {
            const Extern &call = program->externs[step.number];
            for (int number : call.results)
                if (number >= 0) used.push_back(number);
            append(&used, numbers_in(call, Argument::INPUT));
        }
        for (int number : used) {
            last[number] = (int)i;
            if (first[number] == NEVER) first[number] = (int)i;
        }
    }
    for (const Output &output : program->outputs)
        if (output.kind == Output::VIEW || output.kind == Output::INPUT)
            retained[output.kind == Output::VIEW ? program->views[output.number].buffer : output.number] = 1;
    for (const NumberStep &step : program->numbers)
        if (step.op >= NumberStep::READ_F32) retained[step.operands[0]] = 1;
    auto dies = [&](int number) {
        Buffer::Kind kind = program->buffers[number].kind;
        return (kind == Buffer::EXTERN || kind == Buffer::TRANSIENT) && !retained[number] &&
               last[number] != NEVER;
    };
    for (size_t i = 0; i < program->buffers.size(); i++) {
        bool by_a_step = is_made_by_a_step(program->buffers[i]) && first[i] != NEVER;
        if (by_a_step) program->steps[first[i]].born.push_back((int)i);
        if (!by_a_step && program->buffers[i].kind == Buffer::OUTPUT) program->made.push_back((int)i);
        if (dies((int)i)) program->steps[last[i]].dead_buffers.push_back((int)i);
    }
    for (int i = 0; i < program->input_count; i++) {
        if (retained[i] || program->buffers[i].kind == Buffer::NUMBER) continue;
        std::vector<int> *dead = last[i] == NEVER ? &program->unused : &program->steps[last[i]].dead_inputs;
        dead->push_back(i);
    }
    for (size_t i = 0; i < program->views.size(); i++) {
        int buffer = program->views[i].buffer;
        if (dies(buffer)) program->steps[last[buffer]].dead_views.push_back((int)i);
        if (buffer < program->input_count && !retained[buffer] && last[buffer] != NEVER)
            program->steps[last[buffer]].dead_input_views.push_back((int)i);
    }
}

bool leaves_room(const Program &program, const Step &step) {
    if (!step.dead_buffers.empty()) return true;
    for (int number : step.dead_inputs)
        if (program.owned && is_large(program.buffers[number])) return true;
    return false;
}

// Joins consecutive launches into runs.  All buffers of a run are allocated at its start and freed
// at its end.  So a launch that could reuse memory that an earlier launch frees starts a new run.
void join_launches(Program *program) {
    std::vector<Step> steps;
    int device = 0;
    for (Step &step : program->steps) {
        if (step.kind != Step::LAUNCH) {
            steps.push_back(std::move(step));
            continue;
        }
        const Launch &launch = program->launches[step.number];
        bool joins = !steps.empty() && steps.back().kind == Step::RUN && device == launch.function->device &&
                     (step.born.empty() || !leaves_room(*program, steps.back()));
        if (!joins) {
            steps.push_back({Step::RUN, (int)program->runs.size(), {}, {}, {}, {}, {}});
            steps.back().restarts = true;
            program->runs.push_back({{}, std::make_unique<Chain>()});
        }
        device = launch.function->device;
        LaunchRun &run = program->runs.back();
        run.launches.push_back(step.number);
        run.chain->add(launch.function, launch.grid, launch.buffers.size() + launch.sizes.size());
        steps.back().restarts = steps.back().restarts && step.restarts;
        append(&steps.back().born, step.born);
        append(&steps.back().dead_buffers, step.dead_buffers);
        append(&steps.back().dead_views, step.dead_views);
        append(&steps.back().dead_inputs, step.dead_inputs);
        append(&steps.back().dead_input_views, step.dead_input_views);
    }
    program->steps = std::move(steps);
}

} // namespace

bool program_check(Program *program) {
    if (!sizes_bind(program) || !find_needed(program) || !filled_before_use(*program) ||
        !sized_before_use(*program))
        return false;
    find_lives(program);
    join_launches(program);
    return true;
}

} // namespace frameloom
