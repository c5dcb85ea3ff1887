"""Kernels written by hand, which plans of tests run."""

import subprocess

import pytest

from frameloom.runtime import _runtime

SOURCE = r"""
#include <stdint.h>
#define KERNEL(name) static void run_##name(void *const *b, const int64_t *s); \
    int name(void *const *b, const int64_t *s) { run_##name(b, s); return 0; } \
    static void run_##name(void *const *b, const int64_t *s)
KERNEL(add32) { const float *x = b[0], *y = b[1]; float *o = b[2]; for (int i = 0; i < 32; i++) o[i] = x[i] + y[i]; }
KERNEL(twice32) { const float *x = b[0]; float *o = b[1]; for (int i = 0; i < 32; i++) o[i] = 2 * x[i]; }
KERNEL(mark) { *(char *)b[0] = *(const float *)b[1] < 0; }
KERNEL(nothing) { }
KERNEL(twice) { const float *x = b[0]; float *o = b[1]; for (int64_t i = 0; i < s[0]; i++) o[i] = 2 * x[i]; }
KERNEL(rows) {  // sizes: rows, columns, stride of a row
    const float *x = b[0]; float *o = b[1];
    for (int64_t i = 0; i < s[0]; i++)
        for (int64_t k = 0; k < s[1]; k++) o[i * s[1] + k] = 2 * x[i * s[2] + k];
}
KERNEL(give) { int64_t *o = b[0]; for (int64_t i = 0; i < (int64_t)b[1]; i++) o[i] = s[i]; }
int starved(void *const *b, const int64_t *sizes) { return 1; }
"""


@pytest.fixture(scope="session")
def kernel(tmp_path_factory):
    """Address of a kernel by name, from one small library written in C."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "k.c").write_text(SOURCE)
    library = folder / "k.so"
    command = ["gcc", "-w", "-O2", "-shared", "-fPIC", "-o", library, folder / "k.c"]
    subprocess.run(command, check=True)
    handle = _runtime.load_library(str(library))
    return lambda name: _runtime.symbol(handle, name)
