"""Records one call of a PyTorch function: as a whole where a rule for it exists, otherwise by its ATen
ops."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
import torch.nn.functional as F

from frameloom.capture.guards.thread_warnings import OF_PYTHON, warnings_here
from frameloom.capture.recording.attention_masks import check_mask
from frameloom.capture.recording.eager_derivatives import derive_as_eager
from frameloom.capture.recording.special_ops import (
    POOLS_OF_ROWS,
    WHOLE,
    WHOLE_ON_GPU,
    pools_as_image,
)
from frameloom.capture.symbolic.number_inputs import takes_bits, without_symbols
from frameloom.capture.symbolic.products import products_over
from frameloom.capture.symbolic.torch_functions import WHOLE_OVER_SIZES
from frameloom.capture.tensors.cast_cache import autocast_devices, without_cache
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import is_inference
from frameloom.capture.tensors.schema import fakes_in, names_no_index
from frameloom.capture.tensors.supported import check_result
from frameloom.capture.tensors.transform_levels import are_active, levels_on
from frameloom.config import config
from frameloom.errors import Avoid, Break, first_line, let_mistakes_through

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

CURRENT_DEVICE = getattr(torch._C, "_cuda_getDevice", None)
COMPARED: dict[Any, Callable[..., Any]] = {
    operator.lt: torch.Tensor.__lt__, operator.le: torch.Tensor.__le__, operator.eq: torch.Tensor.__eq__,
    operator.ne: torch.Tensor.__ne__, operator.gt: torch.Tensor.__gt__, operator.ge: torch.Tensor.__ge__,
}  # fmt: skip
# Functions that choose among implementations, and the settings that decide.
ATTENTION = (F.scaled_dot_product_attention, F.multi_head_attention_forward)
# Functions that PyTorch computes by another path, in one step, for plain tensors without gradients.
OTHERWISE = {F.scaled_dot_product_attention}
ATTENTION_SETTINGS = tuple(
    getattr(torch._C, f"_get_{kind}_sdp_enabled") for kind in ("flash", "mem_efficient", "math", "cudnn")
)  # fmt: skip


def takes(whole: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the rule that records a function as a whole accepts these arguments, which may have other names
    or be wrong."""
    try:
        _signature(whole).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


_signature = functools.cache(inspect.signature)


def record_call(
    recorder: Recorder,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    where: object,
) -> Any:
    """Records `fn(*args, **kwargs)` on Fakes. Raises Break where that is impossible."""
    if takes_bits(fn, args, kwargs):
        args = without_symbols(args)
        kwargs = {name: without_symbols(a) for name, a in kwargs.items()}
    _begin(recorder, fn, args, kwargs, where)
    recorder.current_call.is_followed = wanted = _is_followed(recorder, fn, args, kwargs)
    recorder.layout_assumptions.begin()
    whole = _as_whole(recorder, fn, args, kwargs)
    recorder.current_call.decomposes_as_eager = whole is None and fn not in OTHERWISE
    if fn in POOLS_OF_ROWS and (fake := next(fakes_in((args, kwargs)), None)) is not None:
        recorder.current_call.decomposes_as_eager = pools_as_image(fake, args, kwargs, wanted)
    given = None if wanted or whole is not None else recorder.calls.arguments(fn, args, kwargs)
    if given is not None:
        if (known := recorder.calls.replay(given)) is not None:
            return known[0]
        given.watch()
    before, recorder.from_data.looks_at_data = recorder.snapshot(), False
    try:
        if whole is not None:
            result = whole(recorder, *args, **kwargs)
        else:
            result = recorder.run(fn, args, kwargs)
    except (Break, Avoid):
        raise
    except Exception as error:
        let_mistakes_through(error)
        name = getattr(fn, "__name__", str(fn))
        if "leaf Variable that requires grad" in str(error) and any(
            recorder.is_of_computed_input(fake) for fake in fakes_in((args, kwargs))
        ):
            raise Break("autograd", f"{name} changes an input that has a history") from error
        # Most likely the program's own error: plain Python raises it at the right place with the right state.
        text = f"{name}: {type(error).__name__}: {first_line(error)}"
        raise Break("op_error", text) from error
    check_result(result, fn)
    _note_layouts(recorder, fn, (args, kwargs), result)
    if any(id(f) not in recorder.current_call.outs for f in fakes_in((kwargs.get("out"),))):
        # Composite functions treat tensor subclasses differently, and may leave `out` alone.
        raise Break("unsupported_op", f"{getattr(fn, '__name__', fn)} with out=")
    if given is not None:
        recorder.calls.keep(given, result, before)
    return result


def _begin(
    recorder: Recorder,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    where: object,
) -> None:
    """Sets the recorder's state for the current call."""
    call = recorder.current_call
    call.where, call.old, call.function = where, len(recorder.fakes), fn
    call.last, call.outs, call.assumes = recorder.graph._root.prev, set(), False
    call.inference, call.autocast = torch.is_inference_mode_enabled(), autocast_devices()
    if call.autocast:
        recorder.casts.before(recorder, args, kwargs)
    call.relies_on = dict.fromkeys(ATTENTION_SETTINGS if fn in ATTENTION else ())
    if fn is F.scaled_dot_product_attention:
        check_mask(*args, **kwargs)
    if CURRENT_DEVICE is not None and (
        fn is torch.Tensor.cuda or any(map(names_no_index, (*args, *kwargs.values())))
    ):
        call.relies_on[CURRENT_DEVICE] = None


def _is_followed(
    recorder: Recorder, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether autograd follows the call. Raises Break where its work cannot be recorded."""
    given = list(fakes_in((args, kwargs))) if torch.is_grad_enabled() else []
    wanted = any(f.requires_grad for f in given)
    if are_active():
        # The gradient mode is that of the innermost level, and any tensor may be inside of the wrappers.
        wanted = any(f.requires_grad for f in recorder.fakes)
    # Autograd refuses to save inference tensors, and inputs whose memory is read with another dtype.
    if wanted and any(is_inference(f) or f.memory.inference for f in given):
        raise Break("unsupported_op", f"{getattr(fn, '__name__', fn)}(...) of an inference tensor with gradients")  # fmt: skip
    if wanted and recorder.history.below_autograd:
        raise Break("gradient", f"{getattr(fn, '__name__', fn)}(...) inside a __torch_dispatch__")
    if wanted and not config.gradients:
        # Checked here and not at dispatch: autograd runs before dispatch, and would call the user's hooks for
        # saved tensors.
        raise Break("gradient", getattr(fn, "__name__", str(fn)))
    return wanted


def _as_whole(
    recorder: Recorder, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any] | None:
    """Returns the function that records the call as a whole, or None."""
    if are_active():
        return None
    whole = WHOLE.get(fn)
    if recorder.shape_env.symbols:
        whole = WHOLE_OVER_SIZES.get(fn, whole)
    if fn in WHOLE_ON_GPU and any(f.device.type == "cuda" for f in fakes_in((args, kwargs))):
        whole = WHOLE_ON_GPU[fn]
    if whole is not None and not takes(whole, (recorder, *args), kwargs):
        whole = None
    return whole


def _note_layouts(
    recorder: Recorder, fn: Callable[..., Any], called: tuple[Any, Any], result: Any
) -> None:
    """Notes what the call has assumed about sizes, and whether its result shows that."""
    # A gradient may lead back from sizes that come later.
    if recorder.shape_env.symbols or recorder.current_call.is_followed:
        recorder.layout_assumptions.called(recorder.current_call.last, fn, called, result)


def run_recorded(
    recorder: Recorder, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Runs `fn(*args, **kwargs)` and records every op of it."""
    if fn in COMPARED and all(isinstance(a, Fake) for a in args):
        # The operator would call the second operand's method first if its class is a subclass, as that of
        # tensors with symbolic sizes is.
        fn = COMPARED[fn]
    # A warning of PyTorch's Python code appears in each call, with that call's sizes and the program's line.
    with warnings_here("error", OF_PYTHON):
        try:
            if recorder.current_call.inference:
                # Inference mode hides the decomposition of composite ops from dispatch modes. Autocast keeps
                # no casts there.
                with levels_on(), torch.inference_mode(False), torch.no_grad(), without_cache(recorder.current_call.autocast), products_over(recorder.shape_env, recorder.casts), recorder:  # fmt: skip
                    return fn(*args, **kwargs)
            with levels_on(), products_over(recorder.shape_env, recorder.casts), recorder:
                result = fn(*args, **kwargs)
                if recorder.current_call.is_followed:
                    derive_as_eager(result)
                return result
        except Warning as warning:
            raise Break("warning", f"{getattr(fn, '__name__', fn)}: {warning}") from None
