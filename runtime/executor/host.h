// What the executor needs from the program that it is a part of, its host.
//
// The executor knows no Python.  A host defines these functions and is linked with it: no table of
// functions is read, so a call costs what any call costs.  The extension module is one host: its
// objects are Python's (runtime/plan/host.cpp, runtime/torch_abi/python_tensors.cpp).  Another is
// tests/runtime/executor_host.cpp.
#pragma once

#include <cstdint>
#include <vector>

struct _object; // by this name, a Python host needs no casts: it is the structure behind PyObject

namespace frameloom {

// Something of the host.  The executor keeps it and hands it back, and never looks into it.
using Object = ::_object;

struct Draw;
struct Extern;
struct Frame;
struct GpuFunction;
struct Layout;
struct Tensor;

enum class LayoutField { SHAPE, STRIDES, OFFSET };
enum class Error { VALUE, RUNTIME, SYSTEM, MEMORY, DEVICE }; // SYSTEM: of the operating system

// A function that returns false, nullptr or -1 has set an error, unless its comment says otherwise.
namespace host {

// --- errors
bool raise(Error kind, const char *text);       // returns false
bool raise_object(Object *type, Object *value); // returns false; no value: nullptr

// --- objects
void release(Object *object);
bool read_number(Object *object, bool is_float, void **bits); // false without an error: not such a number

// --- the lock that lets one thread at a time use objects
void *leave_lock();
void take_lock(void *left); // what leave_lock returned

// --- calls
bool draw(const Draw &draw, uint64_t *seed, uint64_t *offset); // reserves random numbers
const GpuFunction *load_function(Object *by);
bool call(Frame &frame, const Extern &call); // a library op that PyTorch's C interface does not offer

// --- tensors
bool borrow(Object *object, Tensor *result); // the handle inside the object, if there is one
// The same as functions of tensors.h, for tensors without a handle and dtypes without a code.
bool make_tensor(const Layout &layout, Tensor *result); // also if there is no memory: it says why
bool make_view(const Tensor &base, const Layout &layout, int64_t byte_offset, Tensor *result);
bool find_data(const Tensor &tensor, void **data);
int64_t rank(const Tensor &tensor);
const int64_t *layout_field(const Tensor &tensor, LayoutField field, std::vector<int64_t> *room);
int matches(Tensor *tensor, const Layout &layout);
bool restride(Tensor *tensor, const Layout &layout);

} // namespace host

// Sets an error about a plan; returns false.
inline bool wrong(const char *what) { return host::raise(Error::VALUE, what); }

} // namespace frameloom
