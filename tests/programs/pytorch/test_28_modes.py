"""Gradient modes, autocast, default dtype and device: as context manager, decorator and function, also around breaks.

PYTEST_DONT_REWRITE
"""

import torch

from tests.programs.program import X, program


@program()
def no_grad_block(x):
    with torch.no_grad():
        y = x * 2
        inside = torch.is_grad_enabled()
    return y + 1, inside, torch.is_grad_enabled()


@program(grad=True)
def no_grad_block_in_gradient_mode(x):
    with torch.no_grad():
        y = x * 2
        inside = torch.is_grad_enabled()
    return y + 1, inside, torch.is_grad_enabled()


@program()
def nested_modes(x):
    seen = []
    with torch.enable_grad():
        seen.append(torch.is_grad_enabled())
        with torch.no_grad():
            seen.append(torch.is_grad_enabled())
            y = x + 1
        seen.append(torch.is_grad_enabled())
    return y, seen


@program()
def inference_mode_block(x):
    with torch.inference_mode():
        y = x + 1
        inside = torch.is_inference_mode_enabled()
    return y * 1, inside, torch.is_inference_mode_enabled()


@program()
def set_grad_enabled_block(x):
    with torch.set_grad_enabled(True):
        on = torch.is_grad_enabled()
        with torch.set_grad_enabled(False):
            y = x * 2
            off = torch.is_grad_enabled()
    return y, on, off, torch.is_grad_enabled()


@program()
def set_grad_enabled_function(x):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    inside = torch.is_grad_enabled()
    torch.set_grad_enabled(before)
    return x + 1, before, inside


@program(grad=True)
def set_grad_enabled_left_off(x):
    torch.set_grad_enabled(False)
    return x + 1, torch.is_grad_enabled()


@torch.no_grad()
def decorated(x):
    return x * 2, torch.is_grad_enabled()


@torch.inference_mode()
def inferred(x):
    return x * 2


@torch.enable_grad()
def enabled(x):
    return x * 2, torch.is_grad_enabled()


@program(grad=True)
def decorated_functions(x):
    return decorated(x + 1), enabled(x)[1], torch.is_grad_enabled()


@program()
def inference_decorator(x):
    return inferred(x + 1) + 1


class Runner:
    @torch.no_grad()
    def run(self, x):
        return x - 1


@program(grad=True)
def decorated_method(x):
    return Runner().run(x), torch.is_grad_enabled()


@program(graphs=2, breaks="print", grad=True)
def break_inside_no_grad(x):
    with torch.no_grad():
        y = x * 2
        print("inside", torch.is_grad_enabled())
        y = y + 1
    return y, torch.is_grad_enabled()


@program(graphs=3, breaks="print print", grad=True)
def breaks_inside_nested_modes(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            print("a", torch.is_grad_enabled())
            with torch.no_grad():
                y = y + 1
                print("b", torch.is_grad_enabled())
                y = y * 3
    return y, torch.is_grad_enabled()


@program(graphs=2, breaks="print", grad=True)
def break_in_a_function_called_under_no_grad(x):
    def noisy(t):
        t = t + 1
        print("noisy", torch.is_grad_enabled())
        return t * 2

    with torch.no_grad():
        y = noisy(x)
    return y, torch.is_grad_enabled()


@program(graphs=2, breaks="print", grad=True)
def break_in_a_decorated_function(x):
    @torch.no_grad()
    def noisy(t):
        t = t + 1
        print("noisy", torch.is_grad_enabled())
        return t * 2

    return noisy(x), torch.is_grad_enabled()


@program()
def exception_leaves_no_grad(x):
    try:
        with torch.enable_grad():
            raise KeyError("out")
    except KeyError:
        y = x + 1
    return y, torch.is_grad_enabled()


@program(grad=True)
def return_inside_no_grad(x):
    for i in range(3):
        with torch.no_grad():
            x = x + i
            if i == 1:
                return x, torch.is_grad_enabled()


@program()
def autocast_block(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        inside = torch.is_autocast_enabled("cpu")
    return y, y.dtype, inside, torch.is_autocast_enabled("cpu"), x @ x.t()


@program()
def autocast_disabled_inside(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            b = x @ x.t()
    return a, b


@program(graphs=0, breaks="unsupported_op")
def autocast_beneath_a_library_call(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.linalg.pinv(x)


@program(args=(X.half(),), graphs=0, breaks="op_error")
def autocast_beneath_what_joins_tensors(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x.roll(1, 0)


@torch.autocast("cpu", dtype=torch.bfloat16)
def cast(x):
    return x @ x.t()


@program()
def autocast_decorator(x):
    return cast(x) + 1


@program(graphs=2, breaks="print")
def break_inside_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        print("inside", torch.is_autocast_enabled("cpu"))
        y = y @ y
    return y, y.dtype


@program()
def default_dtype_is_set_and_reset(x):
    y = x + 1
    torch.set_default_dtype(torch.float64)
    try:
        z = torch.ones(2)
    finally:
        torch.set_default_dtype(torch.float32)
    return y, z


@program()
def device_block(x):
    y = x + 1
    with torch.device("cpu"):
        z = torch.ones(2)
    return y, z


@program()
def mode_questions(x):
    return (
        x + 1,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.is_autocast_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.jit.is_scripting(),
        torch.compiler.is_exporting(),
    )


@program()
def mode_object_used_twice(x):
    mode = torch.no_grad()
    with mode:
        y = x + 1
    with mode:
        y = y * 2
    return y


@program(grad=True)
def no_grad_clone_of_an_argument(x):
    mode = torch.no_grad()
    mode.__enter__()
    y = x * 2
    mode.__exit__(None, None, None)
    return y, torch.is_grad_enabled()


@program(graphs=2, breaks="print")
def break_between_two_blocks(x):
    with torch.no_grad():
        y = x + 1
    print("between")
    with torch.no_grad():
        z = y * 2
    return z
