"""What an array says of its memory; views as another dtype; padded arrays; Fourier transforms.

PYTEST_DONT_REWRITE
"""

import numpy as np
import pytest

from frameloom import jit
from tests.programs.program import X, program

A = np.array([3.0, 1, 2, 0, 5, 4, 2], dtype=np.float32)
D = np.array([0.5, 1.5, 2.5, 3.5])
M = np.arange(12.0, dtype=np.float32).reshape(3, 4) - 5
C = (np.arange(4) + 1j).astype(np.complex64)
INTS = np.array([3, 1, 2, 1, 0])


def given(*arrays):
    return lambda: (X.clone(), *(a.copy(order="K") for a in arrays))


# --- whose memory it is


@program(args=given(A), plain=True, graphs=0)
def array_that_grows(x, a):
    """Only an array that owns its memory can; one that a graph makes does not."""
    b = a + 1
    b.resize((2, 3))
    return x + 1, b


@program(args=given(M), plain=True, graphs=0)
def bases(x, m):
    return x + 1, m[1:].base is m, m.T.base is m, (m + 1).base is None, (m + 1).flags.owndata


@program(args=given(M), breaks="numpy numpy", graphs=1)
def base_of_an_argument(x, m):
    return x + 1, m.base is None, m.flags.owndata


@program(args=given(M))
def flags(x, m):
    return x + 1, m.flags.c_contiguous, m.T.flags["F_CONTIGUOUS"], m.T.flags.fnc, m[:, ::2].flags.forc, m.flags.writeable, m[0].flags.aligned, (m + 1).flags.contiguous, m[:1].flags.f_contiguous  # fmt: skip


@program(args=lambda: (X, np.broadcast_to(np.ones(2), (2, 2)), np.arange(4.0)[::-1]))
def flags_of_read_only_and_backwards(x, r, b):
    return x + 1, r.flags.writeable, r.flags.c_contiguous, b.flags.forc, b[::-1].flags.forc


@program(args=given(A), breaks="attribute_write", graphs=1)
def flags_that_are_written(x, a):
    a.flags.writeable = False
    return x + 1, a


# --- views as another dtype


@program(args=given(A, C))
def other_dtypes(x, a, c):
    return x + 1, a.view(np.int32), a.view(dtype=np.uint8), a[:6].view("int64"), c.view(np.float32)


@program(args=given(C))
def parts_of_complex_numbers(x, c):
    return x + 1, c.real, c.imag, np.angle(c), np.abs(c.real), np.real(c), np.imag(c)


@program(args=given(C.reshape(2, 2)))
def parts_of_complex_matrices(x, c):
    return x + 1, c.T.real, c.real.sum(0), c[0].imag


@program(args=given(A))
def writes_that_a_view_sees(x, a):
    b = a.view(np.int32)
    c = a[:6].view(np.complex64)
    a[1] = 1.5
    return x + 1, b.sum(), b[1], c


@program(args=given(A), breaks="mutated_view", graphs=2)
def writes_through_a_view(x, a):
    b = a.view(np.int32)
    b[0] = 0x7F800000
    return x + 1, b, a.sum()


@program(args=given(A), breaks="numpy", graphs=1)
def views_of_parts(x, a):
    return x + 1, a[1:].view(np.int32)


@program(args=given(A), breaks="numpy", graphs=1)
def view_as_bools(x, a):
    return x + 1, a.view(bool)


# --- numbers of constant arrays


@program(args=given(A))
def numbers_of_constants(x, a):
    i = np.array([1, 2])
    return x + 1, a[i[0]], a[i[0] : np.arange(4)[3]], i.sum() + a[0], a[slice(np.int64(1), i.max())], slice(2), np.array([True, False]).all()  # fmt: skip


@program(args=given(A), breaks="warning", graphs=1)
def overflow_of_constants(x, a):
    return x + 1, np.array([100], dtype=np.int8)[0] * np.int8(2)


@program()
def orders_of_constants(x):
    return x + 1, np.zeros((2, 3), order="F"), np.ones((2, 3), dtype=np.int32, order="F").T, np.empty((2, 3), order="F").strides  # fmt: skip


# --- padded and rolled


@program(args=given(M))
def padded(x, m):
    return x + 1, np.pad(m, 2), np.pad(m, ((1, 2), (0, 1)), mode="edge"), np.pad(m, 1, constant_values=7), np.pad(m[0], 2)  # fmt: skip


@program(args=given(M))
def padded_by_copies(x, m):
    return x + 1, np.pad(m, 1, mode="reflect"), np.pad(m, 1, mode="symmetric"), np.pad(m, 1, mode="wrap"), np.pad(m, 1, mode="mean")  # fmt: skip


@program(args=given(M))
def rolled(x, m):
    return x + 1, np.roll(m, (1, 2), axis=(0, 1)), np.roll(m, 1, axis=(0, 1)), np.roll(m, 3), np.roll(m, -1, axis=1)  # fmt: skip


# --- Fourier transforms


@program(args=given(A, D, INTS))
def transforms(x, a, d, i):
    return x + 1, np.fft.fft(a), np.fft.rfft(a), np.fft.ifft(a), np.fft.irfft(a), np.fft.hfft(a), np.fft.ihfft(d), np.fft.fft(i), np.fft.irfft(i)  # fmt: skip


@program(args=given(D, C))
def lengths_and_norms(x, d, c):
    return x + 1, np.fft.fft(d, n=8), np.fft.fft(d, norm="ortho"), np.fft.rfft(d, 3), np.fft.irfft(d, 5, norm="forward"), np.fft.fft(c), np.fft.ifft(c, 3), np.fft.irfft(c)  # fmt: skip


@program(args=given(M))
def transforms_of_matrices(x, m):
    return x + 1, np.fft.fft2(m), np.fft.rfftn(m), np.fft.fft(m, axis=0), np.fft.ifftn(m, axes=(0,)), np.fft.irfft2(m), np.fft.fft(m.T)  # fmt: skip


@program(args=given(D))
def shifted(x, d):
    return (
        x + 1,
        np.fft.fftshift(d),
        np.fft.ifftshift(d),
        np.fft.fftfreq(8),
        np.fft.rfftfreq(4, 0.5),
    )


@program(args=given(A.astype(np.float16)), breaks="numpy", graphs=1)
def transform_of_halves(x, h):
    return x + 1, np.fft.fft(h)


def test_transform_of_no_points():
    with pytest.raises(ValueError, match="Invalid number of FFT data points"):
        jit(lambda x, a: (x + 1, np.fft.fft(a, n=0)))(X, A)


def test_compiled():
    def call(x, a, m):
        return (
            x + 1,
            np.fft.rfft(a),
            np.pad(m, 1),
            a.view(np.int32) + 1,
            np.pad(m, 1, mode="reflect"),
        )

    target = jit(call, fullgraph=True)
    for by in (0, 1):
        got, want = target(X, A + by, M - by), call(X, A + by, M - by)
        for g, w in zip(got[1:], want[1:], strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)
            assert (g.dtype, g.strides) == (w.dtype, w.strides)
