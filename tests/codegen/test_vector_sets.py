"""Which instruction set kernels are written for."""

import pytest

from frameloom.codegen.cpp import vector
from frameloom.codegen.cpp.vector import AVX2, AVX512, host_isa


@pytest.mark.parametrize(
    ("capability", "expected"),
    [(None, AVX512), ("", AVX512), ("avx512", AVX512), ("avx2", AVX2), ("default", None)],
)
def test_narrowed_as_for_the_kernels_of_pytorch(monkeypatch, capability, expected):
    monkeypatch.setattr(vector.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(
        vector, "_cpu_flags", lambda: {"avx2", "fma", "f16c", *vector._AVX512_FLAGS}
    )
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    if capability is not None:
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", capability)
    assert host_isa.__wrapped__() is expected
