// Sizes that keep coming, and the plans that are made for them alone.
//
// A plan whose sizes vary counts the calls that come with the same ones.  Of those that come often its spec's
// `steady` is told, once; the plan that is made of that is taken over whenever it is ready, and runs the
// calls with these sizes from then on.
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>
#include <vector>

namespace frameloom {

struct Program;

class Regulars {
  public:
    Regulars() = default;
    Regulars(const Regulars &) = delete;
    ~Regulars() { clear(); }
    // Whether the latest call's plan may serve the next one: `stamp` is that of the sizes it had.
    PyObject *usual(uint64_t stamp) const { return latest && this->stamp == stamp ? latest->plan : nullptr; }
    // A call with these sizes: the plan that is there for them (borrowed), or nullptr.  `plan`: whose calls
    // these are.
    PyObject *meet(PyObject *plan, const Program &program);
    // From now on `other` serves the calls with these values of the plan's keys; false with an exception set.
    bool settle(PyObject *values, PyObject *other);
    int traverse(visitproc visit, void *arg) const;
    void clear();

  private:
    static constexpr int OFTEN = 48; // calls
    static constexpr int MOST = 4;   // plans that are asked for
    struct Regular {
        std::vector<int64_t> values;
        int calls = 0;
        bool told = false;
        PyObject *plan = nullptr;
    };
    std::array<Regular, 8> regulars;
    Regular *latest = nullptr;
    uint64_t stamp = 0; // of the sizes of the latest call
    int asked = 0;

    Regular *find(const std::vector<int64_t> &values);
    Regular *newcomer();
    void tell(PyObject *plan, const Program &program, Regular *regular);
};

} // namespace frameloom
