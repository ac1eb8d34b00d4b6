"""Adaptive batching, and models as the command line names them; both without MLServer."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from hloom.errors import ArgumentError
from hloom.serving.batching import Batcher
from hloom.serving.options import Model, parse_model

pytestmark = pytest.mark.quick


def test_requests_that_come_close_together_are_one_call_and_get_their_own_rows():
    calls = []

    async def double(arrays):
        calls.append(len(arrays[0]))
        await asyncio.sleep(0)
        return [arrays[0] * 2, arrays[0].sum(axis=1)]

    async def clients():
        batcher = Batcher(double, most=8, wait=0.02)
        inputs = [np.full((1 + k % 2, 3), k, np.float32) for k in range(8)]
        found = await asyncio.gather(*[batcher([x]) for x in inputs])
        for x, (twice, total) in zip(inputs, found, strict=True):
            assert np.array_equal(twice, x * 2) and np.array_equal(total, x.sum(axis=1))
        alone = await batcher([np.ones((1, 3))])
        assert alone[0].tolist() == [[2, 2, 2]]

    asyncio.run(clients())
    assert sum(calls) == 13 and max(calls) <= 8 and len(calls) <= 4


def test_an_error_reaches_all_of_its_batch_and_nobody_else():
    async def fail(arrays):
        if (arrays[0] < 0).any():
            raise ValueError("negative")
        return arrays

    async def clients():
        batcher = Batcher(fail, most=2, wait=0.01)
        first = asyncio.gather(batcher([-np.ones((1, 1))]), batcher([np.ones((1, 1))]), return_exceptions=True)
        assert [type(e) for e in await first] == [ValueError, ValueError]
        assert (await batcher([np.ones((2, 1))]))[0].shape == (2, 1)
        gone = asyncio.ensure_future(batcher([np.ones((1, 1))]))
        await asyncio.sleep(0)
        gone.cancel()  # a client that leaves does not disturb the others of its batch
        assert (await batcher([np.ones((1, 1))]))[0].tolist() == [[1]]

    asyncio.run(clients())


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("build/libmnist.so", Model("mnist", Path("build/libmnist.so"))),
        ("a@2=x/liby.so:predict", Model("a", Path("x/liby.so"), "predict", "2")),
        ("a=y.so", Model("a", Path("y.so"))),
    ],
)
def test_models_of_the_command_line(text, model):
    assert parse_model(text) == model


def test_an_empty_model_is_refused():
    with pytest.raises(ArgumentError, match=r"\[NAME\[@VERSION\]=\]PATH\[:FUNCTION\]"):
        parse_model("")
