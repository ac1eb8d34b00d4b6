"""SciPy's and scikit-learn's Array-API paths take hloom arrays and give hloom arrays.

Both assign to elements of arrays that they made; `hl.config.item_assignment` lets them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# What evaluates each call twice, on NumPy's arrays and on hloom's, and prints what differs as JSON.
PROGRAM = """
    import contextlib, importlib, json, sys
    import numpy as np
    import hloom as hl

    library, *parts = sys.argv[1:]
    modules = {part.rpartition(".")[2]: importlib.import_module(f"{library}.{part}") for part in parts}
    random = np.random.default_rng(0)
    a = random.normal(size=(20, 3) if library == "scipy" else (60, 3))
    dispatch, tolerance = contextlib.nullcontext(), {"rtol": 1e-6, "atol": 1e-9}
    if library == "sklearn":
        import sklearn

        dispatch, tolerance = sklearn.config_context(array_api_dispatch=True), {"rtol": 1e-3, "atol": 1e-3}
        a = a.astype("float32")
    p = abs(a) + 0.5
    arrays = {
        "a": a, "p": p, "q": p[::-1].copy(), "u": (a - a.min() + 0.01) / (np.ptp(a) + 0.02), "t": np.arange(20.0),
        "n": random.integers(1, 6, (20, 3)).astype(float), "b": (a[:, 0] + 0.3 * a[:, 1] > 0).astype("int32"),
        "s": 1 / (1 + np.exp(-a[:, 0])),
    }
    wrong = {}
    with hl.config(item_assignment=True), dispatch:
        ours = {name: hl.numpy.asarray(value) for name, value in arrays.items()}
        for call in sys.stdin.read().splitlines():
            expected = eval(call, modules | {name: value.copy() for name, value in arrays.items()} | {"xp": np})
            try:
                found = eval(call, modules | ours | {"xp": hl.numpy})
            except Exception as error:
                wrong[call] = f"{type(error).__name__}: {error}"
                continue
            if not isinstance(found, (hl.Array, float, int)):
                wrong[call] = f"a {type(found).__name__}"
            elif not np.allclose(np.asarray(found), expected, equal_nan=True, **tolerance):
                wrong[call] = f"{found} instead of {expected}"
        changed = [n for n, value in arrays.items() if not np.array_equal(np.asarray(ours[n]), value)]
        assert not changed, f"somebody wrote into {changed}"
    print(json.dumps(wrong))
"""
# Library: (version that the list was made with, its modules).
LIBRARIES = {
    "scipy": (
        (1, 17),
        "cluster differentiate fft integrate interpolate linalg ndimage optimize optimize.elementwise signal spatial "
        "special stats",
    ),
    "sklearn": (
        (1, 9),
        "calibration decomposition discriminant_analysis kernel_approximation linear_model metrics mixture "
        "model_selection naive_bayes preprocessing",
    ),
}


def calls(library: str) -> dict[str, str]:
    """The calls of a library, each with the reason why it does not work, or ""."""
    text = Path(__file__).with_name(f"{library}_functions.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {call.strip(): reason.strip() for call, _, reason in (line.partition("  # ") for line in lines)}


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_functions_take_and_give_arrays(library, capsys):
    version, modules = LIBRARIES[library]
    installed = pytest.importorskip(library).__version__
    if tuple(map(int, installed.split(".")[:2])) < version:
        pytest.skip(f"the list is not that of {library} {installed}")
    known = calls(library)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM), library, *modules.split()],
        env={**os.environ, "SCIPY_ARRAY_API": "1"}, capture_output=True, text=True, timeout=900, input="\n".join(known),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    wrong = json.loads(done.stdout.splitlines()[-1])
    with capsys.disabled():
        print(f"\n{library}: {len(known) - len(wrong)} of {len(known)} calls take and give hloom arrays")
    unnamed = {call: why for call, why in wrong.items() if not known[call]}
    assert not unnamed, "\n".join(f"{call}: {why}" for call, why in unnamed.items())
    assert not [call for call, reason in known.items() if reason and call not in wrong], "a named call works now"


@pytest.mark.parametrize("library,count", [("scipy", 200), ("sklearn", 75)])
def test_the_list_of_calls_gives_reasons(library, count):
    known = calls(library)
    assert sum(not reason for reason in known.values()) > count
    assert all(len(reason.split()) >= 4 for reason in known.values() if reason)
