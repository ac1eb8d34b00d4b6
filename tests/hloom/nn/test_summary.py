"""How modules are shown: names in paths, the tree, the table, and the names of parameters in programs."""

from __future__ import annotations

import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import nn
from hloom.jax.tree_util import keystr, tree_flatten_with_path

KEY = hl.random.key(0)


@pytest.fixture
def model():
    first, second = hl.random.split(KEY)
    return nn.Sequential(nn.Linear(3, 4, key=first), nn.relu, nn.Linear(4, 2, key=second))


def test_paths_of_a_module_have_names(model):
    pairs, structure = tree_flatten_with_path(model)
    names = [keystr(path) for path, _ in pairs]
    assert names == [".layers[0].kernel", ".layers[0].bias", ".layers[2].kernel", ".layers[2].bias"]
    assert structure == hl.tree.structure(model)
    scaled = hl.tree.map_with_path(lambda path, x: x * 2 if "kernel" in keystr(path) else x, model)
    assert (scaled.layers[0].kernel == 2 * model.layers[0].kernel).all()


def test_print_shows_a_tree(model):
    lines = str(model).splitlines()
    assert lines[0] == "Sequential()  26 parameters"
    assert lines[1] == "├─ layers[0]: Linear()  16 parameters"
    assert lines[2] == "│  ├─ kernel: f32[3,4]" and lines[3] == "│  └─ bias: f32[4]"
    assert lines[4] == "├─ layers[1]: Lambda(function=relu)" and lines[5] == "└─ layers[2]: Linear()  10 parameters"
    assert max(map(len, str(nn.TransformerBlock(8, 2, key=KEY)).splitlines())) < 60


def test_summary(model):
    table = model.summary(hl.ShapeDtypeStruct((5, 3), "f32"))
    rows = [(r.path, r.layer, r.output, r.parameters) for r in table.rows]
    assert rows == [
        ("layers[0]", "Linear", "f32[5,4]", 16),
        ("layers[1]", "Lambda", "f32[5,4]", 0),
        ("layers[2]", "Linear", "f32[5,2]", 10),
        ("", "Sequential", "f32[5,2]", 26),
    ]
    assert table.rows[0].flops == 2 * 5 * 4 * 3 + 5 * 4 and table.flops == sum(r.flops for r in table.rows[:3])
    assert table.parameters == 26 and table.bytes == 104
    text = str(table)
    assert "layers[0]" in text and "f32[5,4]" in text and "26 parameters, 104 bytes" in text


def test_summary_of_nested_layers():
    block = nn.TransformerBlock(8, 2, key=KEY, dropout=0.1)
    table = block.summary(hnp.ones((1, 4, 8)), is_causal=True)
    paths = [r.path for r in table.rows]
    parts = [f"attention.{name}" for name in ("query", "key", "value", "output")]
    assert paths[:6] == ["first_norm", *parts, "attention"]
    assert table.rows[-1].parameters == sum(x.size for x in hl.tree.leaves(block))


@pytest.mark.parametrize("wrap", [lambda f: f, hl.grad, hl.value_and_grad])
def test_parameters_of_programs_have_the_names_of_paths(model, wrap):
    def loss(model, x):
        return model(x).sum()

    lowered = hl.jit(wrap(loss)).lower(model, hnp.ones((5, 3)))
    names = [p.hint for p in lowered.module.entry.parameters]
    assert names == [
        "model_layers_0_kernel", "model_layers_0_bias", "model_layers_2_kernel", "model_layers_2_bias", "x",
    ]  # fmt: skip
    assert "%model_layers_0_kernel" in lowered.as_text()
    assert "model_layers_0_kernel f32[3,4]" in lowered.compile().source()


def test_named_scopes_are_in_the_metadata():
    @hl.jit
    def step(x):
        with hl.named_scope("encoder"):
            h = hnp.sin(x)
            with hl.named_scope("head"):
                y = hnp.cos(h)
        return y + 1

    text = step.lower(1.0).as_text(metadata=True)
    assert 'op_name="encoder/step/h"' in text and 'op_name="encoder/head/step/y"' in text and 'op_name="step"' in text
    again = hl.named_call(lambda x: hnp.exp(x), name="part")
    assert 'op_name="part/' in hl.jit(again).lower(1.0).as_text(metadata=True)
    module = hl.from_hlo(text)
    assert 'op_name="encoder/head/step/y"' in module.lower(hnp.asarray(1.0)).as_text(metadata=True)
