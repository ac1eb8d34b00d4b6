"""A plugin of pytest that runs SciPy's own Array API tests with another namespace: `tests/scipy_suite.py` starts it.

SciPy's `conftest.py` has a fixture `xp` whose parameters are the namespaces that SciPy knows. The plugin gives it
one parameter, the namespace that `--backend` names, under an id that is the same for every namespace, so that the names
of the tests can be compared. SciPy's marks that skip a test for some namespaces, or expect its failure, say what its
developers know about these namespaces; nothing is known about another one, so they are left out, for every namespace.
"""

from __future__ import annotations

import importlib
import json
import zlib
from collections import defaultdict
from pathlib import Path

import pytest

BACKENDS = ("numpy", "hloom.numpy", "jax.numpy")


def pytest_addoption(parser):
    group = parser.getgroup("scipy_backend")
    group.addoption("--backend", choices=BACKENDS, default="numpy", help="the namespace")
    group.addoption("--most", type=int, default=10**9, help="run so many tests of a file, chosen by their names")
    group.addoption("--found", help="file for the outcomes, a line of JSON for each test")
    group.addoption("--eager", action="store_true", help="do not wrap functions in `jax.jit`, as SciPy does")
    group.addoption("--frozen", action="store_true", help="hloom without item assignment")


def pytest_configure(config):
    if config.option.found:
        Path(config.option.found).write_text("")


def _namespace(options):
    if options.backend == "hloom.numpy":
        import hloom as hl

        hl.config.enable_x64 = True
        hl.config.item_assignment = not options.frozen
    elif options.backend == "jax.numpy":
        import jax

        jax.config.update("jax_enable_x64", True)
    return importlib.import_module(options.backend)


@pytest.hookimpl(tryfirst=True)
def pytest_plugin_registered(plugin, manager):
    """Replaces the fixture before pytest reads it from SciPy's conftest."""
    if getattr(plugin, "__name__", "") != "scipy.conftest":
        return
    from scipy._lib._array_api import array_namespace, default_xp
    from scipy._lib.array_api_extra.testing import patch_lazy_xp_functions

    options = manager.getplugin("scipy_backend").options
    backend = _namespace(options)

    @pytest.fixture(params=[pytest.param(backend, id="xp", marks=pytest.mark.array_api_backends)])
    def xp(request):
        namespace = array_namespace(backend.empty(0))
        with default_xp(namespace):
            if options.eager:
                yield namespace
            else:
                with patch_lazy_xp_functions(request=request, xp=backend):
                    yield namespace

    plugin.xp = xp


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    early_config.pluginmanager.getplugin("scipy_backend").options = early_config.known_args_namespace


def pytest_collection_modifyitems(config, items):
    chosen, files = [], defaultdict(list)
    for item in items:
        if item.get_closest_marker("array_api_backends"):
            files[item.path].append(item)
    for tests in files.values():
        tests.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        chosen += sorted(tests[: config.option.most], key=lambda item: item.nodeid)
    items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _write(report)


def _write(report):
    text = "" if report.passed else str(report.longrepr)
    expected = hasattr(report, "wasxfail")
    outcome = "skipped" if expected and not report.passed else report.outcome
    if options.found:
        with open(options.found, "a") as file:
            file.write(
                json.dumps({"test": report.nodeid, "outcome": outcome, "s": report.duration, "text": text}) + "\n"
            )


options = None
