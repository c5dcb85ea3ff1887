"""Fixtures: a CUDA driver that is not there, for a PyTorch without CUDA (pretend_cuda.c)."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch

needs_no_cuda = pytest.mark.skipif(
    torch.version.cuda is not None, reason="PyTorch here has a CUDA side of its own"
)


class Log(ctypes.Structure):
    _fields_ = [
        ("launches", ctypes.c_int), ("writes", ctypes.c_int), ("last_device", ctypes.c_int),
        ("last_extra_null", ctypes.c_int), ("graphs", ctypes.c_int), ("updates", ctypes.c_int), ("alive", ctypes.c_int),
        ("grid", ctypes.c_uint * 3), ("threads", ctypes.c_uint), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("context", ctypes.c_void_p), ("name", ctypes.c_char_p),
    ]  # fmt: skip


@functools.cache
def libraries():
    """Both, loaded once a process; PyTorch's side first."""
    folder = Path(tempfile.mkdtemp())
    source = Path(__file__).with_name("pretend_cuda.c")
    opened = []
    for name, flags in (("libtorch_cuda.so", []), ("libcuda.so.1", ["-DDRIVER"])):
        command = ["gcc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{name}", *flags, source]
        subprocess.run([*command, "-o", folder / name, "-ldl"], check=True)
        opened.append(ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL))
    shutil.rmtree(folder)
    return opened


@pytest.fixture
def gpu():
    """PyTorch's side of the pretended CUDA."""
    torch_side = libraries()[0]
    torch_side.pretend_log.restype = ctypes.POINTER(Log)
    ctypes.memset(torch_side.pretend_log(), 0, ctypes.sizeof(Log))
    torch_side.pretend_stream(ctypes.c_void_p(0x1000))
    torch_side.pretend_device(0)
    torch_side.pretend_capture(0)
    torch_side.pretend_version(12080)
    return torch_side
