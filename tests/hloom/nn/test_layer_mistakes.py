"""What users of other frameworks write of layers and losses: each mistake is named at the user's line."""

from __future__ import annotations

import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim, training
from hloom.errors import ArgumentError, DifferentiationError, ForeignAttributeError, ShapeError
from hloom.numpy.foreign import OF_LAYERS

pytestmark = pytest.mark.quick
KEY = hl.random.key(0)
IMAGES = hnp.ones((2, 8, 8, 3))


class Forward(nn.Module):
    w: hl.Array

    def forward(self, x):
        return x @ self.w


class Encoder(nn.Module):
    w: hl.Array

    def encode(self, x):
        return x @ self.w


MODEL, ENCODER, X = Forward(hnp.ones((3, 2))), Encoder(hnp.ones((3, 2))), hnp.ones((4, 3))
LINEAR = nn.Linear(3, 2, key=KEY)
MISTAKES = [
    (lambda: MODEL(X), ArgumentError, "the class has forward, and no __call__", "def __call__(self, ...)"),
    (lambda: nn.apply(MODEL, X), ArgumentError, "the class has forward", "def __call__"),
    (lambda: nn.apply(ENCODER, X), ArgumentError, "Encoder, which has no method __call__, only encode", "__call__"),
    (lambda: ENCODER.summary(X), ArgumentError, "Encoder, which has no method __call__", "__call__"),
    (lambda: nn.apply({"w": X}, X), ArgumentError, "dict", "__call__"),
    (lambda: LINEAR.parameters(), ForeignAttributeError, "'parameters'", "hl.tree.leaves(model)"),
    (lambda: LINEAR.train(), ForeignAttributeError, "'train'", "nn.apply(model, x, training=True, key=key)"),
    (lambda: LINEAR.state_dict(), ForeignAttributeError, "'state_dict'", "hl.checkpoints.save"),
    (lambda: nn.Conv(3, 8, 3), ArgumentError, "'key'", "pass key=hl.random.key(0)"),
    (lambda: nn.Conv(3, 8, 3, key=KEY)(IMAGES), ShapeError, "f32[2,8,8,3]", "2 window dimensions: Conv(3, 8, (3, 3))"),
    (lambda: nn.Conv(3, 8, 3, key=KEY)(hnp.ones((2, 3, 8, 8))), ShapeError, "f32[2,3,8,8]", "Conv(3, 8, (3, 3))"),
    (lambda: nn.Conv(3, 8, (3, 3), key=KEY, padding=1), ArgumentError, "padding=1", "padding=[(1, 1), (1, 1)]"),
    (lambda: nn.Conv(3, 8, (3, 3), key=KEY, padding=(2, 2)), ArgumentError, "padding=(2, 2)", "[(1, 1), (1, 1)]"),
    (lambda: nn.Conv(3, 8, 3, 1, 1), ArgumentError, "too many positional", "3 by position, the others by name: key="),
    (lambda: nn.Conv(3, 8, kernel_size=3, key=KEY), ArgumentError, "kernel_size=3", "did you mean window?"),
    (lambda: nn.Conv(3, 8, (3, 3), key=KEY, stride=2), ArgumentError, "stride=2", "did you mean strides?"),
    (lambda: nn.Conv("3", 8, 3, key=KEY), ArgumentError, "Conv('3', 8, 3", "see help(Conv)"),
    (lambda: nn.Linear(3, "8", key=KEY), ArgumentError, "Linear(3, '8'", "see help(Linear)"),
    (lambda: nn.Linear(3, 8, True), ArgumentError, "too many positional", "2 by position, the others by name: key="),
    (lambda: nn.Linear(in_features=3, outputs=2, key=KEY), ArgumentError, "in_features=3", "did you mean inputs?"),
    (lambda: nn.Dropout(p=0.5), ArgumentError, "p=0.5", "did you mean rate?"),
    (lambda: nn.max_pool(IMAGES, (2, 2), padding=1), ArgumentError, "padding=1", "padding=[(1, 1), (1, 1)]"),
]


@pytest.mark.parametrize("call,kind,found,repair", MISTAKES, ids=[str(c[0].__code__.co_firstlineno) for c in MISTAKES])
def test_mistakes(call, kind, found, repair):
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert found in error.found and repair in error.repair, str(error)
    assert error.source.file == __file__ and error.source.line == call.__code__.co_firstlineno


def test_what_a_class_has_of_its_own_is_its_own():
    class Own(Forward):
        train: int = nn.static()

        def __call__(self, x):
            return self.forward(x)

    own = Own(hnp.ones((3, 2)), 5)
    assert own(X).shape == (4, 2) and own.train == 5 and "train" in dir(own) and "parameters" not in dir(own)
    assert MODEL.forward(X).shape == (4, 2)
    assert not any(hasattr(LINEAR, name) for name in OF_LAYERS)
    with pytest.raises(TypeError, match="of the user's"):  # errors of a user's own __init__ stay as they are

        class Fails(nn.Module):
            w: hl.Array

            def __init__(self, size):
                raise TypeError(f"of the user's {size}")

        Fails(3)


def squares(model, batch):
    return model(batch) ** 2


@pytest.mark.parametrize(
    "loss,kind,found",
    [
        (squares, DifferentiationError, r"the loss 'squares' returns a scalar(.|\n)*f32\[4,2\](.|\n)*\.mean\(\)"),
        (lambda m, b: (squares(m, b).mean(), m(b)), ArgumentError, "a dict of scalars"),
        (lambda m, b: None, ArgumentError, "returns a scalar.*\n.*None"),
        (lambda m, b: hnp.argmax(m(b)), DifferentiationError, "'<lambda>': the function returns a float scalar"),
    ],
)
def test_a_loss_of_training_is_named_as_the_user_named_it(loss, kind, found):
    optimizer = optim.sgd(0.1)
    step = training.train_step(loss, optimizer)
    with pytest.raises(kind, match=found) as caught:
        step(training.TrainState.of(LINEAR, optimizer), X)
    assert "scaled" not in str(caught.value) and caught.value.source.file == __file__
