"""Builds the two extension modules.

`frameloom.capture._capture` (C): frame hook, guards and the jitted-function object.  It reads CPython's
internal frame layout, so it is compiled against the internal headers of the running interpreter.
`frameloom.runtime._runtime` (C++): the native plan.  Neither includes a PyTorch header: one wheel serves every PyTorch.
"""

import sysconfig
from pathlib import Path

import pybind11
from setuptools import Extension, setup

INCLUDE = Path(sysconfig.get_path("include"))
C_FLAGS = ["-O3", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fvisibility=hidden"]
CPP_FLAGS = ["-O3", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fvisibility=hidden"]

setup(
    ext_modules=[
        Extension(
            "frameloom.capture._capture",
            sources=sorted(str(p) for p in Path("capture").glob("*.c")),
            depends=sorted(str(p) for p in Path("capture").glob("*.h")),
            include_dirs=[str(INCLUDE), str(INCLUDE / "internal")],
            define_macros=[("Py_BUILD_CORE_MODULE", "1")],
            extra_compile_args=C_FLAGS,
        ),
        Extension(
            "frameloom.runtime._runtime",
            sources=sorted(str(p) for p in Path("runtime").glob("*.cpp")),
            depends=sorted(str(p) for p in Path("runtime").glob("*.h")),
            include_dirs=[str(INCLUDE), pybind11.get_include()],
            language="c++",
            extra_compile_args=CPP_FLAGS,
            libraries=["dl"],
        ),
    ]
)
