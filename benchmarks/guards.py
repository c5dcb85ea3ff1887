"""What guards and the way around a plan cost: `python benchmarks/guards.py [walk] [call] [miss] [python]`.

walk     the guard walk of whole models, nothing changed
call     a jitted call with one tiny kernel: total, guards, plan, and the rest
miss     a call that tries 16 entries
python   unrelated Python code that makes many calls, before and after jitted functions ran

Every figure is the least of many repeats; ratios are taken in one run.
"""

import contextlib
import gc
import os
import sys
import threading
import time

import torch

from frameloom import jit
from frameloom.capture import _capture

torch.set_num_threads(1)
torch.set_grad_enabled(False)


def least(run, rounds=200, repeats=30):
    """Nanoseconds of one `run()`."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter_ns()
        for _ in range(rounds):
            run()
        best = min(best, (time.perf_counter_ns() - start) / rounds)
    return best


EMPTY = least(lambda: None)


def walk_time(jitted, slots, entry=-1):
    guards, function = jitted.entries[entry].guards, jitted.__wrapped__
    nothing = _capture.Guards()
    assert guards.passes(slots, function)
    return least(lambda: guards.passes(slots, function), 50) - least(
        lambda: nothing.passes(slots, function), 50
    )


def walk():
    import transformers as hf

    ids = torch.randint(0, 101, (1, 8))
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 101,
    }
    models = {
        "decoder, 24 layers": (hf.LlamaForCausalLM, hf.LlamaConfig(num_hidden_layers=24, **sizes), {"use_cache": False}),
        "encoder, 6 layers": (hf.BertModel, hf.BertConfig(num_hidden_layers=6, **sizes), {}),
    }  # fmt: skip
    for name, (cls, config, options) in models.items():
        for dynamic in (False, True):
            model = cls(config).eval()
            modules = sum(1 for _ in model.modules())
            jit(model, dynamic=dynamic)
            model(ids, **options)
            jitted = model._compiled_call_impl.__func__
            checks = len(jitted.entries[-1].guards.texts())
            cost = walk_time(jitted, (model, (ids,), options)) / 1000
            kind = "sizes vary" if dynamic else "sizes as they are"
            print(f"walk    {name}, {kind}: {modules} modules, {checks} checks: {cost:.1f} us")


def positional(x):
    return x + 1


def defaults(x, k=2.0, *, m=1.0):
    return x * k + m


def three(x, y, z):
    return x * y + z


def call():
    x = torch.randn(8)
    cases = [
        ("f(x)", positional, (x,), {}, (x,)),
        ("f(x, y, z)", three, (x, x, x), {}, (x, x, x)),
        ("f(x) with defaults", defaults, (x,), {}, (x, 2.0, 1.0)),
        ("f(x, k=3.0, m=4.0)", defaults, (x,), {"k": 3.0, "m": 4.0}, (x, 3.0, 4.0)),
    ]
    for name, fn, args, kwargs, slots in cases:
        jitted = jit(fn)
        jitted(*args, **kwargs)
        plan = jitted.entries[-1].target
        tensors = [slot for slot in slots if isinstance(slot, torch.Tensor)]
        inputs = tensors[:1] if fn is not three else [x]
        total = least(lambda: jitted(*args, **kwargs))
        guards = walk_time(jitted, slots)
        kernel = least(lambda: plan(*inputs))
        print(f"call    {name}: {total - EMPTY:.0f} ns, of which guards {guards:.0f}, plan {kernel - EMPTY:.0f}; "
              f"beyond both {total - guards - kernel:.0f} (eager {least(lambda: fn(*args, **kwargs)) - EMPTY:.0f})")  # fmt: skip


def miss():
    jitted = jit(positional, dynamic=False)
    xs = [torch.randn(n + 1) for n in range(16)]
    for x in xs:
        jitted(x)
    assert len(jitted.entries) == 16
    newest, oldest = least(lambda: jitted(xs[-1])), least(lambda: jitted(xs[0]))
    print(
        f"miss    each entry that fails by the shape of a tensor: {(oldest - newest) / 15:.0f} ns"
    )


def busy(n=30_000):
    """Python that calls much: functions, methods, keywords, generators, properties, classes."""

    class Point:
        def __init__(self, a):
            self.a = a

        @property
        def twice(self):
            return self.a * 2

        def add(self, other, *, k=1):
            return self.a + other * k

    def count(m):
        yield from range(m)

    def f(a, b=2):
        return a + b

    total = 0
    for i in range(n // 10):
        p = Point(i)
        total += p.add(1) + p.add(2, k=3) + p.twice + f(i) + f(i, b=3) + sum(count(3))
    return total


class Twin:
    """A copy of this process as it is now; `ratio()` compares it with what this one has become, turn by turn."""

    def __init__(self):
        ask, self.ask = os.pipe()
        self.answer, answer = os.pipe()
        if os.fork() == 0:
            while os.read(ask, 1) == b"?":
                os.write(answer, f"{timed():12d}".encode())
            os._exit(0)

    def ratio(self, repeats=150):
        own, other = [], []
        for _ in range(repeats):
            os.write(self.ask, b"?")
            other.append(int(os.read(self.answer, 12)))
            own.append(timed())
        return min(own) / min(other)

    def end(self):
        os.write(self.ask, b".")
        os.wait()


def timed():
    start = time.thread_time_ns()
    busy()
    return time.thread_time_ns() - start


def python():
    def fails(x):
        y = x + 1
        raise ValueError(y)

    def generates(x):
        yield x + 1
        yield x + 2

    def breaks(x):
        print(end="")
        return x + 1

    x, seen = torch.randn(8), []
    for _ in range(20):
        busy()
    twin = Twin()
    print(f"python  nothing done yet: ratio {twin.ratio():.3f}")
    for fn in (positional, breaks, three):
        jit(fn)(*([x] * (3 if fn is three else 1)))
    print(f"python  after jitted calls and a break: ratio {twin.ratio():.3f}")
    with contextlib.suppress(ValueError):
        jit(fails)(x)
    print(f"python  after an exception in a jitted call: ratio {twin.ratio():.3f}")
    next(jit(generates)(x))
    gc.collect()
    print(f"python  after an abandoned generator: ratio {twin.ratio():.3f}")
    thread = threading.Thread(target=lambda: (jit(breaks)(x), seen.append(twin.ratio())))
    thread.start()
    thread.join()
    print(f"python  in another thread that made jitted calls: ratio {seen[0]:.3f}")
    print(f"python  after all of it: ratio {twin.ratio():.3f}")
    twin.end()


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["walk", "call", "miss", "python"]
    print(
        f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}, empty call {EMPTY:.0f} ns"
    )
    for part in wanted:
        {"walk": walk, "call": call, "miss": miss, "python": python}[part]()
