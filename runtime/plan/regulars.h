// Sizes that many calls have, and the plans that are compiled for them (hot shapes).
//
// A plan with symbolic sizes counts the calls by their sizes.  It calls `steady` of its spec once
// for sizes that come often.  When the plan for these sizes is ready, it runs the calls with them
// from then on.
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
    // Returns the plan for the sizes of the latest call, or nullptr.  `stamp`: that of the
    // program's sizes.
    PyObject *usual(uint64_t stamp) const { return latest && this->stamp == stamp ? latest->plan : nullptr; }
    // Counts a call with the sizes of `program`; returns the plan for these sizes (borrowed), or
    // nullptr. `plan`: the plan that is called.
    PyObject *meet(PyObject *plan, const Program &program);
    // From now on `other` runs the calls with these values of the plan's keys; false with an
    // exception set.
    bool settle(PyObject *values, PyObject *other);
    int traverse(visitproc visit, void *arg) const;
    void clear();

  private:
    static constexpr int OFTEN = 48; // calls
    static constexpr int MOST = 4;   // plans that are requested
    struct Regular {
        std::vector<int64_t> values;
        int calls = 0;
        bool told = false;
        PyObject *plan = nullptr;
    };
    std::array<Regular, 8> regulars;
    Regular *latest = nullptr;
    uint64_t stamp = 0; // that of the sizes of the latest call
    int asked = 0;

    Regular *find(const std::vector<int64_t> &values);
    Regular *newcomer();
    void tell(PyObject *plan, const Program &program, Regular *regular);
};

} // namespace frameloom
