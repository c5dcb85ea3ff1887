// Makes and launches CUDA graphs of a few kernels through the driver; see chain.h.
#include "chain.h"

#include "tensors.h"

namespace frameloom {

namespace {

using Result = int;
constexpr int CHEAP_GRAPHS = 12060; // the driver's version
constexpr int WORTH_IT = 2;         // calls before a graph is made, which costs 15 us
constexpr int MOST = 512;           // graphs in the process: the driver needs 115 KB for each

// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNode {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    void *kernel, *context;
};

struct GraphDriver {
    Result (*version)(int *);
    Result (*create)(void **, unsigned);
    Result (*add_kernel)(void **, void *, void *const *, size_t, const KernelNode *);
    Result (*instantiate)(void **, void *, unsigned long long);
    Result (*set_kernel)(void *, void *, const KernelNode *);
    Result (*launch)(void *, void *);
    Result (*destroy_exec)(void *);
    Result (*destroy)(void *);
};
GraphDriver driver;
int made = 0; // graphs alive, under the lock

bool find_driver() {
    static const bool available = [] {
        int version = 0;
        auto has = [](auto *&function, const char *name) { return find(function, name, driver_symbol); };
        return has(driver.version, "cuDriverGetVersion") && has(driver.create, "cuGraphCreate") &&
               has(driver.add_kernel, "cuGraphAddKernelNode_v2") &&
               has(driver.instantiate, "cuGraphInstantiateWithFlags") &&
               has(driver.set_kernel, "cuGraphExecKernelNodeSetParams_v2") &&
               has(driver.launch, "cuGraphLaunch") && has(driver.destroy_exec, "cuGraphExecDestroy") &&
               has(driver.destroy, "cuGraphDestroy") && driver.version(&version) == 0 &&
               version >= CHEAP_GRAPHS;
    }();
    return available;
}

// Returns the description of a kernel for the driver.
KernelNode described(Chain::Node &node) {
    const GpuFunction &function = *node.function;
    return {function.function,
            {node.grid[0], node.grid[1], node.grid[2]},
            {function.threads, 1, 1},
            function.shared,
            node.parameters.data(),
            nullptr,
            nullptr,
            nullptr};
}

} // namespace

Chain::~Chain() { drop(); }

void Chain::add(const GpuFunction *function, const unsigned *grid, size_t pointers) {
    std::vector<void *> values(pointers + (size_t)function->extra, nullptr);
    std::vector<void *> parameters;
    for (void *&value : values) parameters.push_back(&value); // the address stays when the vector moves
    nodes.push_back(
        {function, {grid[0], grid[1], grid[2]}, std::move(values), std::move(parameters), nullptr, false});
}

bool Chain::serves(void *now) {
    if (refused || (exec && now != stream)) return false;
    if (exec) return true;
    if (++calls < WORTH_IT) return false;
    if (made < MOST && find_driver()) {
        stream = now;
        return true;
    }
    return !(refused = true);
}

bool Chain::make() {
    if (driver.create(&graph, 0) != 0) return false;
    void *before = nullptr;
    for (Node &node : nodes) {
        KernelNode kernel = described(node);
        if (driver.add_kernel(&node.node, graph, &before, before ? 1 : 0, &kernel) != 0) return false;
        before = node.node;
        node.changed = false;
    }
    if (driver.instantiate(&exec, graph, 0) != 0) return false;
    made++;
    return true;
}

bool Chain::launch(void *now) {
    bool good = exec || make();
    for (size_t i = 0; i < nodes.size() && good; i++) {
        Node &node = nodes[i];
        if (!node.changed) continue;
        KernelNode kernel = described(node);
        good = driver.set_kernel(exec, node.node, &kernel) == 0;
        node.changed = false;
    }
    if (good && driver.launch(exec, now) == 0) return true;
    drop();
    refused = true;
    return false;
}

void Chain::drop() {
    if (exec) {
        driver.destroy_exec(exec); // takes effect when its last launch has ended
        made--;
    }
    if (graph) driver.destroy(graph);
    exec = graph = nullptr;
}

} // namespace frameloom
