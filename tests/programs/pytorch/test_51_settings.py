"""Default dtype, default device, inference mode, autocast: entered and left by the program, also with a break in between.

PYTEST_DONT_REWRITE
"""

import contextlib

import torch

import frameloom
from tests.programs.changing import SAME, changes
from tests.programs.program import X, program


@program()
def default_dtype_set_and_set_back(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = torch.zeros(3) + 1, torch.tensor([1.5]), torch.arange(0, 1, 0.25)
    torch.set_default_dtype(before)
    return x + 1, y, torch.ones(2)


@program(graphs=2, breaks="graph_break")
def default_dtype_across_a_break(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = torch.zeros(3) + 1
    frameloom.graph_break()
    z = torch.ones(2) * 2
    torch.set_default_dtype(before)
    return x + 1, y, z, torch.zeros(2), torch.get_default_dtype()


@program()
def default_dtype_after_an_exception(x):
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        y = torch.zeros(3)
        raise ValueError
    except ValueError:
        z = torch.zeros(3)
    finally:
        torch.set_default_dtype(before)
    return x + 1, y, z, torch.zeros(2)


@program(graphs=2, breaks="unsupported_op")
def promotion_to_another_default_dtype(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = x.long() * 0.5
    torch.set_default_dtype(before)
    return y, x + 1


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@program()
def default_dtype_context(x):
    with default_dtype(torch.float64):
        y = torch.ones(2)
    return x + 1, y, torch.ones(1)


@program(graphs=0, breaks="autograd")
def default_dtype_that_is_none(x):
    try:
        torch.set_default_dtype(torch.int32)
    except TypeError as error:
        return x + 1, str(error), torch.get_default_dtype()


@program()
def device_block(x):
    with torch.device("cpu") as device, x.device:
        y = torch.ones(2) * 2 + torch.arange(2)
    return x + 1, y, device


@program(graphs=2, breaks="graph_break", state=torch._C._len_torch_function_stack)
def device_block_across_a_break(x):
    with torch.device("cpu"):
        y = torch.ones(2) * 2
        frameloom.graph_break()
        z = torch.ones(2) * 3
    return x + 1, y, z


@program(graphs=2, breaks="graph_break", state=torch._C._len_torch_function_stack)
def device_block_left_by_an_exception_behind_a_break(x):
    try:
        with torch.device("cpu"):
            y = torch.ones(2) * 2
            frameloom.graph_break()
            raise KeyError
    except KeyError:
        return x + 1, y


@program(
    before=lambda: torch.set_default_device("cpu"), state=lambda: torch.set_default_device(None)
)
def default_device_set_before(x):
    return x + torch.ones(4), torch.get_default_device()


@torch.inference_mode()
def inferred(x):
    return x * 2 + 1, x.view(-1), x.is_inference()


@program()
def made_in_inference_mode(x):
    return inferred(x)


@program()
def made_in_and_outside_of_inference_mode(x):
    y = x + 1
    with torch.inference_mode():
        z = y * 2
        v = z[0] + 1
    return y, z, v, z + 1, z.is_inference(), y.is_inference(), (z + 1).is_inference()


@program(graphs=0, plain=True)
def views_of_what_was_made_in_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
    return x + 1, y, y[0]


@program()
def outside_inside_inference_mode(x):
    with torch.inference_mode():
        with torch.inference_mode(False):
            y = x * 2
        return y, y.is_inference()


@program(graphs=2, breaks="graph_break")
def inference_mode_across_a_break(x):
    with torch.inference_mode():
        y = x * 2
        frameloom.graph_break()
        z = y + 1
    return x + z, y, y.is_inference(), torch.is_inference_mode_enabled()


@program(graphs=1, breaks="graph_break", grad=True)
def inference_mode_left_by_an_exception_behind_a_break(x):
    try:
        with torch.inference_mode():
            y = x * 2
            frameloom.graph_break()
            raise ValueError
    except ValueError:
        return y, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


@program(graphs=2, breaks="graph_break", grad=True)
def nested_modes_across_a_break(x):
    with torch.no_grad():
        with torch.inference_mode():
            with torch.enable_grad(), torch.device("cpu"):
                y = x * 2
                frameloom.graph_break()
                inside = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
            z = y + 1
        between = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        x = x + 1
    return x, z, inside, between, torch.is_grad_enabled()


@program(graphs=1, breaks="op_error")
def writing_what_was_made_in_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
    try:
        y.add_(1)
    except RuntimeError as error:
        return y, str(error)[:20]


@program(graphs=2, breaks="graph_break")
def autocast_across_a_break(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        frameloom.graph_break()
        z = x @ x.T
    return y, z, x @ x.T, torch.is_autocast_enabled("cpu")


@program(graphs=2, breaks="graph_break")
def autocast_left_by_an_exception_behind_a_break(x):
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.T
            frameloom.graph_break()
            raise KeyError
    except KeyError:
        pass
    return y, x @ x.T, torch.is_autocast_enabled("cpu")


@changes
def mode_around_a_break_in_inference_mode():
    modes = [torch.enable_grad]

    def program(x):
        with torch.inference_mode():
            y = x * 2
            frameloom.graph_break()
            y = y + 1
        return y, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), x + 1

    def under(x):
        with modes[0]():
            return program(x)

    yield under
    modes[0] = torch.no_grad
    yield
    modes[0] = torch.inference_mode
    yield
    modes[0] = torch.enable_grad
    yield SAME


@program(graphs=2, breaks="graph_break")
def callbacks_that_are_methods_of_containers(x):
    items, table = [], {"a": 1}
    with contextlib.ExitStack() as stack:
        stack.callback(items.append, 7)
        get = table.get
        y = x + 1
        frameloom.graph_break()
        y = y * 2 + get("a")
    return y, items, get("b", 3)
