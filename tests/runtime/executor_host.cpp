// A host of the executor without Python and PyTorch: tensors are plain memory of float32.
//
// It builds a plan of two kernels over a vector of any size, y = 2 * x + 1, and calls it with two sizes
// and with a kernel that fails.
#include "builder.h"
#include "frame.h"

#include <cstdio>
#include <cstdlib>

namespace frameloom {

struct AtenTensor {
    std::vector<int64_t> sizes, strides;
    float *data;
    bool owns;
};

namespace {

int alive = 0; // tensors
std::string error;

int32_t make(int64_t rank, const int64_t *sizes, const int64_t *strides, float *data, Handle *result) {
    std::vector<int64_t> shape(sizes, sizes + rank);
    size_t count = 1;
    for (int64_t size : shape) count *= (size_t)size;
    bool owns = data == nullptr;
    if (owns) data = static_cast<float *>(std::calloc(count + 1, sizeof(float)));
    *result = new AtenTensor{shape, {strides, strides + rank}, data, owns};
    alive++;
    return 0;
}

int32_t destroy(Handle tensor) {
    if (tensor->owns) std::free(tensor->data);
    delete tensor;
    alive--;
    return 0;
}

void fill_in_functions() {
    torch_api.fast = true;
    torch_api.empty_strided = [](int64_t rank, const int64_t *sizes, const int64_t *strides, int32_t, int32_t,
                                 int32_t,
                                 Handle *result) { return make(rank, sizes, strides, nullptr, result); };
    torch_api.destroy = destroy;
    torch_api.data_pointer = [](Handle tensor, void **data) {
        *data = tensor->data;
        return 0;
    };
    torch_api.dimensions = [](Handle tensor, int64_t *rank) {
        *rank = (int64_t)tensor->sizes.size();
        return 0;
    };
    torch_api.sizes = [](Handle tensor, int64_t **sizes) {
        *sizes = tensor->sizes.data();
        return 0;
    };
    torch_api.strides = [](Handle tensor, int64_t **strides) {
        *strides = tensor->strides.data();
        return 0;
    };
}

int twice(void *const *buffers, const int64_t *sizes) {
    const float *x = static_cast<const float *>(buffers[0]);
    float *result = static_cast<float *>(buffers[1]);
    for (int64_t i = 0; i < sizes[0]; i++) result[i] = 2 * x[i];
    return 0;
}

int plus_one(void *const *buffers, const int64_t *sizes) {
    if (sizes[0] == 5) return 1; // as if there were no memory
    const float *x = static_cast<const float *>(buffers[0]);
    float *result = static_cast<float *>(buffers[1]);
    for (int64_t i = 0; i < sizes[0]; i++) result[i] = x[i] + 1;
    return 0;
}

// A vector whose only extent is the size 0 of the plan.
Layout vector() {
    Layout layout;
    layout.shape = {0};
    layout.strides = {1};
    layout.shape_sizes = {0};
    layout.dtype = 6;
    layout.item_size = sizeof(float);
    return layout;
}

Buffer buffer(Buffer::Kind kind) {
    Buffer made{};
    made.kind = kind;
    made.layout = vector();
    made.device = "cpu";
    return made;
}

Kernel kernel(int (*function)(void *const *, const int64_t *), int from, int to) {
    Kernel made{};
    made.function = function;
    made.buffers = {from, to};
    made.sizes = {0};
    return made;
}

bool build(Program *program) {
    Layout byte = vector();
    byte.shape_sizes.clear();
    byte.item_size = 1;
    Builder builder(program, byte);
    program->input_count = 1;
    program->arena_bytes = 1 << 10;
    builder.add(buffer(Buffer::INPUT));
    builder.add(buffer(Buffer::ARENA));
    builder.add(buffer(Buffer::OUTPUT));
    builder.end_buffers();
    builder.add(Size{Size::SHAPE, 0, {0, 0}, 2}, 0); // that of dimension 0 of buffer 0
    builder.add(kernel(twice, 0, 1));
    builder.add(kernel(plus_one, 1, 2));
    Output output{};
    output.kind = Output::VIEW;
    output.number = builder.add(View{2, vector(), 0, false});
    builder.add(output);
    return builder.finish(0);
}

void call(Program *program, Scratch **kept, int64_t size) {
    const int64_t stride = 1;
    Handle x;
    make(1, &size, &stride, nullptr, &x);
    for (int64_t i = 0; i < size; i++) x->data[i] = (float)i;
    Object *inputs[] = {reinterpret_cast<Object *>(x)};
    std::vector<Tensor> tensors(program->buffers.size()), views(program->views.size());
    std::vector<void *> data(program->buffers.size());
    {
        Frame frame(kept, *program, program, inputs, tensors.data(), views.data(), data.data());
        Tensor *result =
            frame.begin() && frame.run() ? frame.view(program->outputs[0].number, false) : nullptr;
        std::printf("%lld:", (long long)size);
        for (int64_t i = 0; i < size && result; i++) std::printf(" %g", result->handle->data[i]);
        std::printf("%s\n", result ? "" : (" " + error).c_str());
    }
    destroy(x);
}

} // namespace

bool host::raise(Error kind, const char *text) {
    error = kind == Error::MEMORY ? "out of memory" : text;
    return false;
}
bool host::raise_object(Object *, Object *) { return raise(Error::VALUE, "refused"); }
void host::release(Object *) {}
bool host::read_number(Object *, bool, void **) { return false; }
void *host::leave_lock() { return nullptr; }
void host::take_lock(void *) {}
bool host::draw(const Draw &, uint64_t *, uint64_t *) { return false; }
const GpuFunction *host::load_function(Object *) { return nullptr; }
bool host::call(Frame &, const Extern &) { return false; }
bool host::borrow(Object *object, Tensor *result) {
    *result = Tensor{reinterpret_cast<Handle>(object), object, false, false};
    return true;
}
bool host::make_tensor(const Layout &, Tensor *) { return false; }
bool host::make_view(const Tensor &, const Layout &, int64_t, Tensor *) { return false; }
bool host::find_data(const Tensor &, void **) { return false; }
int64_t host::rank(const Tensor &) { return -1; }
const int64_t *host::layout_field(const Tensor &, LayoutField, std::vector<int64_t> *) { return nullptr; }
int host::matches(Tensor *, const Layout &) { return -1; }
bool host::restride(Tensor *, const Layout &) { return false; }

} // namespace frameloom

int main() {
    using namespace frameloom;
    fill_in_functions();
    {
        Program program;
        Scratch *kept = nullptr;
        if (!build(&program)) return std::printf("%s\n", error.c_str());
        for (int64_t size : {4, 2, 5}) call(&program, &kept, size);
        delete kept;
    }
    std::printf("%d tensors are left\n", alive);
}
