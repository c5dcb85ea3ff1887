"""PyTorch's settings that the program asked about, or that decide what its operations do, are part of the guards.

PYTEST_DONT_REWRITE
"""

import torch

from tests.programs.changing import changes


def setting(read, write, restore):
    """A program that branches on a setting."""

    @changes
    def program():
        yield lambda x: x + 1 if read() else x - 1
        try:
            write()
            yield
        finally:
            restore()
        yield

    return program


mkldnn = setting(
    lambda: torch.backends.mkldnn.enabled,
    lambda: torch.backends.mkldnn.set_flags(False),
    lambda: torch.backends.mkldnn.set_flags(True),
)
cudnn_enabled = setting(
    lambda: torch.backends.cudnn.enabled,
    lambda: setattr(torch.backends.cudnn, "enabled", False),
    lambda: setattr(torch.backends.cudnn, "enabled", True),
)
cudnn_benchmark = setting(
    lambda: torch.backends.cudnn.benchmark,
    lambda: setattr(torch.backends.cudnn, "benchmark", True),
    lambda: setattr(torch.backends.cudnn, "benchmark", False),
)
fast_attention = setting(
    lambda: torch.backends.mha.get_fastpath_enabled(),
    lambda: torch.backends.mha.set_fastpath_enabled(False),
    lambda: torch.backends.mha.set_fastpath_enabled(True),
)
flash_attention = setting(
    lambda: torch.backends.cuda.flash_sdp_enabled(),
    lambda: torch.backends.cuda.enable_flash_sdp(False),
    lambda: torch.backends.cuda.enable_flash_sdp(True),
)
tf32 = setting(
    lambda: torch.backends.cuda.matmul.allow_tf32,
    lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", False),
)
matmul_precision = setting(
    lambda: torch.get_float32_matmul_precision() == "highest",
    lambda: torch.set_float32_matmul_precision("high"),
    lambda: torch.set_float32_matmul_precision("highest"),
)
deterministic = setting(
    torch.are_deterministic_algorithms_enabled,
    lambda: torch.use_deterministic_algorithms(True),
    lambda: torch.use_deterministic_algorithms(False),
)
deterministic_warnings = setting(
    lambda: torch.is_deterministic_algorithms_warn_only_enabled(),
    lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    lambda: torch.use_deterministic_algorithms(False),
)
warn_always = setting(
    lambda: torch.is_warn_always_enabled(),
    lambda: torch.set_warn_always(True),
    lambda: torch.set_warn_always(False),
)
autocast_cache = setting(
    lambda: torch.is_autocast_cache_enabled(),
    lambda: torch.set_autocast_cache_enabled(False),
    lambda: torch.set_autocast_cache_enabled(True),
)
autocast_dtype = setting(
    lambda: torch.get_autocast_dtype("cpu") == torch.bfloat16,
    lambda: torch.set_autocast_dtype("cpu", torch.float16),
    lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
)
anomaly = setting(
    lambda: torch.is_anomaly_enabled(),
    lambda: torch.autograd.set_detect_anomaly(True),
    lambda: torch.autograd.set_detect_anomaly(False),
)
default_device = setting(
    lambda: torch.get_default_device().type == "cpu",
    lambda: torch.set_default_device("meta"),
    lambda: torch.set_default_device(None),
)
print_precision = setting(
    lambda: torch._tensor_str.PRINT_OPTS.precision == 4,
    lambda: torch.set_printoptions(precision=7),
    lambda: torch.set_printoptions(precision=4),
)


@changes
def default_dtype():
    yield lambda x: x.sum() * torch.tensor(1.5) + torch.ones(2)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
    yield


@changes
def number_of_threads():
    count = torch.get_num_threads()
    yield lambda x: x * torch.get_num_threads()
    torch.set_num_threads(count + 1)
    yield
    torch.set_num_threads(count)
    yield
