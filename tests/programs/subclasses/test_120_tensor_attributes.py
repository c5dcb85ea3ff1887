"""Attributes that programs set on tensors.

PYTEST_DONT_REWRITE
"""

import torch

from tests.programs.program import X, program


def tagged(*names):
    x = X.clone()
    for name in names:
        setattr(x, name, name.upper())
    return x


class Box:
    pass


@program()
def set_on_a_result(x):
    y = x + 1
    y.tag = 3
    y.note = [1, x]
    return y, y.tag, hasattr(y, "tag"), hasattr(y, "other"), getattr(y, "other", 5)


@program()
def set_on_an_input(x):
    had = hasattr(x, "tag")
    x.tag = x + 1
    return had, x.tag * 2, hasattr(x, "tag")


@program(calls=[(X,), lambda: (tagged("tag"),), (X,)], graphs=2)
def read_of_an_input(x):
    if hasattr(x, "tag"):
        return x * 2, x.tag
    return x + 2


@program(args=lambda: (tagged("tag", "other"),))
def delete_on_an_input(x):
    y = x * 2
    del x.tag
    try:
        x.tag  # noqa: B018
    except AttributeError:
        return y, hasattr(x, "tag"), x.other
    return y


@program()
def delete_on_a_result(x):
    y = x * 2
    y.tag = 1
    y.other = 2
    del y.tag
    return y, hasattr(y, "tag"), y.other


@program()
def delete_what_is_not_there(x):
    y = x * 2
    try:
        del y.tag
    except AttributeError:
        return y + 1
    return y


@program()
def attribute_that_hides_a_method(x):
    y = x * 2
    y.relu = lambda: 5
    return y, y.relu()


@program()
def attributes_stay_on_their_tensor(x):
    y = x * 2
    y.tag = "y"
    z = y + 1
    return z, hasattr(z, "tag"), y.view(-1), hasattr(y[0], "tag"), hasattr(y.detach(), "tag")


@program()
def what_returns_the_same_tensor(x):
    y = x * 2
    y.tag = "y"
    return y.contiguous().tag, y.to(torch.float32).tag, y.add_(1).tag, y


@program()
def a_tensor_that_refers_to_itself(x):
    y = x * 2
    y.me = y
    return y.me is y, y


@program()
def an_attribute_is_a_view(x):
    y = x * 2
    y.row = y[0]
    y.row.add_(1)
    return y


@program(graphs=2, breaks="print")
def break_between(x):
    y = x * 2
    y.tag = [1]
    print("here")
    y.tag.append(2)
    return y + 1, y


@program(calls=[lambda: (X, Box()), lambda: (X, Box())])
def set_on_a_tensor_in_an_object(x, box):
    box.t = x * 2
    box.t._no_decay = True
    return box.t + 1


@program(args=lambda: ([X.clone()] * 2,))
def two_names_for_one_input(pair):
    pair[0].tag = 1
    return pair[0] + 1, pair[1].tag


@program(calls=[lambda: ([X.clone(), X.clone()],), lambda: ([X.clone()] * 2,)], graphs=2)
def set_on_one_of_two_inputs(pair):
    y = pair[0] + pair[1]
    pair[0].tag = 1
    return y, hasattr(pair[1], "tag")


@program()
def mark_of_a_parameter(x):
    y = x * 2
    y._is_param = True
    return y + 1, isinstance(y, torch.nn.Parameter)


@program(breaks="exception")
def an_exception_behind_it(x):
    y = x * 2
    x.tag = 1
    raise ValueError(y.sum() + 1)
