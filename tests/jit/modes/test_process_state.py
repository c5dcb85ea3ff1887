"""What a compile leaves as it is: the state of the process that other threads and the program see."""

import sys
import threading
import warnings

import pytest
import torch

from frameloom import jit
from frameloom.debug import forget_notices


class Watcher:
    """Another thread, which looks at `state` as long as a call runs."""

    def __init__(self, state):
        self.state, self.seen, self.ended = state, [state()], threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended.is_set():
            now = self.state()
            if now != self.seen[-1]:
                self.seen.append(now)

    def __enter__(self):
        self.interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        sys.setswitchinterval(self.interval)


def layered(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x.transpose(0, 1).contiguous() @ x
    return torch.nn.functional.dropout(y, 0.0)


def skips(x):
    return x + 1 if torch.rand([]) < 0.99 else x


STATES = {
    "recursion limit": sys.getrecursionlimit,
    "default dtype": torch.get_default_dtype,
    "warning filters of the process": lambda: [
        f
        for f in tuple(warnings.filters)
        if applies_here(f[2])  # the list may change meanwhile
    ],
    "default generator": lambda: torch.default_generator.get_state().sum().item(),
}


def applies_here(category):
    return issubclass(UserWarning, category)


@pytest.mark.parametrize("name", STATES)
def test_another_thread_sees_nothing(name):
    with Watcher(STATES[name]) as watcher:
        for _ in range(3):
            layered_again = jit(layered, dynamic=True)
            for size in (3, 4, 5):
                layered_again(torch.ones(size, 4))
    assert len(watcher.seen) == 1


def test_a_choice_is_tried_with_a_generator_of_its_own():
    seen = []
    with Watcher(lambda: torch.default_generator.get_state().sum().item()) as watcher:
        for seed in range(3):
            torch.manual_seed(seed)
            seen.append(torch.default_generator.get_state().sum().item())
            jit(skips)(torch.ones(3))
            seen.append(torch.default_generator.get_state().sum().item())
    assert set(watcher.seen) <= {watcher.seen[0], *seen}


def test_warnings_that_were_shown_stay_shown():
    def warn():
        warnings.warn("said once", stacklevel=1)

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        warn()
        layered_again = jit(layered, dynamic=True)
        for size in (3, 4, 5):
            layered_again(torch.ones(size, 4))
        warn()
    assert len(shown) == 1


def test_a_recursion_limit_set_meanwhile_stays():
    limit = sys.getrecursionlimit()

    class Setter:
        def __init__(self):
            sys.setrecursionlimit(limit + 77)

    def f(x):
        Setter()
        return x + 1

    try:
        jit(f)(torch.ones(3))
        assert sys.getrecursionlimit() == limit + 77
    finally:
        sys.setrecursionlimit(limit)


def deep(x, n):
    return x + 1 if n == 0 else deep(x, n - 1)


def test_the_limit_holds_after_a_compile():
    x = torch.ones(3)
    jit(layered)(torch.ones(3, 4))

    def depth(n=0):
        try:
            return depth(n + 1)
        except RecursionError:
            return n

    before = depth()
    jit(deep)(x, 3)
    assert abs(depth() - before) < 5


def test_a_function_whose_name_speaks_of_gradients_needs_none():
    def policy_gradient(x):
        return x + 1

    forget_notices()
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with warnings.catch_warnings(record=True) as given, hooks:
        warnings.simplefilter("always")
        assert jit(policy_gradient)(torch.ones(2)).tolist() == [2, 2]
    assert not given
