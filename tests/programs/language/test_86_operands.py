"""Which special method is asked first: all operators on all pairs of classes that answer, do not know, inherit, reflect, or are written in C."""

import itertools
from collections import Counter, OrderedDict, defaultdict, deque

import pytest

from tests.programs.against_python import LOG, X, differences


def made(name, *bases, **answers):
    """A class whose special methods note that they were called and give these answers."""

    def method(special, answer):
        def call(self, *others):
            LOG.append((name, special))
            return answer

        return call

    return type(name, bases, {special: method(special, a) for special, a in answers.items()})


NI = NotImplemented
Answers = made("Answers", __add__="A+", __eq__="A==", __lt__="A<", __mul__="A*")
Reflects = made("Reflects", __radd__="R+", __ne__="R!=", __gt__="R>", __ror__="R|")
Unsure = made(
    "Unsure", __add__=NI, __radd__=NI, __eq__=NI, __ne__=NI, __lt__=NI, __gt__=NI, __iadd__=NI
)
Overrides = made("Overrides", Answers, __radd__="O+", __gt__="O>")
Inherits = made("Inherits", Answers)
InPlace = made("InPlace", __iadd__=NI, __add__="I+", __ior__="I|=")
ListThatReflects = made("ListThatReflects", list, __radd__="L+", __eq__="L==")
List = made("List", list)
DictThatReflects = made("DictThatReflects", dict, __ror__="D|", __eq__=NI)
Dict = made("Dict", dict)
TupleThatIsUnsure = made("TupleThatIsUnsure", tuple, __add__=NI, __eq__=NI)
Index = made("Index", __index__=2, __mul__="X*", __rmul__="Xr*")
OnlyIndex = made("OnlyIndex", __index__=2)
Plain = made("Plain")
Unequal = made("Unequal", Plain, __ne__=False)
Int = made("Int", int, __add__="N+", __radd__="Nr+")
Text = made("Text", str, __radd__="T+", __mod__="T%")

OPERANDS = {
    "Answers": Answers, "Reflects": Reflects, "Unsure": Unsure, "Overrides": Overrides, "Inherits": Inherits, "InPlace": InPlace,
    "ListThatReflects": lambda: ListThatReflects([1]), "List": lambda: List([1]), "DictThatReflects": lambda: DictThatReflects({1: 2}),
    "Dict": lambda: Dict({1: 2}), "TupleThatIsUnsure": lambda: TupleThatIsUnsure((1,)), "Index": Index, "OnlyIndex": OnlyIndex,
    "Plain": Plain, "Unequal": Unequal, "Int": lambda: Int(3), "Text": lambda: Text("t%s"), "list": lambda: [1], "tuple": lambda: (1,),
    "dict": lambda: {1: 2}, "defaultdict": lambda: defaultdict(int, {3: 2}), "OrderedDict": lambda: OrderedDict({1: 2}), "set": lambda: {1},
    "deque": lambda: deque([1]), "Counter": lambda: Counter([1]), "int": lambda: 1, "str": lambda: "s%s", "None": lambda: None,
}  # fmt: skip
FORMS = ["l + r", "l == r", "l != r", "l < r", "l | r", "l * r", "l in [r]", "l += r", "l |= r", "l *= r"]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_operands_are_asked_as_python_asks_them(form):
    is_statement = "= r" in form and form[2] in "+|*"
    body = f"    z = {form}\n    return y, z\n"
    if is_statement:
        body = f"    before = l\n    {form}\n    return y, l, l is before, before\n"
    scope = {}
    exec(f"def f(x, l, r):\n    y = x + 1\n{body}", scope)
    pairs = list(itertools.product(OPERANDS.items(), repeat=2))
    for (left, make_left), (right, make_right) in pairs[FORMS.index(form) % 3 :: 3]:
        found = differences(scope["f"], lambda: (X, make_left(), make_right()))  # noqa: B023
        assert not found, f"{left}, {right}\n{found}"
