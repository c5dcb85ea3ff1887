"""set and frozenset.

PYTEST_DONT_REWRITE
"""

from tests.programs.program import X, program

NAMES = {"weight", "bias"}
FROZEN = frozenset({1, 2, 3})


@program()
def set_building(x):
    s = {1, 2}
    s.add(3)
    s.update([4, 5], (6,))
    s |= {7}
    return x + len(s), s, set("aab") == {"a", "b"}, {i % 3 for i in range(9)}, set(), frozenset([1])


@program()
def set_removing(x):
    s = {1, 2, 3, 4}
    s.remove(1)
    s.discard(9)
    s -= {2}
    t = s.copy()
    one = {5}.pop()
    s.clear()
    return x + one, s, t


@program()
def set_algebra(x):
    a, b = {1, 2, 3}, {2, 3, 4}
    return (
        x * 2,
        a | b,
        a & b,
        a - b,
        a ^ b,
        a.union(b, [9]),
        a.intersection(b, [2]),
        a.difference([1]),
        a.symmetric_difference([1, 7]),
    )


@program()
def set_in_place_algebra(x):
    a = {1, 2, 3}
    b = a
    a &= {1, 2}
    a ^= {2, 5}
    a.intersection_update([1, 5, 6])
    a.difference_update([5])
    a.symmetric_difference_update([8])
    return x + 1, a, b, a is b


@program()
def set_questions(x):
    a = {1, 2}
    return (
        x + 1,
        1 in a,
        5 not in a,
        a < {1, 2, 3},
        a <= {1, 2},
        a > {1},
        a == {2, 1},
        a != {1},
        a.issubset([1, 2, 3]),
        a.issuperset([1]),
        a.isdisjoint([7]),
        bool(set()),
        len(a),
    )


@program()
def set_iteration_of_constants(x):
    total = 0
    for n in {3, 1, 2}:
        total = total * 10 + n
    return x + total, sorted({"b", "a"}), max({4, 9}), sum({1, 2}), list({5})


@program()
def set_of_tensors_by_identity(x):
    y = x + 1
    seen = {x}
    seen.add(y)
    seen.add(x)
    return len(seen), y in seen, (x + 2) in seen, y


@program()
def visited_objects(x):
    class_names = set()
    for item in (1, "a", 2.0, x):
        class_names.add(type(item).__name__)
    return x + len(class_names), sorted(class_names)


@program()
def frozenset_operations(x):
    f = frozenset("ab")
    d = {f: x + 1}
    return (
        d[frozenset("ba")],
        f | {"c"},
        f & {"a"},
        f == {"a", "b"},
        hash(f) == hash(frozenset("ba")),
        "a" in f,
        f - {"a"},
        type({"q"} | f),
        type(f | {"q"}),
        f.copy() is f,
    )


@program()
def set_errors_are_caught(x):
    found = []
    for action in (lambda s: s.remove(9), lambda s: set().pop(), lambda s: s.add([])):
        try:
            action({1})
        except (KeyError, TypeError) as error:
            found.append(str(error))
    return x + 1, found


@program()
def global_set_is_read(x):
    return (
        x + ("bias" in NAMES) + len(NAMES),
        "z" in NAMES,
        2 in FROZEN,
        sorted(NAMES),
        NAMES & {"bias", "q"},
    )


@program(args=(X, {1, 2}))
def set_argument_changes(x, s):
    s.add(3)
    s.discard(1)
    return x + len(s), 2 in s


@program(calls=[(X, {1}), (X, {1, 2}), (X, {2}), (X, {1})], graphs=3)
def set_argument_is_guarded(x, s):
    return x + len(s), 1 in s


@program(args=(X, {"a", "b"}, frozenset({1})))
def set_arguments_combined(x, s, f):
    return x + 1, s | {"c"}, s == {"b", "a"}, f | {2}, sorted(s), s


@program(args=lambda: (X, {(y := X + 1)}, y), graphs=2)
def set_with_a_tensor(x, s, y):
    return y in s, x in s, len(s), x + 1


@program()
def set_comprehension_and_sorted(x):
    shapes = {tuple(t.shape) for t in (x, x.t(), x[0], x)}
    return x + 1, sorted(shapes), len(shapes)


@program()
def left_where_others_stood_in_the_way(x):
    gone = [{0, 1, 8, 16} - {0}, {0, 1, 8, 9}, {*(0, 1, 24), 8}.copy()]
    gone[1].discard(0)
    gone[2].discard(0)
    gone.append(dict.fromkeys((0, 1, 16, 8)).keys() - {0})
    gone[1].add(16)
    return x + 1, gone, [list(s) for s in gone]
