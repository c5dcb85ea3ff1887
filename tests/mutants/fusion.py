"""Fusion: kernels that read or write at another time than the program."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "draws_behind_what_reads_them",
        "ir/passes/dependence.py",
        "            first |= needs[k]\n",
        "            pass\n",
        "a matrix made of random numbers is inverted before they are drawn",
    ),
    Mutant(
        "written_before_others_have_read",
        "ir/passes/fuse.py",
        "    if shared and not elementwise(stores):\n        return False\n",
        "",
        "a kernel that folds rows writes an input before its other stores have read it",
    ),
    Mutant(
        "recomputed_from_an_overwritten_input",
        "ir/passes/fuse.py",
        "or any(s.buffer == buffer for g in graph.groups.values() for s in g.stores)",
        "or False",
        "what is stored before an input is overwritten is computed again from the new values",
    ),
    Mutant(
        "write_before_earlier_reads",
        "ir/passes/dependence.py",
        "            dependences.update(self.reads_since.pop(buffer, ()))\n",
        "            self.reads_since.pop(buffer, ())\n",
        "a write to an input may run before a library call that reads the old values",
    ),
    Mutant(
        "effects_in_any_order",
        "ir/passes/dependence.py",
        "            if self.effect is not None:\n                dependences.add(self.effect)\n",
        "",
        "two draws of random numbers may change places",
    ),
    Mutant(
        "failing_calls_dropped",
        "ir/passes/dependence.py",
        "return step.has_effect or (not is_known and may_raise(step.target, is_floating))",
        "return step.has_effect",
        "a library call whose result nobody uses does not raise any more (infinity in `torch.histc`)",
    ),
    Mutant(
        "zeros_that_are_equal",
        "ir/passes/batch.py",
        "values = tuple((type(v), exact(v)) for v in instance.numbers)",
        "values = tuple((type(v), v) for v in instance.numbers)",
        "adding 0.0 and -0.0 to two tensors of a list is taken for the same work",
    ),
]
