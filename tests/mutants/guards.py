"""Guards: entries that accept calls for which they are not right."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "requires_grad_not_checked",
        "capture/native/tensor_check.c",
        "    return requires_grad_of(object) == spec->requires_grad;",
        "    return 1;",
        "a call with a tensor that requires a gradient takes the entry without gradients",
    ),
    Mutant(
        "sizes_of_zero",
        "capture/native/tensor_check.c",
        "spec->sizes[i] == ANY ? sizes[i] < 1 : ",
        "spec->sizes[i] == ANY ? sizes[i] < 0 : ",
        "where sizes vary, empty tensors take the entry of others: `x.max()` does not raise",
    ),
    Mutant(
        "order_of_an_ordered_dict",
        "capture/native/guard_sections.c",
        "return type && !PyType_IsSubtype(type, &PyODict_Type) && s->own[node] ? s->own[node] : EACH_CALL;",
        "return type && s->own[node] ? s->own[node] : EACH_CALL;",
        "`move_to_end` of an OrderedDict is not noticed",
    ),
    Mutant(
        "floats_by_value",
        "capture/native/guard_lookup.c",
        "        return memcmp(&((PyFloatObject *)left)->ob_fval, &((PyFloatObject *)right)->ob_fval,\n                      sizeof(double)) == 0;",
        "        return PyFloat_AS_DOUBLE(left) == PyFloat_AS_DOUBLE(right);",
        "a call with -0.0 takes the entry for 0.0",
    ),
    Mutant(
        "first_of_the_overlapping",
        "capture/native/guard_tensors.c",
        "    for (Py_ssize_t i = 0; i < count && apart; i++) {\n        if (extents",
        "    for (Py_ssize_t i = 1; i < count && apart; i++) {\n        if (extents",
        "two arguments that share memory, one of which is written, take the entry for tensors apart",
    ),
    Mutant(
        "tensors_of_one_name",
        "capture/guards/guard_set.py",
        "return id(item) if isinstance(item, Origin) else (item, repr(item))",
        "return item.path() if isinstance(item, Origin) else (item, repr(item))",
        "of an argument `x` and a global `x` only one has its size checked",
    ),
    Mutant(
        "sets_with_two_names",
        "capture/resume/object_aliases.py",
        "if value.native is not None or _has_attributes(value):",
        "if value.native not in (None, set) or _has_attributes(value):",
        "a set that is changed may be another argument, too, in a later call",
    ),
    Mutant(
        "written_back_unlooked",
        "capture/values/unchanged.py",
        "return same and not is_symbolic(t.look(t.wrap(before, place)))",
        "return same",
        "an attribute that is set to what it is holds something else at a later call, and keeps that",
    ),
]
