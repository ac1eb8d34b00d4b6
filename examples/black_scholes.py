"""Prices and Greeks of four million European options by the Black-Scholes formula, fused.

Prices of calls and puts, and the calls' delta and vega, are compared with NumPy in double precision on a sample. Run

    python examples/black_scholes.py [--options 4000000] [--repeats 20]
"""

import argparse
import math
import time

import numpy as np

import hloom as hl
import hloom.numpy as hnp

RATE = 0.02  # risk-free, a year


@hl.jit
def price(spot, strike, years, volatility):
    """Calls, puts, the calls' delta and vega. All arguments are float32 arrays of one shape."""
    deviation = volatility * hnp.sqrt(years)
    d1 = (hnp.log(spot / strike) + (RATE + 0.5 * volatility * volatility) * years) / deviation
    d2 = d1 - deviation
    discounted = strike * hnp.exp(-RATE * years)
    below1, below2 = normal_cdf(d1), normal_cdf(d2)
    call = spot * below1 - discounted * below2
    put = call - spot + discounted
    vega = spot * hnp.exp(-0.5 * d1 * d1) * (1 / math.sqrt(2 * math.pi)) * hnp.sqrt(years)
    return call, put, below1, vega


def normal_cdf(x):
    return 0.5 + 0.5 * hl.lax.erf(x * math.sqrt(0.5))


def market(count, seed=0):
    """Spot prices, strikes, years to expiry and volatilities, float32."""
    random = np.random.default_rng(seed)
    ranges = ((20.0, 180.0), (20.0, 180.0), (0.1, 3.0), (0.1, 0.6))
    return [random.uniform(low, high, count).astype(np.float32) for low, high in ranges]


def reference(spot, strike, years, volatility):
    """The same in NumPy, double precision, one option at a time for erfc."""
    spot, strike, years, volatility = (x.astype(np.float64) for x in (spot, strike, years, volatility))
    cdf = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))
    d1 = (np.log(spot / strike) + (RATE + volatility**2 / 2) * years) / (volatility * np.sqrt(years))
    d2 = d1 - volatility * np.sqrt(years)
    discounted = strike * np.exp(-RATE * years)
    call = spot * cdf(d1) - discounted * cdf(d2)
    vega = spot * np.exp(-d1 * d1 / 2) / math.sqrt(2 * math.pi) * np.sqrt(years)
    return call, call - spot + discounted, cdf(d1), vega


def run(count=4_000_000, repeats=20, report=print):
    """Prices `count` options; the largest error on a sample, relative to the spot price, and the options a second."""
    columns = market(count)
    arrays = [hnp.asarray(column) for column in columns]
    start = time.perf_counter()
    results = price(*arrays)
    report(f"compiled and priced {count:,} options in {time.perf_counter() - start:.2f} s")
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        results = price(*arrays)
        times.append(time.perf_counter() - start)
    speed = count / sorted(times)[len(times) // 2]
    sample = np.random.default_rng(1).choice(count, min(count, 20_000), replace=False)
    expected = reference(*(column[sample] for column in columns))
    scale = columns[0][sample].astype(np.float64)
    scales = (scale, scale, 1.0, scale)
    errors = [
        float(np.max(np.abs(np.asarray(found)[sample] - right) / size))
        for found, right, size in zip(results, expected, scales, strict=True)
    ]
    report(f"{speed / 1e6:.0f} million options a second (median of {repeats})")
    names = ("call", "put", "delta", "vega")
    report("largest error on a sample: " + ", ".join(f"{n} {e:.1e}" for n, e in zip(names, errors, strict=True)))
    kernels = int(price.lower(*arrays).compile().cost_analysis()["kernels"])
    report(f"kernels: {kernels}")
    return max(errors), speed, kernels


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--options", type=int, default=4_000_000, help="how many options (default: 4,000,000)")
    parser.add_argument("--repeats", type=int, default=20, help="how often they are priced (default: 20)")
    arguments = parser.parse_args()
    error, _, _ = run(arguments.options, arguments.repeats)
    assert error < 2e-6, "prices should agree with double precision to a few units in the last place of float32"
