"""Guard walks that meet each other: other threads, finalizers that call the same function, objects at the address of dead ones."""

import gc
import threading

import torch

from tests.capture.capturing import jitted
from tests.capture.guards.program import Program

X = torch.ones(3)


class Net(torch.nn.Module):
    def __init__(self, k=1.0):
        super().__init__()
        self.k, self.items = k, [1.0, {"a": 2.0}]
        self.inner = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())

    @classmethod
    def shift(cls):
        return 1.0

    def forward(self, x):
        return self.inner(x) * self.k + self.items[0] + self.items[1]["a"] + self.shift()


def test_threads_call_while_another_changes_the_module():
    net, stop, wrong = Net(), threading.Event(), []
    target, _ = jitted(lambda x: net(x))

    def call():
        with torch.no_grad():
            while not stop.is_set():
                if target(X)[0].item() not in (5.0, 6.0):
                    wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(4000):
        net.k = 1.0 + n % 2
        net.note = n
        Net.note = n
        net.items = [1.0, {"a": 2.0}]
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong and 1 <= len(target.entries) <= 8


def test_a_finalizer_calls_the_function_whose_guards_are_walked():
    """Loading a bound method makes an object, which may start a collection, which may run anything."""
    net, calls = Net(), []
    target, _ = jitted(lambda x: net(x))
    guards = Program(target)
    for _ in range(3):
        method = guards.child(guards.object(net), "attr", "forward")
        guards.check(guards.child(method, "method_func"), "is", Net.forward)

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            calls.append(guards.passes((X,), target.__wrapped__))
            calls.append(target(X)[0].item() == 5.0)

    threshold = gc.get_threshold()
    try:
        with torch.no_grad():
            target(X)
            gc.set_threshold(1, 1, 1)
            for _ in range(200):
                Cycle()
                assert guards.passes((X,), target.__wrapped__)
                assert target(X)[0].item() == 5.0
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert len(calls) == 400 and all(calls)


def test_other_objects_at_the_same_address():
    # Told apart by a text: a number that differs would become an input.
    target, _ = jitted(lambda net, x: net(x) * len(net.name))
    addresses = set()
    with torch.no_grad():
        for n in range(300):
            net = Net(k=1.0)
            net.name = "abc"[: n % 3 + 1]
            addresses.add(id(net))
            assert target(net, X)[0].item() == 5.0 * (n % 3 + 1)
            del net
            if n % 50 == 0:
                gc.collect()
    assert len(addresses) < 300, "no address was used again"
    assert len(target.entries) == 3


def test_dictionary_given_to_another_object():
    a, b = Net(1.0), Net(2.0)
    target, _ = jitted(lambda net, x: net(x))
    with torch.no_grad():
        assert target(a, X)[0].item() == 5.0
        assert target(b, X)[0].item() == 6.0
        a.__dict__, b.__dict__ = b.__dict__, a.__dict__
        assert target(a, X)[0].item() == 6.0
        assert target(b, X)[0].item() == 5.0
        assert len(target.entries) == 2
