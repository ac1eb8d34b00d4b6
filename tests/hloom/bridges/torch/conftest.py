"""Tests of the torch backend need torch: `pip install hloom[torch]`."""

import importlib.util

import pytest


def pytest_collection_modifyitems(items):
    if importlib.util.find_spec("torch") is None:
        for item in items:
            if "bridges/torch" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="torch is not installed: pip install 'hloom[torch]'"))


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Each test compiles anew, with the same random numbers."""
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
