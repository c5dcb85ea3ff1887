"""warnings.catch_warnings around operations.

PYTEST_DONT_REWRITE
"""

import warnings

import torch

from tests.programs.program import X, program


@program()
def ignored(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x * 2
    return y + 1


@program()
def some_ignored(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, message=".*lr_scheduler")
        return x * 2


@program()
def ignored_at_once(x):
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return x * 2


@program()
def nested(x):
    with warnings.catch_warnings():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=UserWarning)
            x = x + 1
        warnings.simplefilter("ignore")
    return x


@program()
def exception_inside(x):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = x + 1
            raise KeyError("k")
    except KeyError:
        return x * 2


@program(graphs=2, breaks="print", state=lambda: list(warnings.filters))
def break_after_it(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = x + 1
    print("out")
    return x + 1


@program(
    graphs=2,
    breaks="library_call context_manager library_call print context_manager",
    state=lambda: list(warnings.filters),
)
def break_inside(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = x + 1
        print(len(warnings.filters))
    return x + 1


@program(graphs=2, breaks="library_call context_manager library_call warning context_manager")
def warning_inside(x):
    x = x + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("not shown")
    return x + 1


@program(graphs=1, breaks="library_call context_manager library_call context_manager")
def recorded(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = x * 2
    return y, seen


@program(graphs=1, breaks="library_call", state=lambda: warnings.filters[0])
def filter_outside_of_a_block(x):
    warnings.simplefilter("ignore", category=BytesWarning)
    return x + 1


@program(graphs=1, breaks="library_call context_manager library_call")
def wrong_arguments(x):
    y = x + 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignored")
    except AssertionError as error:
        return y, str(error)


REGISTRY = {}


def warn():
    warnings.warn_explicit("shown", UserWarning, "file", 1, registry=REGISTRY)


@program(graphs=1, breaks="warning", before=warn)
def shown_warnings_are_forgotten(x):
    y = x + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = torch.sin(y)
    warn()
    return y
