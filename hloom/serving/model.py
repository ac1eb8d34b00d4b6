"""MLServer's inference runtime for exported libraries: requests are checked, computed and answered."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
from mlserver import MLModel
from mlserver.errors import InferenceError
from mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    MetadataTensor,
    RequestInput,
    ResponseOutput,
)

from hloom.errors import HloomError
from hloom.export.loading import Library, Value
from hloom.serving.batching import Arrays, Batcher
from hloom.serving.checks import DATATYPES, checked_function, chosen_function
from hloom.serving.conversion import ConversionError, converted

IN_THE_LOOP = 0.001  # seconds: longer calls run in a thread, so that the server answers others meanwhile


class LibraryModel(MLModel):
    """A function of an exported library as a model of MLServer.

    Settings: `parameters.uri` is the library; `parameters.extra` has function, threads, max_batch, max_wait.
    """

    async def load(self) -> bool:
        """Loads the library and calls the function once, with zeros."""
        assert self.settings.parameters is not None
        extra: dict[str, Any] = self.settings.parameters.extra or {}
        self.library = Library(str(self.settings.parameters.uri), num_threads=int(extra.get("threads", 1)))
        self.function = chosen_function(self.library, extra.get("function"))
        checked_function(self.function)
        self.inputs = [_metadata(v) for v in self.function.inputs]
        self.outputs = [_metadata(v) for v in self.function.outputs]
        self._values = {v.name: v for v in self.function.inputs}
        most = int(extra.get("max_batch", 1))
        await self._warm_up(most)
        self._compute = Batcher(self._call, most, float(extra.get("max_wait", 0.002))) if most > 1 else self._call
        return True

    async def unload(self) -> bool:
        """Frees the library, after the calls that run."""
        await asyncio.get_running_loop().run_in_executor(None, self.library.close)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """The outputs of one request. Raises InferenceError (status 400) for inputs that do not fit."""
        given = {one.name: one for one in payload.inputs}
        if len(given) < len(payload.inputs) or set(given) != set(self._values):
            wrong = sorted(set(given) ^ set(self._values)) or ["an input that is there twice"]
            raise InferenceError(
                f"model {self.name}: {wrong[0]!r} is missing, unknown or repeated; it takes {', '.join(self._values)}"
            )
        arrays = [_array(self.name, given[name], value) for name, value in self._values.items()]
        self._same_sizes(arrays)
        wanted = {one.name for one in payload.outputs or ()}
        unknown = wanted - {v.name for v in self.function.outputs}
        if unknown:
            names = ", ".join(v.name for v in self.function.outputs)
            raise InferenceError(f"model {self.name}: there is no output {min(unknown)!r}; it has {names}")
        try:
            results = await self._compute(arrays)
        except HloomError as error:
            raise InferenceError(f"model {self.name}: {error.asked}: {error.found}") from None
        pairs = zip(self.function.outputs, results, strict=True)
        outputs = [_output(v.name, r) for v, r in pairs if not wanted or v.name in wanted]
        return InferenceResponse(model_name=self.name, model_version=self.version, id=payload.id, outputs=outputs)

    async def _call(self, arrays: Arrays) -> Arrays:
        if self._seconds <= IN_THE_LOOP:
            return self.function.run(arrays)
        return await asyncio.get_running_loop().run_in_executor(None, self.function.run, arrays)

    async def _warm_up(self, most: int) -> None:
        """One call with the least sizes and one with the largest batch: memory is there when the first client comes."""
        for batch in dict.fromkeys((1, most)):
            zeros = [np.zeros(self._sizes(value, batch), value.dtype) for value in self.function.inputs]
            began = time.perf_counter()
            self.function.run(zeros)
            self._seconds = time.perf_counter() - began

    def _sizes(self, value: Value, batch: int) -> tuple[int, ...]:
        sizes = []
        for axis, size in enumerate(value.shape):
            if isinstance(size, int):
                sizes.append(size)
            else:
                least, greatest = self.library.dimensions.get(size, (1, 1))
                sizes.append(min(max(batch, least), greatest) if axis == 0 else least)
        return tuple(sizes)

    def _same_sizes(self, arrays: Arrays) -> None:
        """A dimension has one size in all inputs, within its range, so that an invalid request does not fail its whole
        batch."""
        sizes: dict[str, int] = {}
        for array, value in zip(arrays, self.function.inputs, strict=True):
            for found, size in zip(array.shape, value.shape, strict=True):
                if isinstance(size, str):
                    least, most = self.library.dimensions.get(size, (found, found))
                    if sizes.setdefault(size, found) != found or not least <= found <= most:
                        raise InferenceError(
                            f"model {self.name}: {value.name} has {found} for {size}, "
                            + (
                                f"another input {sizes[size]}"
                                if sizes[size] != found
                                else f"{least} to {most} are possible"
                            )
                        )


def _metadata(value: Value) -> MetadataTensor:
    shape = [size if isinstance(size, int) else -1 for size in value.shape]
    return MetadataTensor(name=value.name, datatype=DATATYPES[value.dtype], shape=shape)


def _array(model: str, given: RequestInput, value: Value) -> np.ndarray:
    """An input as an array. Raises InferenceError for another datatype, shape or count of elements."""
    datatype = getattr(given.datatype, "value", given.datatype)
    if datatype != DATATYPES[value.dtype]:
        raise InferenceError(f"model {model}: {value.name} is {datatype}, it must be {DATATYPES[value.dtype]}")
    shape = list(given.shape)
    fits = len(shape) == len(value.shape) and all(
        isinstance(size, str) or size == found for size, found in zip(value.shape, shape, strict=True)
    )
    if not fits or any(size < 0 for size in shape):
        raise InferenceError(f"model {model}: {value.name} has the shape {shape}, it must be {list(value.shape)}")
    try:
        return converted(getattr(given.data, "root", given.data), value.dtype, shape)
    except ConversionError as error:
        raise InferenceError(f"model {model}: the data of {value.name} are not {datatype}: {error}") from None


def _output(name: str, array: np.ndarray) -> ResponseOutput:
    """JSON has neither NaN nor infinity: MLServer's encoder writes null for both. gRPC has them."""
    return ResponseOutput(
        name=name, datatype=DATATYPES[array.dtype], shape=list(array.shape), data=array.ravel().tolist()
    )
