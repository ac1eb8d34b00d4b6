"""The example with fit: it reads digits, and a second run goes on where the first one ended."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from hloom.training.loop import Run

pytest.importorskip("sklearn")
pytest.importorskip("tensorboard", reason="pip install 'hloom[train]'")
pytest.importorskip("matplotlib")
FILE = Path(__file__).parents[2] / "examples" / "train_digits.py"


def test_digits_are_trained_and_resumed(tmp_path):
    specification = importlib.util.spec_from_file_location("example_train_digits", FILE)
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    whole = example.train(tmp_path / "whole", epochs=6, progress=False)
    assert whole.metrics["eval_accuracy"] >= 0.95 and whole.step == 6 * 22

    class Killed(Exception):
        pass

    save = Run.save

    def save_and_die(loop, **options):
        save(loop, **options)
        if loop.epoch == 2:
            raise Killed

    Run.save = save_and_die
    try:
        with pytest.raises(Killed):
            example.train(tmp_path / "parts", epochs=6, progress=False)
    finally:
        Run.save = save
    found = example.train(tmp_path / "parts", epochs=6, progress=False)
    keys = [s.state._replace(key=hl.random.key_data(s.state.key)) for s in (found, whole)]
    for a, b in zip(*map(hl.tree.leaves, keys), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert (tmp_path / "parts" / "curves.png").exists() and list((tmp_path / "parts" / "summaries").iterdir())
