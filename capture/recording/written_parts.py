"""What an op saves for backward when it writes to a view. Autograd's node for that puts the view's new values
into its base, and hides the op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from frameloom.capture.tensors.fake import Fake
from frameloom.errors import let_mistakes_through
from frameloom.ir.symbolic.expr import hint_of

CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation"
)


@dataclass(frozen=True)
class WrittenPart:
    """One such op. `given`: each tensor argument, whether it required a gradient, and how many writes its
    memory had after the op."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    given: tuple[tuple[Fake, bool, int], ...]

    @staticmethod
    def of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> WrittenPart:
        fakes = (f for f in pytree.tree_leaves((args, kwargs)) if isinstance(f, Fake))
        given = tuple([(f, f.requires_grad, f.memory.root.counted) for f in fakes])
        return WrittenPart(func, args, kwargs, given)

    def saved(self, saved_by: Callable[[Any], Iterable[torch.Tensor]]) -> Iterator[Any]:
        """Yields the memories of the tensors that it saves, without copies. It asks PyTorch, with tensors
        that are not views; `saved_by` returns what a node saves."""
        made = {id(f): _like(f, follows) for f, follows, _ in self.given}
        for t in saved_by(self._node(made)):
            for f, _, counted in self.given:
                if torch._C._is_alias_of(t, made[id(f)]):  # type: ignore[attr-defined]
                    if f.memory.root.counted != counted:
                        raise RuntimeError(CHANGED)
                    yield f.memory
                    break

    def _node(self, made: dict[int, torch.Tensor]) -> Any:
        def plain(a: Any) -> Any:
            return made[id(a)] if isinstance(a, Fake) else hint_of(a)

        try:
            args, kwargs = pytree.tree_map(plain, (self.args, self.kwargs))
            with torch.inference_mode(False), torch.enable_grad():
                return self.func(*args, **kwargs).grad_fn
        except Exception as error:  # the op has no kernel for such tensors
            let_mistakes_through(error)
            return None


def _like(fake: Fake, follows: bool) -> torch.Tensor:
    shape, strides = ([*map(hint_of, n)] for n in (fake.shape, fake.stride()))
    with torch.inference_mode(False), torch.enable_grad():
        t = torch.empty_strided(shape, strides, dtype=fake.dtype, device="meta")
        # Not a leaf, because leaves may not be written to.
        return t.requires_grad_().clone() if follows else t
