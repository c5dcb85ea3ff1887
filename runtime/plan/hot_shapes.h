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

class HotShapes {
  public:
    HotShapes() = default;
    HotShapes(const HotShapes &) = delete;
    ~HotShapes() { clear(); }
    // Returns the plan for the sizes of the latest call, or nullptr.  `stamp`: that of the
    // program's sizes.
    PyObject *cached_plan(uint64_t stamp) const {
        return latest && this->stamp == stamp ? latest->plan : nullptr;
    }
    // Counts a call with the sizes of `program`; returns the plan for these sizes (borrowed), or
    // nullptr. `plan`: the plan that is called.
    PyObject *record(PyObject *plan, const Program &program);
    // From now on `other` runs the calls with these values of the plan's keys; false with an
    // exception set.
    bool specialize(PyObject *values, PyObject *other);
    int traverse(visitproc visit, void *arg) const;
    void clear();

  private:
    static constexpr int OFTEN = 48; // calls
    static constexpr int MOST = 4;   // plans that are requested
    struct Entry {
        std::vector<int64_t> values;
        int calls = 0;
        bool requested = false;
        PyObject *plan = nullptr;
    };
    std::array<Entry, 8> entries;
    Entry *latest = nullptr;
    uint64_t stamp = 0; // that of the sizes of the latest call
    int requests = 0;

    Entry *find(const std::vector<int64_t> &values);
    Entry *admit();
    void request(PyObject *plan, const Program &program, Entry *entry);
};

} // namespace frameloom
