"""Runs the examples in the docstrings of JAX's modules against hloom, and counts those that print what they promise.

    python tests/conformance/docstrings.py jax.numpy jax.numpy.linalg jax.numpy.fft jax.nn jax.tree

One example is one `>>>` statement with the output below it. The examples of a function run in order with the names
jax, jnp, lax and np, where the first three are hloom (`--on jax`: JAX itself, for comparison). White space does not
count, `...` stands for any text. A line a failing function is printed with -v; the docstrings are read from the
installed jax, which only they come from.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import importlib
import io
import json
import signal
import sys
import warnings

SECONDS = 20  # for the examples of one function
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


class _Late(Exception):
    pass


def _late(signum, frame):
    raise _Late


class _Runner(doctest.DocTestRunner):
    """Remembers the numbers of failing examples and why they failed."""

    def __init__(self):
        super().__init__(optionflags=OPTIONS, verbose=False)
        self.wrong: dict[int, str] = {}

    def report_failure(self, out, test, example, got):
        self.wrong[test.examples.index(example)] = (
            f"{example.source.strip()}\n  expected: {example.want.strip()}\n  got:      {got.strip()}"
        )

    def report_unexpected_exception(self, out, test, example, exc_info):
        kind, error, _ = exc_info
        if kind is _Late:
            raise error
        self.wrong[test.examples.index(example)] = f"{example.source.strip()}\n  {kind.__name__}: {error}"


def names_of(what: str) -> dict:
    """The names that the examples use: jax, jnp, lax and np."""
    import numpy

    if what == "jax":
        import jax
        import jax.numpy

        return {"jax": jax, "jnp": jax.numpy, "lax": jax.lax, "np": numpy}
    import hloom
    import hloom.numpy

    return {"jax": hloom, "jnp": hloom.numpy, "lax": hloom.lax, "np": numpy}


def examples_of(module: str) -> dict[str, doctest.DocTest]:
    """The examples of each public function of a module of JAX that has any, by the function's name."""
    found, source = {}, importlib.import_module(module)
    for name in dir(source):
        value = getattr(source, name)
        text = getattr(value, "__doc__", None)
        if name.startswith("_") or isinstance(value, type(source)) or not isinstance(text, str):
            continue
        test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
        if test.examples:
            found[name] = test
    return found


def run_function(test: doctest.DocTest, names: dict) -> dict[int, str]:
    """The failing examples of one function: number and what happened."""
    test.globs = dict(names)
    runner = _Runner()
    previous = signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            runner.run(test, out=lambda text: None, clear_globs=False)
    except _Late:
        for k in range(len(test.examples)):
            runner.wrong.setdefault(k, f"not finished after {SECONDS} s")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    return runner.wrong


def run_module(module: str, names: dict, only=None) -> tuple[int, int, dict[str, dict[int, str]]]:
    """(examples that pass, examples, the failing ones by function)."""
    total, failing = 0, {}
    tests = examples_of(module)
    # Some examples import jax themselves.
    with names["jax"].as_jax() if hasattr(names["jax"], "as_jax") else contextlib.nullcontext():
        for name, test in tests.items():
            if only and name not in only:
                continue
            total += len(test.examples)
            failures = run_function(test, names)
            if failures:
                failing[name] = failures
    return total - sum(map(len, failing.values())), total, failing


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="+", help="such as jax.numpy")
    parser.add_argument("--on", choices=("hloom", "jax"), default="hloom", help="what runs the examples")
    parser.add_argument("--only", nargs="*", help="names of functions")
    parser.add_argument("--json", action="store_true", help="print the failing examples as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the failing examples")
    given = parser.parse_args(arguments)
    names = names_of(given.on)
    for module in given.modules:
        passed, total, failing = run_module(module, names, given.only)
        print(f"{module}: {passed} of {total} examples pass on {given.on}")
        if given.json:
            print(json.dumps({name: sorted(found) for name, found in failing.items()}))
        if given.verbose:
            for name, found in failing.items():
                for number, reason in found.items():
                    print(f"--- {module}.{name} example {number}: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
