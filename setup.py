"""Builds the two extension modules.

`frameloom.capture._capture` (C): frame hook, guards and the jitted-function object.  It reads CPython's
internal frame layout, so it is compiled against the internal headers of the running interpreter.
`frameloom.runtime._runtime` (C++, with pybind11): the native plan.
Neither includes a PyTorch header: one wheel serves every PyTorch.
"""

import sysconfig
from pathlib import Path

import pybind11
from setuptools import Extension, setup

INCLUDE = sysconfig.get_path("include")
# The executor includes no header of Python: tests/runtime/test_executor.py links it without.
RUNTIME = ["runtime/executor", "runtime/torch_abi", "runtime/plan"]
FLAGS = ["-O3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fvisibility=hidden"]


def files(folder: str, pattern: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob(pattern))


setup(
    ext_modules=[
        Extension(
            "frameloom.capture._capture",
            sources=files("capture/native", "*.c"),
            depends=files("capture/native", "*.h"),
            include_dirs=[INCLUDE, f"{INCLUDE}/internal"],
            define_macros=[("Py_BUILD_CORE_MODULE", "1")],
            extra_compile_args=["-std=c11", *FLAGS],
            extra_link_args=["-Wl,--strip-all"],
            libraries=["dl"],
        ),
        Extension(
            "frameloom.runtime._runtime",
            sources=[path for folder in RUNTIME for path in files(folder, "*.cpp")],
            depends=[path for folder in RUNTIME for path in files(folder, "*.h")],
            include_dirs=[INCLUDE, *RUNTIME],
            language="c++",
            # System headers give no warnings.
            extra_compile_args=["-std=c++17", *FLAGS, "-isystem", pybind11.get_include()],
            extra_link_args=["-Wl,--strip-all"],
            libraries=["dl"],
        ),
    ],
    options={"build_ext": {"parallel": 2}},  # one after the other takes twice as long
)
