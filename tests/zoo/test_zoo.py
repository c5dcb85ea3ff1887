"""A few models of the zoo, one of a kind; all of them are `make zoo`."""

import importlib.util

import pytest

from tests.zoo.models import all_models
from tests.zoo.torchvision_ops import declare
from tests.zoo.trial import try_model

QUICK = {
    "timm/resnet10t", "timm/test_nfnet", "transformers/BertModel", "transformers/LlamaForCausalLM", "transformers/T5EncoderModel",
    "transformers/ViTMSNModel", "transformers/MambaForCausalLM",
}  # fmt: skip


@pytest.mark.parametrize("model", [m for m in all_models() if m.key in QUICK], ids=lambda m: m.key)
def test_model(model):
    needed = {"timm": ("timm", "torchvision")}.get(model.package, (model.package,))
    for package in needed:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    declare()
    result = try_model(model)
    assert result.state == "passed", f"{result.reason}\n{result.detail}"
