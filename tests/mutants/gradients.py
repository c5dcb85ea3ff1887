"""Autograd: what is saved, which outputs have a history, versions."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "changed_inputs_saved",
        "capture/autograd/trace.py",
        "free = {n for n in visible if n in held - changed and id(memory_of(n)) in eager}",
        "free = {n for n in visible if n in held and id(memory_of(n)) in eager}",
        "the old value of an input that the call changes is taken for kept, and the backward pass sees the new one",
    ),
    Mutant(
        "saved_without_a_copy",
        "capture/autograd/trace.py",
        "returned.append(self._copy(n) if n in self.copied else n)",
        "returned.append(n)",
        "what is saved shares memory with a result, and a write to that result changes the gradient",
    ),
    Mutant(
        "drawn_again",
        "capture/autograd/partition.py",
        'if node.op != "call_function" or _stays_drawn(node):',
        'if node.op != "call_function":',
        "the mask of a dropout is drawn anew in the backward pass",
    ),
    Mutant(
        "missing_gradient_of_one_result",
        "capture/autograd/prune.py",
        "return n in self._flows and self._flows[n] <= self._missing",
        "return n in self._flows and not self._flows[n].isdisjoint(self._missing)",
        "where one of two results gets no gradient, what depends on both gets none",
    ),
    Mutant(
        "everything_differentiable",
        "jit/autograd/gradients.py",
        "        if self._constant:\n            context.mark_non_differentiable(",
        "        if False:\n            context.mark_non_differentiable(",
        "a detached result requires a gradient",
    ),
    Mutant(
        "views_with_gradients",
        "jit/autograd/view_outputs.py",
        "    if step.grad == torch.is_grad_enabled() and not step.inference:",
        "    if True:",
        "a view made under no_grad may be written in place",
    ),
    Mutant(
        "old_version_in_second_derivative",
        "jit/autograd/gradients.py",
        "        if version is not None and tensor._version != version and k in relied_on:\n",
        "        if version is None and tensor._version != version and k in relied_on:\n",
        "an input changed before a second derivative is not noticed",
    ),
    Mutant(
        "strides_of_given_gradients",
        "jit/autograd/gradient_arrivals.py",
        "if tensor.stride() != strides or tensor.is_conj() or tensor.is_neg():",
        "if tensor.is_conj() or tensor.is_neg():",
        "a transposed gradient is read as if it were contiguous",
    ),
]
