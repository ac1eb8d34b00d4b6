"""The table of C functions is whole, and a jaxlib that calls others is noticed."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from silence import no_warnings

from hloom.bridges.pjrt import plugin
from hloom.runtime.pjrt import interface, table
from hloom.runtime.pjrt.functions import symbol

# Functions of the C interface that jaxlib 0.10 calls only for features that hloom's devices do not have: transfers
# between processes, streams of chunks, and programs compiled for topologies.
UNUSED = {
    "AsyncHostToDeviceTransferManager", "AsyncTrackingEvent", "CopyToDeviceStream", "Compile", "Client",
    "Buffer", "Device", "TopologyDescription",
}  # fmt: skip


def test_each_function_is_native_or_answered_by_python_or_says_that_it_is_missing():
    symbols = {function.name for function in table.FUNCTIONS}
    for name in interface.FUNCTIONS:
        assert (symbol(name) in symbols) != (name in plugin.IN_PYTHON), name
    assert set(plugin.IN_PYTHON) == set(table.IN_PYTHON)
    assert {name.split("_")[0] for name in table.MISSING} <= UNUSED


def test_arguments_have_words_for_functions_of_the_table_only():
    assert set(interface.FIELDS) <= set(interface.FUNCTIONS)
    assert len(set(interface.FUNCTIONS)) == len(interface.FUNCTIONS)


def test_the_installed_jaxlib_speaks_the_version_that_the_table_was_compared_with(run_jax):
    """A newer one may call functions that the table lacks: compare the headers, then state its version."""
    found = run_jax(
        """
        import os, sys
        os.dup2(1, 2)
        import jax
        jax.devices()
        """,
        TF_CPP_MIN_LOG_LEVEL="0",
    )
    versions = re.search(
        r"plugin has PJRT API version ([0-9.]+)\. The framework PJRT API version is ([0-9.]+)\.", found
    )
    assert versions is not None, found
    assert versions[1] == f"{interface.MAJOR}.{interface.MINOR}"
    assert versions[2] == f"{interface.MAJOR}.{interface.COMPARED_MINOR}"


def test_another_jaxlib_is_a_warning_that_names_both_versions():
    with no_warnings():
        plugin.check_version(".".join(map(str, interface.TESTED_JAXLIB)) + ".7")
    with pytest.warns(RuntimeWarning, match=r"tested with jaxlib .*, this is 9\.9\.1"):
        plugin.check_version("9.9.1")


def test_a_plugin_that_cannot_be_loaded_says_why(run_jax):
    said = run_jax(
        """
        import sys
        sys.modules["hloom.bridges.pjrt.memory"] = None  # as where a library is missing
        import jax
        try:
            jax.numpy.ones(3)
        except RuntimeError as error:
            print(error)
        """
    )
    assert "hloom's plugin for jax cannot be loaded" in said and "hloom.bridges.pjrt.memory" in said
    assert "where:  <string>:" in said and "pip install" in said


@pytest.mark.parametrize("missing", ["optree", "ml_dtypes"])
def test_a_missing_library_is_named_by_the_import_of_hloom(missing):
    """By an ImportError: jax takes a ModuleNotFoundError for a plugin that does not exist, and hides its cause."""
    program = f"import sys; sys.modules[{missing!r}] = None; import hloom"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr[done.stderr.index("\nImportError: ") :]
    assert "import of hloom" in last and f"pip install {missing}" in last
