"""Tests of CPython that end otherwise under forced capture, each with the reason why that is no fault of a captured program's result.

The reasons are properties of new code that programs see only by looking at the interpreter itself: how many frames there are, when exactly an object
dies, which of two equal strings it is.
"""

TRACING = "traces lines: new code has other events"
CONSTANT = "what is found in a class is a constant of the new code, which keeps it alive"
DESTRUCTOR = "what a container held dies when the effects are replayed, not in between"
GLOBAL_COUNT = "counts all objects of the process, those of captures too"
BUILTINS = "takes builtins away from the whole process, from the capture too"
DEPTH = "counts on a certain depth of the stack"
EXOTIC = "runs code while the interpreter looks a name up in a class"
ADDRESS = "asks whether an object lies where one lay that is gone"
MEMORY = "counts bytes of dictionaries: objects that die inside captured code are never made, and what is popped is deleted"

DIFFERENCES: dict[str, str] = {
    "test_call.TestPEP590.test_setvectorcall*": "the function's way of being called is replaced from C",
    "test_descr.ClassPropertiesAndMethods.test_restored_object_new": "a fault of CPython that the test expects does not show",
    "test_descr.ClassPropertiesAndMethods.test_slots": GLOBAL_COUNT,
    "test_descr.MiscTests.test_type_lookup_mro_reference": EXOTIC,
    "test_descr.SharedKeyTests.test_subclasses": MEMORY,
    "test_dict.DictTest.test_oob_indexing_dictiter_iternextitem": DESTRUCTOR,
    "test_dict.DictTest.test_splittable_popitem": MEMORY,
    "test_functools.TestLRUC.test_lru_cache_weakrefable": CONSTANT,
    "test_functools.TestLRUPy.test_lru_cache_weakrefable": CONSTANT,
    "test_iter.TestCase.test_ref_counting_behavior": DESTRUCTOR,
    "test_itertools.TestBasicOps.test_*_tuple_reuse": ADDRESS,
    "test_patma.TestTracing.*": TRACING,
}

# Not run under forced capture.
LEFT_OUT: dict[str, str] = {
    "test.test_exceptions.ExceptionTests.test_recursion_in_except_handler": DEPTH,
    "test.test_functools.TestLRUC.test_lru_reentrancy_with_len": BUILTINS,
    "test.test_functools.TestLRUPy.test_lru_reentrancy_with_len": BUILTINS,
    "test.test_iter.TestCase.test_reduce_mutating_builtins_iter": BUILTINS,
}


def reason_for(test: str) -> str | None:
    """Why this test may differ, None if it may not."""
    name = test.removeprefix("test.")
    for pattern, reason in DIFFERENCES.items():
        head, star, tail = pattern.partition("*")
        if name == pattern or (star and name.startswith(head) and name.endswith(tail)):
            return reason
    return LEFT_OUT.get(test)
