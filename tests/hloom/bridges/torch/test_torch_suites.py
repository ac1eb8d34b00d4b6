"""A small share of the suites that `tests/torch_suites.py` runs, the same in each run."""

import importlib.util
import itertools
import sys
import zlib
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
pytest.importorskip("expecttest", reason="torch's samples need expecttest: pip install expecttest")

PATH = Path(__file__).parents[3] / "torch_suites.py"


@pytest.fixture(scope="module")
def suites():
    spec = importlib.util.spec_from_file_location("torch_suites", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_suites"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suite", ["ops", "gradients", "dynamic"])
def test_a_share(suites, suite):
    chosen = [(name, job) for name, job in suites.SUITES[suite](None) if zlib.crc32(name.encode()) % 353 == 7]
    ran = 0
    for name, job in itertools.islice(chosen, 10):
        try:
            job()
            ran += 1
        except suites.torch_samples.NotThere:
            continue
        except Exception as error:
            error.add_note(f"{suite} {name}")
            raise
    assert ran >= (1 if suite == "dynamic" else 4)


def test_exceptions_have_reasons(suites):
    for suite in suites.SUITES:
        assert all(reason for reason in suites.exceptions(suite).values())
