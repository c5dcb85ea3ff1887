"""Inference of whole models with random weights on the CPU, beside eager: milliseconds, ratio, first call, difference.

    python -m benchmarks.models [--models resnet50,bert] [--batch 1,8] [--impl eager,frameloom,freezing] [--threads 2]

The sides take turns, round by round, and the smallest time of each is kept: other work on the machine then falls on all
of them.  `torch.compile` ("inductor") runs in the same way when it is asked for; its first call takes minutes.
"""

import argparse
import time

import torch


def _timm(name):
    import timm

    return timm.create_model(name), lambda n: (torch.randn(n, 3, 224, 224),)


def _transformers(model, settings):
    import transformers

    config = getattr(transformers, settings)()
    module = getattr(transformers, model)(config)

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module
            self.options = {"use_cache": False} if "GPT2" in model else {}

        def forward(self, ids):
            return self.module(input_ids=ids, **self.options)[0]

    return Logits(), lambda n: (torch.randint(0, config.vocab_size, (n, 128)),)


MODELS = {
    "resnet50": lambda: _timm("resnet50"),
    "vit": lambda: _timm("vit_small_patch16_224"),
    "convnext": lambda: _timm("convnext_tiny"),
    "mobilenet": lambda: _timm("mobilenetv3_large_100"),
    "bert": lambda: _transformers("BertForMaskedLM", "BertConfig"),
    "gpt2": lambda: _transformers("GPT2LMHeadModel", "GPT2Config"),
}


def side(impl, module):
    """What is called for `impl`; the module itself is left as it is."""
    if impl == "eager":
        return module
    if impl == "inductor":
        return torch.compile(lambda *args: module(*args))
    from frameloom import jit

    options = {"freezing": True} if impl == "freezing" else None
    return jit(lambda *args: module(*args), options=options)


def seconds(call, args):
    start = time.perf_counter()
    result = call(*args)
    return time.perf_counter() - start, result


def measure(name, batch, impls, least, rounds):
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    module.eval()
    args = inputs(batch)
    with torch.no_grad():
        expected = module(*args)
        calls, first, error, best = {}, {}, {}, {}
        for impl in impls:
            calls[impl] = side(impl, module)
            first[impl], got = seconds(calls[impl], args)
            error[impl] = ((got - expected).norm() / expected.norm()).item()
            best[impl] = float("inf")
        done, end = 0, time.perf_counter() + least
        while done < rounds or time.perf_counter() < end:
            for impl in impls:
                calls[impl](*args)  # its own memory is warm again
                best[impl] = min(best[impl], *(seconds(calls[impl], args)[0] for _ in range(2)))
            done += 1
    told = "".join(
        f" | {impl} {1e3 * best[impl]:.2f} ms x{best[impls[0]] / best[impl]:.3f}"
        + (f" first {first[impl]:.2f} s error {error[impl]:.1e}" if impl != "eager" else "")
        for impl in impls
    )
    print(f"{name:10} batch {batch}{told}", flush=True)
    return {impl: best[impls[0]] / best[impl] for impl in impls}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batch", default="1")
    parser.add_argument("--impl", default="eager,frameloom,freezing")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4, help="at least so long per model")
    parser.add_argument("--rounds", type=int, default=4, help="at least so many per model")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    impls = given.impl.split(",")
    ratios = [
        measure(name, int(batch), impls, given.seconds, given.rounds)
        for batch in given.batch.split(",")
        for name in given.models.split(",")
    ]
    for impl in impls[1:]:
        product = 1.0
        for row in ratios:
            product *= row[impl]
        print(f"{impl}: geometric mean x{product ** (1 / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
