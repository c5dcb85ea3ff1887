"""Effects on Python objects: in order, once, on the right object.

PYTEST_DONT_REWRITE
"""

import collections
import weakref

import torch

from tests.programs.program import X, program

COUNT = 0
TABLE = {"n": 0, "items": []}
HISTORY = collections.deque(maxlen=3)
NAMES = set()


class Box:
    total = 0

    def __init__(self, value=None):
        self.value = value


SHARED = Box()


def reset():
    global COUNT
    COUNT = 0
    TABLE.clear()
    TABLE.update(n=0, items=[])
    HISTORY.clear()
    NAMES.clear()
    SHARED.__dict__.clear()
    SHARED.value = None


def seen():
    return (
        COUNT,
        dict(TABLE),
        list(TABLE["items"]),
        list(HISTORY),
        sorted(NAMES),
        dict(SHARED.__dict__),
    )


@program(before=reset, state=seen)
def global_variable_written(x):
    global COUNT
    COUNT += 1
    COUNT = COUNT * 10
    return x + COUNT


@program(before=reset, state=seen)
def global_dictionary_and_list_written(x):
    TABLE["n"] += 1
    TABLE["items"].append(x + 1)
    TABLE["new"] = len(TABLE["items"])
    return x * TABLE["n"]


@program(before=reset, state=seen)
def global_deque_and_set_written(x):
    for i in range(5):
        HISTORY.append(i)
    NAMES.add("a")
    NAMES.update(["b", "c"])
    NAMES.discard("b")
    return x + sum(HISTORY) + len(NAMES)


@program(before=reset, state=seen)
def global_object_written(x):
    SHARED.value = x * 2
    SHARED.other = [SHARED.value]
    SHARED.other.append(1)
    return SHARED.value + 1


@program(before=reset, state=seen)
def written_and_written_back(x):
    old = TABLE["n"]
    TABLE["n"] = 100
    y = x * TABLE["n"]
    TABLE["n"] = old
    return y


@program(before=reset, state=seen)
def deleted_and_made_again(x):
    del TABLE["n"]
    TABLE["n"] = 5
    TABLE.pop("items")
    TABLE["items"] = [x + 1]
    return x + 1, list(TABLE)


@program(before=reset, state=seen, graphs=2, breaks="print")
def effects_before_and_behind_a_break(x):
    global COUNT
    COUNT += 1
    TABLE["items"].append("before")
    y = x + COUNT
    print("count is", COUNT, TABLE["items"])
    COUNT += 1
    TABLE["items"].append("behind")
    return y * COUNT


@program(before=reset, state=seen)
def exception_after_effects(x):
    TABLE["n"] = 1
    try:
        TABLE["n"] = 2
        raise ValueError
    except ValueError:
        TABLE["n"] += 10
    finally:
        NAMES.add("done")
    return x * TABLE["n"]


@program(before=reset, state=seen, graphs=1, breaks="exception")
def effects_before_an_exception_leaves(x):
    y = x + 1
    TABLE["n"] = 7
    SHARED.value = y
    raise KeyError("out")


def make_counter():
    count = 0

    def step(x):
        nonlocal count
        count += 1
        return x * count

    return step


@program(args=lambda: (make_counter(), X))
def cell_of_a_closure_written(step, x):
    return step(x) + step(x)


@program()
def closures_share_a_cell(x):
    total = 0

    def add(n):
        nonlocal total
        total += n
        return total

    def get():
        return total

    add(1)
    add(2)
    return x + get(), add, get, total


@program()
def closures_in_a_loop_see_the_last_value(x):
    fns = [lambda: i for i in range(3)]
    kept = [lambda i=i: i for i in range(3)]
    return x + fns[0](), [f() for f in fns], [f() for f in kept]


@program(args=lambda: (X, iter([1, 2, 3])))
def iterator_argument_is_advanced(x, it):
    y = x + 1
    a = next(it)
    b = next(it)
    return y * a + b


@program(args=lambda: (X, (n for n in range(5))), graphs=2, breaks="opaque_iterable")
def generator_argument_is_advanced(x, gen):
    y = x + 1
    return y * next(gen)


@program()
def two_names_for_one_object(x):
    a = [x + 1]
    b = a
    c = {"a": a, "b": b}
    t = (a, c)
    return a, b, c, t, c["a"] is c["b"]


@program()
def one_tensor_in_many_places(x):
    y = x * 2
    box = Box(y)
    return y, [y, y], {"y": y}, box, box.value is y


@program()
def object_graph_with_sharing(x):
    inner = Box([x])
    outer = Box({"inner": inner, "list": inner.value})
    inner.parent = outer
    return outer, inner.parent is outer, outer.value["list"] is inner.value, x + 1


@program(args=lambda: ((b := Box(X)), [b, b]))
def identity_among_arguments(b, items):
    items[0].value = items[1].value + 1
    return b.value, items[0] is items[1], items[0] is b


@program(args=lambda: (Box(), X))
def new_objects_stored_in_an_argument(box, x):
    box.child = Box(x + 1)
    box.child.parent = box
    box.items = [box.child, box.child]
    return box.items[0] is box.child


@program(args=lambda: (Box([1]), X), graphs=2, breaks="print")
def identity_across_a_break(box, x):
    fresh = Box(box.value)
    y = x + 1
    print("now")
    fresh.value.append(2)
    return y * 2, fresh, fresh.value is box.value


@program(args=lambda: ([], X))
def list_argument_filled_in_a_callee(out, x):
    def fill(target, depth):
        target.append(x * depth)
        if depth:
            fill(target, depth - 1)

    fill(out, 2)
    return len(out)


@program(graphs=4, breaks="print print print print")
def prints_in_order(x):
    print("a")
    y = x + 1
    print("b", tuple(y.shape))
    z = y * 2
    print("c", end="; ")
    w = z - 1
    print("d", sep="-")
    return w / 2


@program(before=reset, state=seen)
def default_argument_shared_between_calls(x):
    def collect(item, into=TABLE["items"]):
        into.append(item)
        return len(into)

    return x + collect(1) + collect(2)


def remember(x, cache={}):
    cache["calls"] = cache.get("calls", 0) + 1
    return x * cache["calls"], cache


@program(
    before=lambda: remember.__defaults__[0].clear(), state=lambda: dict(remember.__defaults__[0])
)
def mutable_default_argument(x):
    return remember(x), remember(x + 1)


@program(breaks="unknown_call")
def weak_references(x):
    box = Box(x)
    ref = weakref.ref(box)
    return ref().value + 1, ref() is box


@program(
    before=lambda: setattr(Box, "total", 0),
    state=lambda: Box.total,
    graphs=2,
    breaks="attribute_write",
)
def class_attribute_is_shared(x):
    y = x + 1
    Box.total += 1
    return y * Box().total


@program(args=lambda: (X.clone(),))
def attribute_of_a_tensor(x):
    y = x + 1
    y.tag = "seen"
    return y.tag, y * 2


@program(args=lambda: (Box([3, 1, 2]), X))
def list_of_an_argument_sorted_and_sliced(box, x):
    box.value.sort()
    box.value[1:] = [9]
    box.value *= 2
    return x + box.value[-1]


@program(args=lambda: (collections.OrderedDict(a=1, b=2), X))
def ordered_argument_reordered(d, x):
    d.move_to_end("a")
    d["c"] = x + 1
    d.move_to_end("c", last=False)
    return list(d)


@program(args=lambda: (collections.Counter("aab"), X))
def counter_argument_updated(c, x):
    c["a"] += 1
    c.update("bz")
    return x + c["b"], c.most_common(1)


class Point:
    def __init__(self, x):
        self.x = x
        self.y = 1


def test_objects_keep_their_attributes_as_plain_python_does():
    """Assignments, not writes to a dictionary, which the object would have from then on."""
    import gc

    from frameloom import jit

    def fn(x, given):
        given.y = 2
        return x + 1, Point(3)

    plain, captured = Point(0), Point(0)
    jitted = jit(fn)
    jitted(X, Point(0))
    want, got = fn(X, plain)[1], jitted(X, captured)[1]
    for a, b in ((want, got), (plain, captured)):
        assert [type(part) for part in gc.get_referents(b)] == [
            type(part) for part in gc.get_referents(a)
        ]
