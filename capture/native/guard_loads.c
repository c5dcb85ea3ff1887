/* The kinds of loads: how the object of a node is read from the call, or from the object of its parent.
 *
 * A load is one row of `guard_loads`. Guards read objects by it at each call; new code reads them by it
 * after a graph break, and Python takes its name from here.
 */
#include "guard.h"

/* --- keys --- */

/* A tensor that is a key, as in an optimizer's state, is held weakly: the caller who looks it up has it. */
static int set_key(Step *step, PyObject *key) {
    step->weak = PyObject_TypeCheck(key, torch_header.tensor_type);
    step->object = step->weak ? PyWeakref_NewRef(key, NULL) : Py_NewRef(key);
    if (step->object == NULL) return -1;
    if (PyUnicode_CheckExact(step->object)) PyUnicode_InternInPlace(&step->object);
    return 0;
}

int guard_take_key(Step *step, PyObject *key, Py_ssize_t Py_UNUSED(nodes)) {
    step->number = PyObject_Hash(key);
    return step->number == -1 ? -1 : set_key(step, key);
}

/* A name, or a name and the class after which the look-up starts. */
int guard_take_class_key(Step *step, PyObject *key, Py_ssize_t nodes) {
    int is_pair = PyTuple_CheckExact(key) && PyTuple_GET_SIZE(key) == 2 &&
                  PyUnicode_CheckExact(PyTuple_GET_ITEM(key, 0)) && PyType_Check(PyTuple_GET_ITEM(key, 1));
    return is_pair || PyUnicode_CheckExact(key) ? guard_take_key(step, key, nodes) : -1;
}

static int take_name(Step *step, PyObject *key, Py_ssize_t nodes) {
    return PyUnicode_CheckExact(key) ? guard_take_key(step, key, nodes) : -1;
}

int guard_take_number(Step *step, PyObject *value, Py_ssize_t Py_UNUSED(nodes)) {
    step->number = PyLong_AsSsize_t(value);
    return step->number == -1 && PyErr_Occurred() ? -1 : 0;
}

static int take_position(Step *step, PyObject *value, Py_ssize_t nodes) {
    return guard_take_number(step, value, nodes) < 0 || step->number < 0 ? -1 : 0;
}

static int take_access(Step *step, PyObject *value, Py_ssize_t nodes) {
    return value == Py_None ? 0 : take_position(step, value, nodes);
}

static int take_object(Step *step, PyObject *value, Py_ssize_t Py_UNUSED(nodes)) {
    step->object = Py_NewRef(value);
    return 0;
}

int guard_take_tuple(Step *step, PyObject *value, Py_ssize_t nodes) {
    return PyTuple_CheckExact(value) ? take_object(step, value, nodes) : -1;
}

int guard_node_known(Py_ssize_t node, Py_ssize_t nodes) {
    if (node >= 0 && node < nodes) return 1;
    PyErr_Format(PyExc_IndexError, "there is no guard node %zd", node);
    return 0;
}

PyObject *guard_key(const Step *step) {
    PyObject *key = guard_intended(step);
    return step->weak && key == Py_None ? NULL : key;
}

/* --- loads --- */

static PyObject *load_arg(const Step *step, PyObject *Py_UNUSED(parent), const Call *call) {
    return step->number < call->slot_count ? call->slots[step->number] : NULL;
}

static PyObject *load_cell(const Step *step, PyObject *Py_UNUSED(parent), const Call *call) {
    PyObject *closure = call->function->func_closure;
    if (closure == NULL || step->number >= PyTuple_GET_SIZE(closure)) return NULL;
    return PyCell_GET(PyTuple_GET_ITEM(closure, step->number));
}

static PyObject *load_globals(const Step *Py_UNUSED(step), PyObject *Py_UNUSED(parent), const Call *call) {
    return call->function->func_globals;
}

static PyObject *load_object(const Step *step, PyObject *Py_UNUSED(parent), const Call *Py_UNUSED(call)) {
    return step->object;
}

static PyObject *load_attr(const Step *step, PyObject *object, const Call *Py_UNUSED(call)) {
    return guard_load_attr(object, step->object);
}

static PyObject *load_dict(const Step *Py_UNUSED(step), PyObject *object, const Call *Py_UNUSED(call)) {
    return guard_dict_of(object);
}

/* Makes the dictionary of an object that has none yet. */
static PyObject *read_dict(PyObject *object) {
    PyObject *name = PyUnicode_InternFromString("__dict__");
    PyObject *dict = name ? PyObject_GenericGetAttr(object, name) : NULL;
    Py_XDECREF(name);
    return dict;
}

/* The attributes that this thread has in a `threading.local` (not of a subclass, whose `__init__` would run).
 */
static PyObject *load_thread_dict(const Step *Py_UNUSED(step), PyObject *object,
                                  const Call *Py_UNUSED(call)) {
    PyObject *dict = PyObject_GetAttrString(object, "__dict__");
    if (dict == NULL) PyErr_Clear();
    return dict;
}

static PyObject *load_type(const Step *Py_UNUSED(step), PyObject *object, const Call *Py_UNUSED(call)) {
    return (PyObject *)Py_TYPE(object);
}

static PyObject *load_item(const Step *step, PyObject *object, const Call *Py_UNUSED(call)) {
    Py_ssize_t index = step->number;
    if (guard_is_sequence(object)) {
        PyObject *item = PySequence_GetItem(object, index);
        if (item == NULL) PyErr_Clear();
        Py_XDECREF(item); /* the sequence holds it */
        return item;
    }
    Py_ssize_t size = PyTuple_Check(object) || PyList_Check(object) ? Py_SIZE(object) : 0;
    if (index < 0) index += size;
    if (index < 0 || index >= size) return NULL;
    return PyTuple_Check(object) ? PyTuple_GET_ITEM(object, index) : PyList_GET_ITEM(object, index);
}

static int take_index(Step *step, PyObject *key, Py_ssize_t nodes) {
    return guard_take_number(step, key, nodes) < 0 ? -1 : take_object(step, key, nodes);
}

static PyObject *load_key(const Step *step, PyObject *dict, const Call *Py_UNUSED(call)) {
    PyObject *key = guard_key(step);
    return key && PyDict_Check(dict) ? guard_dict_find(dict, key, step->number) : NULL;
}

static PyObject *load_class_attr(const Step *step, PyObject *class, const Call *Py_UNUSED(call)) {
    return guard_class_lookup(class, step->object);
}

static PyObject *load_class_order(const Step *Py_UNUSED(step), PyObject *class, const Call *Py_UNUSED(call)) {
    return guard_class_order(class);
}

/* The object and the position of a builtin iterator, from its `__reduce__`; a new reference. */
static PyObject *load_state(const Step *Py_UNUSED(step), PyObject *iterator, const Call *Py_UNUSED(call)) {
    static PyTypeObject *const types[] = {&PyListIter_Type,     &PyListRevIter_Type, &PyTupleIter_Type,
                                          &PyRangeIter_Type,    &PyDictIterKey_Type, &PyDictIterValue_Type,
                                          &PyDictIterItem_Type, &PySetIter_Type};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(types); i++) {
        if (!Py_IS_TYPE(iterator, types[i])) continue;
        PyObject *state = PyObject_CallMethod(iterator, "__reduce__", NULL);
        if (state == NULL) PyErr_Clear();
        return state;
    }
    return NULL;
}

static PyObject *load_cell_contents(const Step *Py_UNUSED(step), PyObject *cell,
                                    const Call *Py_UNUSED(call)) {
    return PyCell_Check(cell) ? PyCell_GET(cell) : NULL;
}

static PyObject *load_proxied(const Step *Py_UNUSED(step), PyObject *proxy, const Call *Py_UNUSED(call)) {
    return Py_IS_TYPE(proxy, &PyDictProxy_Type) ? proxied_mapping(proxy) : NULL;
}

static PyObject *load_cached(const Step *Py_UNUSED(step), PyObject *entry, const Call *Py_UNUSED(call)) {
    return cached_result(entry);
}

static PyObject *load_referent(const Step *Py_UNUSED(step), PyObject *reference,
                               const Call *Py_UNUSED(call)) {
    return PyWeakref_CheckRef(reference) ? weakref_living(reference) : NULL;
}

/* Whether writes to the array do not warn, and whether it may be written is as the access says. */
static int has_access(PyObject *array, Py_ssize_t access) {
    enum { WRITEABLE = 0x400, WARNS_BIT = 31 }; /* of NumPy's flags */
    PyObject *flags = PyObject_GetAttrString(array, "flags");
    PyObject *number = flags ? PyObject_GetAttrString(flags, "num") : NULL;
    unsigned long bits = number ? PyLong_AsUnsignedLongMask(number) : 0;
    Py_XDECREF(number);
    Py_XDECREF(flags);
    int is_readonly = access & 1;
    return number && ((bits & WRITEABLE) == 0) == is_readonly && (bits & 1ul << WARNS_BIT) == 0;
}

/* The array read forwards along the dimensions of the access, which must be those that it is read backwards
 * along; NULL if they are not. */
static PyObject *read_forwards(PyObject *array, Py_ssize_t access) {
    PyObject *strides = PyObject_GetAttrString(array, "strides");
    Py_ssize_t dims = strides && PyTuple_Check(strides) ? PyTuple_GET_SIZE(strides) : 0;
    PyObject *minus_1 = PyLong_FromLong(-1), *slices = PyTuple_New(dims), *forwards = NULL;
    int is_same = strides && minus_1 && slices && dims < 62 && access >> (dims + 1) == 0;
    for (Py_ssize_t d = 0; is_same && d < dims; d++) {
        int is_backwards = PyLong_AsSsize_t(PyTuple_GET_ITEM(strides, d)) < 0;
        PyObject *slice = PySlice_New(NULL, NULL, is_backwards ? minus_1 : NULL);
        is_same = slice && is_backwards == (int)(access >> (d + 1) & 1);
        if (slice) PyTuple_SET_ITEM(slices, d, slice);
    }
    if (is_same) forwards = PyObject_GetItem(array, slices);
    Py_XDECREF(slices);
    Py_XDECREF(minus_1);
    Py_XDECREF(strides);
    return forwards;
}

/* An array over the same memory that may be written, since PyTorch warns of others. It is made of the
 * attribute by which NumPy reads memory of other objects, and keeps `array` alive. */
static PyObject *writeable(PyObject *array) {
    PyObject *numpy = PyImport_ImportModule("numpy"), *types = PyImport_ImportModule("types");
    PyObject *shown = PyObject_GetAttrString(array, "__array_interface__"), *made = NULL, *holder = NULL;
    PyObject *data = shown && PyDict_Check(shown) ? PyDict_GetItemString(shown, "data") : NULL;
    if (numpy && types && data && PyTuple_Check(data)) {
        PyObject *pair = PyTuple_Pack(2, PyTuple_GET_ITEM(data, 0), Py_False);
        holder = PyObject_CallMethod(types, "SimpleNamespace", NULL);
        if (pair && holder && PyDict_SetItemString(shown, "data", pair) == 0 &&
            PyObject_SetAttrString(holder, "array", array) == 0 &&
            PyObject_SetAttrString(holder, "__array_interface__", shown) == 0)
            made = PyObject_CallMethod(numpy, "asarray", "O", holder);
        Py_XDECREF(pair);
    }
    Py_XDECREF(holder);
    Py_XDECREF(shown);
    Py_XDECREF(types);
    Py_XDECREF(numpy);
    return made;
}

/* The tensor over the memory of an exact `numpy.ndarray`, whose type is checked before; NULL if PyTorch
 * cannot share it, or if its access is another. */
static PyObject *load_tensor_of_array(const Step *step, PyObject *array, const Call *Py_UNUSED(call)) {
    static PyObject *from_numpy;
    if (from_numpy == NULL) {
        PyObject *torch = PyImport_ImportModule("torch");
        from_numpy = torch ? PyObject_GetAttrString(torch, "from_numpy") : NULL;
        Py_XDECREF(torch);
    }
    Py_ssize_t access = step->number;
    int is_plain = access == 0;
    PyObject *shared = NULL, *tensor = NULL;
    if (from_numpy && has_access(array, access))
        shared = is_plain ? Py_NewRef(array) : read_forwards(array, access);
    if (shared && access & 1) Py_SETREF(shared, writeable(shared));
    if (shared) tensor = PyObject_CallOneArg(from_numpy, shared);
    Py_XDECREF(shared);
    if (tensor == NULL) PyErr_Clear();
    return tensor;
}

/* A part of a Python function, None if it has none; a part of a bound method. */
#define LOAD_PART(name, checks, structure, field)                                                            \
    static PyObject *load_##name(const Step *Py_UNUSED(step), PyObject *object,                              \
                                 const Call *Py_UNUSED(call)) {                                              \
        if (!checks(object)) return NULL;                                                                    \
        PyObject *part = ((structure *)object)->field;                                                       \
        return part ? part : Py_None;                                                                        \
    }
LOAD_PART(func_closure, PyFunction_Check, PyFunctionObject, func_closure)
LOAD_PART(func_defaults, PyFunction_Check, PyFunctionObject, func_defaults)
LOAD_PART(func_kwdefaults, PyFunction_Check, PyFunctionObject, func_kwdefaults)
LOAD_PART(func_code, PyFunction_Check, PyFunctionObject, func_code)
LOAD_PART(func_globals, PyFunction_Check, PyFunctionObject, func_globals)
LOAD_PART(method_self, PyMethod_Check, PyMethodObject, im_self)
LOAD_PART(method_func, PyMethod_Check, PyMethodObject, im_func)

const GuardKind guard_loads[] = {
    /* position among the function's arguments: positional, then keyword-only, then the *args tuple, then the
     * **kwargs dict */
    {"arg", take_position, .root = 1, .load = load_arg, .move = MOVE_ARG},
    /* position among its free variables: the content; an empty cell fails */
    {"cell", take_position, .root = 1, .load = load_cell},
    {"globals", .root = 1, .load = load_globals},
    /* object: that object, such as a class, which the guards keep */
    {"object", take_object, .root = 1, .load = load_object, .holds = FOR_EVER},
    /* name: what PyObject_GenericGetAttr reads without running Python. Properties and descriptors in Python
     * must not be guarded so: use "dict" and "type". */
    {"attr", take_name, .load = load_attr, .fresh = 1, .path = "{0}.{1}"},
    /* the instance's __dict__ */
    {"dict", .load = load_dict, .move = MOVE_DICT, .read = read_dict, .path = "{0}.__dict__"},
    {"thread_dict", .load = load_thread_dict, .fresh = 1, .path = "{0}.__dict__"},
    {"type", .load = load_type, .path = "type({0})"},
    /* index, of a list or tuple (subclasses too, by C layout) or an added sequence type */
    {"item", take_index, .load = load_item, .holds = WITH_TUPLE, .path = "{0}[{1}]"},
    /* key of a dict (subclasses too, by C layout): a str, int, bool, None, or an object that is compared by
     * identity */
    {"key", guard_take_key, .load = load_key, .holds = WITH_TABLE, .reads_dict = 1, .path = "{0}[{1!r}]"},
    /* name, or (name, class): the raw attribute of a class, also of its bases after that one */
    {"class_attr", guard_take_class_key, .load = load_class_attr, .holds = WITH_TABLE, .path = "{0}.{1}"},
    {"class_order", .load = load_class_order, .holds = WITH_TABLE, .path = "{0}.__mro__"},
    /* what `__reduce__` of a builtin iterator returns */
    {"state", .load = load_state, .fresh = 1, .path = "{0}.__reduce__()"},
    {"cell_contents", .load = load_cell_contents, .attribute = "cell_contents"},
    /* the mapping that a MappingProxyType shows */
    {"proxied", .load = load_proxied, .holds = WITH_OBJECT, .path = "{0}"},
    /* the result in an entry of a bounded functools.lru_cache, whose type is checked before; it gets
     * another result only under another key */
    {"cached", .load = load_cached, .holds = WITH_OBJECT, .path = "{0}"},
    /* what a weak reference refers to, None once it died */
    {"referent", .load = load_referent, .path = "{0}()"},
    /* the access: bit 0 if the array may not be written, bit d + 1 if it is read backwards along dimension d;
     * the tensor is read forwards */
    {"tensor_of_array", take_access, .load = load_tensor_of_array, .fresh = 1,
     .path = "torch.from_numpy({0})"},
    {"func_closure", .load = load_func_closure, .holds = WITH_OBJECT, .type = &PyTuple_Type,
     .attribute = "__closure__"},
    {"func_defaults", .load = load_func_defaults, .attribute = "__defaults__"},
    {"func_kwdefaults", .load = load_func_kwdefaults, .attribute = "__kwdefaults__"},
    {"func_code", .load = load_func_code, .attribute = "__code__"},
    {"func_globals", .load = load_func_globals, .holds = WITH_OBJECT, .attribute = "__globals__"},
    {"method_self", .load = load_method_self, .holds = WITH_OBJECT, .attribute = "__self__"},
    {"method_func", .load = load_method_func, .holds = WITH_OBJECT, .attribute = "__func__"},
    {0},
};

/* --- for Python --- */

/* Called from new code: read(object, key=None). `self` is the name of the kind. */
static PyObject *run_load(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    const GuardKind *kind = guard_kind_named(guard_loads, self);
    if (nargs < 1 || nargs > 2) {
        PyErr_SetString(PyExc_TypeError, "read(object, key=None)");
        return NULL;
    }
    if (kind->read) return kind->read(args[0]);
    Step step = {.kind = kind};
    PyObject *key = nargs == 2 ? args[1] : Py_None;
    if (kind->take && kind->take(&step, key, 0) < 0) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "no key of this kind: %R", key);
        return NULL;
    }
    PyObject *value = kind->load(&step, args[0], NULL);
    if (!kind->fresh) Py_XINCREF(value);
    Py_XDECREF(step.object);
    if (value == NULL) PyErr_Format(PyExc_LookupError, "%U of a %s", self, Py_TYPE(args[0])->tp_name);
    return value;
}

/* Adds `LOADS`: by name, the attribute that new code reads, or the function that it calls; and the format of
 * the path. */
int guards_add_loads(PyObject *module) {
    static PyMethodDef definition = {"read", (PyCFunction)(void (*)(void))run_load, METH_FASTCALL, NULL};
    PyObject *loads = PyDict_New();
    for (const GuardKind *kind = guard_loads; loads && kind->name; kind++) {
        if (kind->root) continue;
        PyObject *name = PyUnicode_InternFromString(kind->name), *row = NULL;
        if (name && kind->attribute)
            row = Py_BuildValue("sN", kind->attribute, PyUnicode_FromFormat("{0}.%s", kind->attribute));
        else if (name)
            row = Py_BuildValue("Ns", PyCFunction_New(&definition, name), kind->path);
        if (row == NULL || PyDict_SetItem(loads, name, row) < 0) Py_CLEAR(loads);
        Py_XDECREF(row);
        Py_XDECREF(name);
    }
    int status = loads ? PyModule_AddObjectRef(module, "LOADS", loads) : -1;
    Py_XDECREF(loads);
    return status;
}
