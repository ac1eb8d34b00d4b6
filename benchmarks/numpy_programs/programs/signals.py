"""Signals."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.numpy_programs.table import R, programs_of

program = programs_of("signals")


@program(
    lambda n: (R(0).random(n) + 1j * R(1).random(n),),
    32,
    64,
    300,
    1500,
    rtol=1e-11,
    conditioning="arguments of exp up to 2 pi n",
)
def dft(x):
    n = len(x)
    out = np.zeros(n, dtype=np.complex128)
    for k in range(n):
        s = 0j
        for t in range(n):
            s += x[t] * np.exp(-2j * np.pi * k * t / n)
        out[k] = s
    return out


@program(
    lambda n: (R(0).random(n) + 0j,),
    64,
    1024,
    65_536,
    524_288,
    rtol=1e-9,
    conditioning="powers of the roots of unity are multiplied up",
)
def fft_radix2(x):
    n = len(x)
    j = 0
    for i in range(1, n):
        bit = n >> 1
        while j & bit:
            j ^= bit
            bit >>= 1
        j ^= bit
        if i < j:
            x[i], x[j] = x[j], x[i]
    size = 2
    while size <= n:
        ang = -2 * np.pi / size
        wl = complex(np.cos(ang), np.sin(ang))
        for i in range(0, n, size):
            w = 1 + 0j
            for k in range(size // 2):
                a = x[i + k]
                b = x[i + k + size // 2] * w
                x[i + k] = a + b
                x[i + k + size // 2] = a - b
                w *= wl
        size *= 2


@program(lambda n: (R(0).random(n),), 64, 1024, 131_072, 1_048_576)
def fft_filter(x):
    f = np.fft.rfft(x)
    f[10:] = 0
    return np.fft.irfft(f, len(x))


@program(lambda n: (R(0).random(n), R(1).random(33)), 300, 1000, 100_000, 1_000_000)
def fir(x, h):
    y = np.zeros(len(x) - len(h) + 1)
    for i in range(len(y)):
        y[i] = np.dot(x[i : i + len(h)], h[::-1])
    return y


@program(lambda n: (R(0).random(n), np.array([1.0, -0.5, 0.2]), np.array([0.3, 0.3])), 100, 1000, 100_000, 1_000_000)
def iir(x, a, b):
    y = np.zeros_like(x)
    for n in range(len(x)):
        acc = 0.0
        for k in range(len(b)):
            if n - k >= 0:
                acc += b[k] * x[n - k]
        for k in range(1, len(a)):
            if n - k >= 0:
                acc -= a[k] * y[n - k]
        y[n] = acc / a[0]
    return y


@program(lambda n: (R(0).random(n), 5), 128, 1024, 131_072, 1_048_576)
def haar(x, levels):
    n = len(x)
    out = x.copy()
    for l in range(levels):
        half = n // 2
        a = (out[0:n:2] + out[1:n:2]) / np.sqrt(2)
        d = (out[0:n:2] - out[1:n:2]) / np.sqrt(2)
        out[:half] = a
        out[half:n] = d
        n = half
    return out


@program(
    lambda n: (R(0).random(n), np.array([0.1, 0.13, 0.2, 0.31])),
    50,
    1000,
    100_000,
    1_000_000,
    rtol=1e-9,
    conditioning="an oscillator of n steps",
)
def goertzel(x, frequencies):
    out = np.empty(len(frequencies))
    for k in range(len(frequencies)):
        w = 2 * np.cos(2 * np.pi * frequencies[k])
        a = 0.0
        b = 0.0
        for v in x:
            a, b = v + w * a - b, a
        out[k] = a * a + b * b - w * a * b
    return out


@program(lambda n: (R(0).random(n), 64), 256, 1024, 65_536, 1_048_576)
def spectrogram(x, size):
    frames = x[: len(x) // size * size].reshape(-1, size) * np.hanning(size)
    f = np.fft.rfft(frames, axis=1)
    return np.log(f.real**2 + f.imag**2 + 1e-12)


@program(lambda n: (R(0).normal(size=n), R(1).normal(size=n), 8, 0.01), 60, 1000, 50_000, 500_000)
def lms(x, d, taps, rate):
    w = np.zeros(taps)
    e = np.zeros(len(x))
    for n in range(taps, len(x)):
        window = x[n - taps : n]
        e[n] = d[n] - w @ window
        w += rate * e[n] * window
    return w, e


@program(lambda n: (R(0).random(n), R(1).random(50)), 60, 100, 5000, 200_000)
def convolve_loops(x, h):
    y = np.zeros(len(x) + len(h) - 1)
    for i in range(len(x)):
        for j in range(len(h)):
            y[i + j] += x[i] * h[j]
    return y


@program(lambda n: (R(0).normal(size=n),), 60, 1000, 100_000, 2_000_000)
def zero_crossings(x):
    s = np.sign(x)
    return np.count_nonzero(s[1:] != s[:-1]), np.abs(np.diff(x)).sum()


@program(
    lambda n: (R(0).normal(size=n), np.array([[0.2, 0.1, 0.2, -0.5, 0.3], [0.3, 0.2, 0.1, 0.2, -0.1]])),
    60,
    1000,
    100_000,
    1_000_000,
)
def biquads(x, sections):
    y = x.copy()
    for s in range(len(sections)):
        b0, b1, b2, a1, a2 = sections[s]
        p = 0.0
        q = 0.0
        for i in range(len(y)):
            v = y[i]
            y[i] = b0 * v + p
            p = b1 * v - a1 * y[i] + q
            q = b2 * v - a2 * y[i]
    return y
