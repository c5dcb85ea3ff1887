"""Tuples and lists with all their methods, aliasing and errors.

PYTEST_DONT_REWRITE
"""

from tests.programs.program import X, program


@program()
def list_building(x):
    out = []
    for i in range(3):
        out.append(x * i)
    out.extend([x, x + 1])
    out.insert(1, "between")
    out += (5,)
    return out


@program()
def list_removing(x):
    items = [1, 2, 3, 2, x]
    last = items.pop()
    first = items.pop(0)
    items.remove(2)
    del items[-1]
    return last + first, items, len(items)


@program()
def list_questions(x):
    items = [3, 1, 2, 1]
    return (
        x + 1,
        items.index(2),
        items.count(1),
        items.index(1, 2),
        2 in items,
        9 not in items,
        items == [3, 1, 2, 1],
        items < [3, 2],
        [1] != [2],
        items * 2,
        items + [0],
        len(items),
        items.index(1, 0, 3),
    )


@program()
def list_sorting(x):
    items = [3, 1, 2]
    items.sort()
    down = sorted(items, reverse=True)
    words = ["bb", "a", "ccc"]
    words.sort(key=len, reverse=True)
    items.reverse()
    return x * items[0], items, down, words, sorted([(2, "b"), (1, "z")]), sorted({"b": 1, "a": 2})


@program()
def list_slices(x):
    items = list(range(6))
    items[1:3] = [10, 20, 30]
    items[::3] = [0, 0, 0]
    del items[-2:]
    copy = items[:]
    copy.append(x)
    return x + items[1], items, items[-1], items[::-1], copy


@program()
def list_copy_and_identity(x):
    a = [x]
    b = a
    c = a.copy()
    d = list(a)
    b.append(1)
    return a is b, a is c, a == b, a, b, c, d, x + len(a)


@program()
def list_clear_and_multiply_in_place(x):
    a = [1, 2]
    a *= 2
    b = a
    b.clear()
    return x + 1, a, b, a is b


@program()
def nested_lists_share(x):
    row = [0] * 2
    grid = [row] * 3
    grid[0][1] = x
    return grid, grid[0] is grid[2], x + 1


@program()
def list_that_holds_itself(x):
    a = [x + 1]
    a.append(a)
    return a[1][1][0], a


@program()
def list_of_tensors_by_identity(x):
    y = x + 1
    items = [x, y]
    return items[1] is y, [t is y for t in items], y


@program()
def list_errors_are_caught(x):
    found = []
    for action in (
        lambda a: a[5],
        lambda a: a.remove(9),
        lambda a: a.index(9),
        lambda a: [].pop(),
        lambda a: a.pop(7),
    ):
        try:
            action([1, 2])
        except (IndexError, ValueError) as error:
            found.append((type(error).__name__, str(error)))
    return x + 1, found


@program(args=(X, [1, 2]))
def list_argument_changes(x, items):
    items.append(x + 1)
    items[0] = 5
    items.reverse()
    return len(items)


@program(args=lambda: (X, *([shared := [1]] * 2)))
def one_list_under_two_names(x, a, b):
    a.append(2)
    return x + len(b), a is b


@program(args=(X, [X + 1, [X + 2, {"k": X + 3}]]))
def nested_argument(x, tree):
    tree[1][1]["k"] = x * 2
    tree[1].append(tree[0])
    return tree[0] + x, tree[1][2] is tree[0]


@program(calls=[(X, [1]), (X, []), (X, [1])], graphs=2)
def list_length_decides(x, items):
    if not items:
        return x - 1
    return x + len(items)


@program()
def tuple_operations(x):
    t = (1, 2, x)
    a, b, c = t
    return (
        t + (4,),
        t[1:],
        t[-1],
        t * 2,
        len(t),
        t.index(2),
        (1, 2, 1).count(1),
        (1, 2) < (1, 3),
        2 in (1, 2),
        (1, 2) == (1, 2),
        c + a + b,
        hash((1, 2)) == hash((1, 2)),
        tuple([1]),
        (),
    )


@program()
def tuple_unpacking_swaps(x):
    a, b = x[0], x[1]
    a, b = b, a
    (c, d), *rest = (a, b), 3, 4
    first, *middle, last = range(5)
    return c - d, rest, first, middle, last


@program()
def starred_calls_and_displays(x):
    def f(*args, **kwargs):
        return args, sorted(kwargs)

    items = [1, 2]
    return (
        x + 1,
        f(*items, 3, *"ab", k=1, **{"z": 2}),
        [*items, *items],
        (*items, 0),
        {*items, 3} == {1, 2, 3},
    )


@program()
def tuple_immutability_is_caught(x):
    t = (1, 2)
    try:
        t[0] = 5
    except TypeError as error:
        return x + 1, str(error)


@program()
def list_comprehensions(x):
    return (
        [x[i] * j for i in range(2) for j in range(3) if i != j],
        [[i * j for j in range(2)] for i in range(2)],
        [y for t in x for y in (t.sum(),)],
    )


@program()
def list_changes_while_iterated(x):
    items = [1, 2, 3]
    for i in items:
        if len(items) < 6:
            items.append(i * 10)
    return x + sum(items), items


@program()
def list_iterator_is_kept(x):
    it = iter([1, 2, 3])
    first = next(it)
    return x + first, it


@program()
def two_iterators_of_one_list(x):
    items = [1, 2, 3, 4]
    it = iter(items)
    pairs = list(zip(it, it))
    return x + 1, pairs, list(it)


@program()
def reversed_list(x):
    items = [x, x + 1]
    r = reversed(items)
    return next(r) * 2, list(r), list(reversed((1, 2))), r


@program()
def augmented_item(x):
    items = [x, 2]
    items[0] += 1
    items[1] **= 3
    table = {"a": x}
    table["a"] *= 2
    return items, table


@program()
def comparing_lists_of_lists(x):
    return (
        x + 1,
        [[1], [2]] == [[1], [2]],
        [1, [2]] < [1, [3]],
        (1, "a") < (1, "b"),
        [] == (),
        max([1, 5], [1, 6]),
        [1, 2] <= [1, 2],
        (2,) > (1, 9),
    )


@program()
def list_in_boolean_context(x, extra=()):
    items = [x] if x.ndim == 2 else []
    return (items and items[0]) * 2, items or None, not extra, bool([0])


class OwnTuple(tuple):
    pass


@program(graphs=0, breaks="opaque_object", args=(X, OwnTuple([1])))
def writing_to_a_tuple_names_its_class(x, items):
    try:
        items[0] = 2
    except TypeError as error:
        assigned = str(error)
    try:
        del items[0]
    except TypeError as error:
        return x + 1, assigned, str(error)
