"""A small share of the suites that `tests/torch_suites.py` runs, the same in each run."""

import importlib.util
import itertools
import os
import sys
import time
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


def test_a_case_may_end_or_hang_its_process(suites):
    with pytest.raises(suites.ApartError, match="its process ended with 3"):
        suites._apart(lambda: os._exit(3), 60)
    with pytest.raises(suites.ApartError, match=r"not done in 0 s"):
        suites._apart(lambda: time.sleep(60), 0.2)
    with pytest.raises(suites.ApartError, match="KeyError: 'this'"):
        suites._apart(lambda: {}["this"], 60)
    with pytest.raises(suites.torch_samples.NotThere, match="no such"):
        suites._apart(lambda: _absent(suites), 60)
    assert suites._apart(lambda: 7, 60) == 7


def _absent(suites):
    raise suites.torch_samples.NotThere("no such model")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["gpt2", "clip"])
def test_an_architecture(suites, name):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    suites.torch_models_small.check_forward(name)


def test_sizes_that_hang_together_are_divided_together(suites):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    model, _, _ = suites.torch_models_small.built("llama")
    config = model.config
    assert config.hidden_size == config.num_attention_heads * config.head_dim
    assert sum(p.numel() for p in model.parameters()) < suites.torch_models_small.LARGEST
