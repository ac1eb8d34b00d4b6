"""The examples do what they say: real data, the quality that they assert, nothing allocated in a training step."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from example_scripts import help_of

import hloom as hl
import hloom.numpy as hnp
from hloom.runtime import buffer

pytest.importorskip("sklearn")
EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str):
    sys.path.insert(0, str(EXAMPLES))  # as for a script: examples may share a module
    specification = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    finally:
        sys.path.remove(str(EXAMPLES))
    return module


def test_digits_are_read():
    lines = []
    assert example("digits").train(report=lines.append) >= 0.97
    assert lines[0].startswith("epoch   1  loss") and len(lines) == 7


@pytest.mark.filterwarnings("ignore::hloom.errors.DonationWarning")
def test_a_training_step_allocates_nothing_after_the_first():
    digits = example("digits")
    images, labels, _, _ = (hnp.asarray(a[:32]) for a in digits.load())
    parameters = digits.initial_parameters()
    for _ in range(2):
        parameters, value = digits.train_step(parameters, images, labels)
    before = buffer.statistics()
    for _ in range(50):
        parameters, value = digits.train_step(parameters, images, labels)
    after = buffer.statistics()
    assert (after.bytes_allocated, after.misses) == (before.bytes_allocated, before.misses)
    assert np.isfinite(float(value))


def test_options_are_priced():
    error, speed, kernels = example("black_scholes").run(50_000, repeats=2, report=lambda line: None)
    assert error < 2e-6 and speed > 0 and kernels <= 2


def test_regression_arrives_at_least_squares():
    found, best, held = example("linear_regression").fit(1500, report=lambda line: None)
    assert abs(found - best) < 1e-3 and 0.5 < best < 0.6 and held > 0.35


def test_clusters_are_as_tight_as_scikit_learns():
    inertia, checked, theirs, purity = example("k_means").cluster(starts=4, report=lambda line: None)
    assert inertia == pytest.approx(checked, rel=2e-3)
    assert inertia <= 1.02 * theirs and purity > 0.7


def silent(line):
    pass


def test_lenet_reads():
    assert example("lenet").train(epochs=5, report=silent) >= 0.95


@pytest.mark.slow
def test_an_lstm_learns_more_than_pairs_of_characters():
    bits, bigram, text = example("character_lstm").train(steps=250, report=silent)
    assert bits < bigram - 0.6 and len(text) == 200 and len(set(text)) > 10


@pytest.mark.slow
def test_a_transformer_learns_more_than_pairs_of_characters():
    bits, bigram, text = example("transformer").train(steps=300, report=silent)
    assert bits < bigram and text.startswith("The value of the ")


def test_wide_and_deep_finds_tumours():
    accuracy, area, precision, recall = example("wide_and_deep").train(report=silent)
    assert accuracy >= 0.94 and area >= 0.98 and precision >= 0.9 and recall >= 0.9


def test_principal_components_are_scikit_learns():
    assert example("pca").analyse(report=silent) < 1e-3


def test_newton_arrives_where_scikit_learn_does():
    difference, steps, accuracy = example("logistic_regression").fit(report=silent)
    assert difference < 1e-3 and steps < 20 and accuracy >= 0.95


def test_a_gaussian_process_is_as_likely_as_scikit_learns():
    found, theirs, r2, inside = example("gaussian_process").fit(steps=80, report=silent)
    assert found < theirs + 0.5 and r2 > 0.35 and inside > 0.85


def test_a_neural_ode_reads_and_its_adjoint_is_the_gradient():
    ode = example("neural_ode")
    accuracy, steps = ode.train(epochs=6, report=silent)
    assert accuracy >= 0.93 and steps >= 2
    # dz/dt = w z: z(1) = z e^w, so that dz(1)/dw = z e^w.
    by_w, by_z = hl.grad(lambda w, z: hnp.sum(ode.flow(lambda w, z, t: w * z, w, z)), argnums=(0, 1))(
        hnp.asarray(0.5), hnp.asarray([1.0, 2.0])
    )
    assert float(by_w) == pytest.approx(3 * np.exp(0.5), rel=2e-3)
    np.testing.assert_allclose(np.asarray(by_z), np.exp(0.5), rtol=2e-3)


def test_records_are_read_fast_and_resumed():
    rate, seen, same = example("tfrecord_input").run(200, report=silent)
    assert same and seen.sum() == 20_000 and seen.min() > 1500 and rate > 2000


def test_towers_are_a_single_devices_step():
    accuracy, apart = example("towers").train(epochs=20, report=silent)
    assert accuracy >= 0.94 and apart < 1e-4


def test_a_layer_per_device_is_a_single_devices_step():
    accuracy, apart = example("layer_per_device").train(epochs=12, report=silent)
    assert accuracy >= 0.85 and apart < 1e-5


NAMES = sorted(p.stem for p in EXAMPLES.glob("*.py") if p.stem != "text_data")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "keras_digits"])
def test_every_example_has_help_and_dumps_or_parameters(name, monkeypatch, capsys):
    text = help_of(EXAMPLES / f"{name}.py", monkeypatch, capsys)
    assert "usage:" in text and "--" in text


@pytest.mark.slow
def test_the_example_of_keras_has_help():
    """In its own process: it chooses the backend of Keras and the platform of JAX."""
    pytest.importorskip("keras", reason="keras is not installed: pip install keras")
    done = subprocess.run([sys.executable, EXAMPLES / "keras_digits.py", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "usage:" in done.stdout and "--" in done.stdout


@pytest.mark.slow
def test_digits_dump_graphs_and_kernels(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / "digits.py", "--dump", tmp_path / "dump"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "accuracy on the held-out fifth: 9" in done.stdout
    names = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert "module_0000_train_step.00_traced.hlo" in names and "module_0000_train_step.kernels.py" in names
    assert not [n for n in names if n.endswith(".partial")]
