"""What PyTorch's own compiler was asked to compile is captured with its caller; what it was asked to leave alone breaks the graph.

In processes of their own: that compiler patches PyTorch when it is imported.
"""

import textwrap

import pytest

from tests import fresh

# On CPython 3.13.0 that compiler warns of itself, which the plain side alone would print.
QUIET = "import torch._dynamo; torch._dynamo.config.issue_3_13_0_warning = False\n"


def run(program):
    imported = "torch", "tests.helpers", "torch._dynamo"
    fresh.run(QUIET + textwrap.dedent(program), imported=imported, check=True)


def test_a_function_compiled_by_pytorch():
    run("""
        import torch
        from tests.helpers import check

        compiled = torch.compile(lambda x: x.sin() + 1, backend="eager")
        check(lambda x: compiled(x * 2) + 1, torch.ones(3), breaks=0, calls=3)
    """)


def test_nothing_beneath_a_disabled_function_is_compiled():
    run("""
        import torch, frameloom
        from tests.helpers import check

        seen = []
        def helper(x):
            seen.append((torch.compiler.is_compiling(), frameloom.is_compiling()))
            return x + 1
        @torch.compiler.disable
        def disabled(x):
            return helper(x) * 2
        check(lambda x: disabled(x * 2) + 1, torch.ones(3), calls=3)
        assert set(seen) == {(False, False)}, seen
    """)


def test_optimizers_are_whole_beside_it():
    run("""
        import torch, frameloom

        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
        sides = []
        for _ in range(2):
            p = torch.nn.Parameter(torch.ones(3))
            optimizer = torch.optim.AdamW([p], lr=0.1)
            sides.append((p, optimizer.step))
        sides[1] = (sides[1][0], frameloom.jit(sides[1][1]))
        for k in range(3):
            for p, step in sides:
                p.grad = torch.full((3,), k + 1.0)
                step()
        assert torch.allclose(sides[0][0], sides[1][0])
        assert frameloom.stats()["breaks"] == 0, frameloom.stats()
    """)


def test_layers_are_not_told_that_they_are_compiled():
    """An encoder would go another way, and give what is padded other values than zero."""
    run("""
        import torch
        from tests.helpers import check

        layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        encoder = torch.nn.TransformerEncoder(layer, 1).eval()
        padded = torch.tensor([[False, False, True], [False, False, True]])
        torch.nested.nested_tensor([torch.ones(2)])  # warns once
        with torch.no_grad():
            check(lambda x: encoder(x, src_key_padding_mask=padded), torch.randn(2, 3, 4))
    """)


def test_modules_made_and_copied_beside_it():
    """That compiler replaces `Module.__init__` and `Module.__setstate__`."""
    run("""
        import copy, torch
        from tests.helpers import check

        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
        assert "mutation_guard" in torch.nn.Module.__init__.__module__
        net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
        check(lambda x: torch.nn.Sequential(torch.nn.ReLU(), torch.nn.GELU())(x), torch.randn(3), breaks=0)
        check(lambda x: net[:1](x), torch.randn(3), breaks=0)
        check(lambda x: copy.deepcopy(net)(x), torch.randn(3))
    """)


def test_a_module_compiled_by_pytorch():
    run("""
        import torch, frameloom

        module = torch.compile(torch.nn.Linear(3, 3), backend="eager")
        x = torch.ones(2, 3)
        jitted = frameloom.jit(lambda x: module(x.sin()) + 1, fullgraph=True, backend="eager")
        assert torch.equal(jitted(x), module._orig_mod(x.sin()) + 1)
        module.register_forward_hook(lambda module, args, result: result * 2)
        plain = module(x.sin()) + 1
        assert torch.equal(frameloom.jit(lambda x: module(x.sin()) + 1, backend="eager")(x), plain)
    """)


def test_a_backend_of_pytorch():
    run("""
        import torch, frameloom

        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
        x = torch.randn(3, 4)
        compiled = torch.compile(model, backend="frameloom")
        torch.testing.assert_close(compiled(x), model(x))
        compiled(x).sum().backward()
        gradient = model[0].weight.grad.clone()
        model.zero_grad()
        model(x).sum().backward()
        torch.testing.assert_close(gradient, model[0].weight.grad)
        stats = frameloom.stats()
        assert stats["graphs"] == 1 and stats["breaks"] == 0, stats
    """)


@pytest.mark.parametrize("name", ["higher_order", "flexible_attention"])
def test_programs_that_eager_runs_through_it(name):
    run(f"""
        from tests.programs.pytorch import {name} as module

        programs = [f for f in vars(module).values() if hasattr(f, "__program__")]
        assert len(programs) > 5
        for program in programs:
            program.__program__()
    """)


@pytest.mark.parametrize("name", ["higher_order", "flexible_attention"])
def test_gradients_of_programs_that_eager_runs_through_it(name):
    run(f"""
        import torch, frameloom
        from tests.programs.pytorch import {name} as programs

        for fn in programs.GRADIENTS:
            found = []
            for run in (fn, frameloom.jit(fn, fullgraph=True)):
                table = programs.table()
                result = run(table)
                found.append([result, *torch.autograd.grad(result.square().sum(), table)])
            torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    """)
