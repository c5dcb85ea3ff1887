// Launches consecutive kernels as one CUDA graph.
#pragma once

#include "cuda.h"

#include <memory>
#include <vector>

namespace frameloom {

// To launch a graph costs the CPU about 1 us, and 0.5 us for each kernel whose arguments have
// changed since the last launch; to launch one kernel alone costs 3 us (driver 580, H200;
// benchmarks/launch.py). Kernels of one graph also follow each other more quickly.  Needs a driver
// of CUDA 12.6: since then, short graphs are this cheap.
class Chain {
  public:
    struct Node {
        const GpuFunction *function;
        unsigned grid[3];
        std::vector<void *> values;     // the last pointers and sizes, then null pointers
        std::vector<void *> parameters; // a pointer to each value
        void *node;                     // CUgraphNode
        bool changed;
    };
    std::vector<Node> nodes; // of one device

    Chain() = default;
    Chain(const Chain &) = delete;
    ~Chain();
    void add(const GpuFunction *function, const unsigned *grid, size_t pointers);
    void set(size_t number, size_t position, void *pointer) {
        Node &node = nodes[number];
        node.changed |= node.values[position] != pointer;
        node.values[position] = pointer;
    }
    void set_function(size_t number, const GpuFunction *function) {
        Node &node = nodes[number];
        node.changed |= node.function != function;
        node.function = function;
    }
    void set_grid(size_t number, const unsigned *grid) {
        Node &node = nodes[number];
        for (int i = 0; i < 3; i++) {
            node.changed |= node.grid[i] != grid[i];
            node.grid[i] = grid[i];
        }
    }
    // Whether a graph may be used now on this stream.  Not in the first call: a plan that runs once
    // needs no graph.  A graph belongs to one stream, because its launches wait for each other.
    bool serves(void *stream);
    // False: nothing was launched, and this chain will launch nothing any more.
    bool launch(void *stream);

  private:
    bool make();
    void drop();

    void *graph = nullptr, *exec = nullptr, *stream = nullptr; // CUgraph, CUgraphExec, CUstream
    int calls = 0;
    bool refused = false;
};

} // namespace frameloom
