"""Builds the two extension modules.

`frameloom.capture._capture` (C): frame hook, guards and the jitted-function object.  It reads CPython's
internal frame layout, so it is compiled against the internal headers of the running interpreter.
`frameloom.runtime._runtime` (C++, with pybind11): the native plan.
Neither includes a PyTorch header: one wheel serves every PyTorch.

A newer CPython may lay out its frames in another way. There, `_capture` only says that functions run as plain
Python, and `_runtime` is not built.
"""

import sys
import sysconfig
from pathlib import Path

import pybind11
from pybind11.setup_helpers import ParallelCompile
from setuptools import Extension, setup

NEWEST = (3, 13)  # the newest CPython whose frames capture/native/compat.h knows
INCLUDE = sysconfig.get_path("include")
# The executor includes no header of Python: tests/runtime/test_executor.py links it without.
RUNTIME = ["runtime/executor", "runtime/torch_abi", "runtime/plan"]
FLAGS = ["-O3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fvisibility=hidden"]


def files(folder: str, pattern: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob(pattern))


def extensions() -> list[Extension]:
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.exit("Frameloom needs a CPython with the GIL: this one is free-threaded")
    return compiler() if sys.version_info[:2] <= NEWEST else [unsupported()]


def unsupported() -> Extension:
    here, newest = ("{}.{}".format(*version[:2]) for version in (sys.version_info, NEWEST))
    reason = f"CPython {here} is not supported yet (3.11 to {newest} are)"
    return Extension(
        "frameloom.capture._capture",
        sources=files("capture/native/unsupported", "*.c"),
        define_macros=[("REASON", f'"{reason}"')],
        extra_compile_args=["-std=c11", *FLAGS],
    )


def compiler() -> list[Extension]:
    return [
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
    ]


ParallelCompile(default=0).install()  # one file per core at a time
setup(ext_modules=extensions())
