"""str, bytes, None, Ellipsis, slice and range.

PYTEST_DONT_REWRITE
"""

import string

import torch

from tests.programs.program import X, program


@program()
def string_methods(x):
    s = "  Hello World "
    return (
        x + len(s), s.strip(), s.lower(), s.upper(), s.title(), s.split(), s.replace("l", "L"), s.find("W"), s.count("o"),
        s.startswith(" "), s.strip().endswith("d"), s.center(20, "*"), s.zfill(20), s.partition("o"), s.rpartition("o"),
        s.swapcase(), s.isspace(), "abc".isalpha(), "12".isdigit(), "a,b,c".split(",", 1), "a\nb".splitlines(),
    )  # fmt: skip


@program()
def string_formatting(x):
    name, n = "layer", 3
    return (
        x * n, f"{name}.{n:03d}", f"{n!r:>5}", f"{3.14159:.2f}", "%s-%d" % (name, n), "{}/{k}".format(name, k=n),
        f"{x.shape}", f"{x.dtype}", f"{name=}", f"{1000000:,}", f"{0.5:%}", f"{255:#x}", f"{n:{n}}",
    )  # fmt: skip


@program()
def string_operators(x):
    s = "ab"
    s += "c"
    return (
        x + s.index("c"),
        s * 2,
        "b" in s,
        s[0],
        s[-1],
        s[::-1],
        s[1:],
        s < "abd",
        s == "abc",
        "".join(reversed(s)),
        list(s),
        sorted("hello"),
        max(s),
        min(s),
    )


@program()
def string_join_and_translate(x):
    table = str.maketrans("abc", "xyz")
    return (
        x * 2,
        ", ".join(["a", "b"]),
        "".join(c for c in "hello" if c != "l"),
        "aabbcc".translate(table),
        "-".join("abc"),
        string.ascii_letters[:3],
        "é".encode(),
        b"abc".decode("ascii"),
        "a".casefold(),
    )


@program()
def string_keys_choose_activation(x, kind="relu"):
    table = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}
    return table[kind](x) if kind in table else getattr(torch, kind)(x)


@program()
def getattr_by_built_name(x):
    for op in ("sin", "cos"):
        x = getattr(torch, op)(x)
    return getattr(x, "re" + "lu")()


@program()
def bytes_and_characters(x):
    b = b"abc"
    return (
        x + b[0],
        b[1:],
        b + b"d",
        b.hex(),
        list(b),
        bytes([1, 2]),
        b"b" in b,
        b.upper(),
        ord("a"),
        chr(98),
        b"%d" % 3,
        b.split(b"b"),
        bytes.fromhex("0aff"),
        hash("a") == hash("a"),
    )


@program()
def iterate_over_string(x):
    for n, c in enumerate("axbx"):
        if c == "x":
            x = x + n
    return x


@program()
def none_and_ellipsis(x, mask=None, bias=None):
    if mask is not None:
        x = x * mask
    x = x[..., None]
    key = (Ellipsis, 0)
    return x[key] + (bias or 1), mask, ..., type(None)(), None is bias, Ellipsis is ...


@program()
def slices(x):
    s = slice(1, None)
    t = slice(None, None, 2)
    return (
        x[s] + 1,
        x[t],
        x[s, t],
        s.start,
        s.stop,
        t.step,
        [1, 2, 3][s],
        "abcd"[t],
        s == slice(1, None),
        slice(0, 9, 2).indices(4),
        x[slice(-2, None)],
    )


@program()
def ranges(x):
    r = range(2, 10, 3)
    for i in r:
        x = x + i
    return (
        x,
        list(r),
        len(r),
        r[1],
        r[-1],
        5 in r,
        r.start,
        r.stop,
        r.step,
        r[1:],
        r == range(2, 11, 3),
        r.index(5),
        list(reversed(r)),
        sum(r),
        bool(range(0)),
        tuple(range(3, 0, -1)),
    )


@program()
def nested_ranges_with_continue_and_else(x):
    total = 0
    for i in range(4):
        for j in range(i):
            if (i + j) % 2:
                continue
            total += i * j
        else:
            total += 100
    return x * total, total


@program(calls=[(X, "a"), (X, "b"), (X, "a")], graphs=2)
def string_argument_is_guarded(x, s):
    return x + ord(s), s


@program(calls=[(X, slice(0, 2)), (X, slice(1, 3)), (X, slice(None))], graphs=3)
def slice_argument(x, s):
    return x[s] * 2


@program(calls=[(X, range(3)), (X, range(4))], graphs=2)
def range_argument(x, r):
    for i in r:
        x = x + i
    return x, r


@program(args=(X, None), calls=[(X, None), (X, X)], graphs=2)
def optional_tensor(x, y):
    return x + 1 if y is None else x + y


@program()
def string_errors_are_caught(x):
    out = []
    for text in ("1", "x"):
        try:
            out.append(int(text))
        except ValueError as error:
            out.append(str(error))
    return x + out[0], out


@program()
def text_of_shapes_and_lists(x):
    return (
        x * 1,
        str(x.shape),
        repr([1, "a"]),
        str((1,)),
        str({"a": 1}),
        repr(x.dtype),
        str(None),
        f"{[1, 2]}",
        str(x.device),
        repr(slice(1, 2)),
        repr(range(3)),
    )
