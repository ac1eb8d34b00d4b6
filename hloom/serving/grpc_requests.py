"""gRPC's side of requests: raw contents as arrays, and malformed requests as errors of the client."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
from mlserver.errors import InferenceError
from mlserver.grpc.converters import ModelInferRequestConverter, ModelInferResponseConverter
from mlserver.grpc.servicers import InferenceServicer
from mlserver.grpc.utils import handle_mlserver_error, to_headers
from mlserver.types import InferenceRequest, TensorData
from mlserver.utils import insert_headers

from hloom.serving.checks import DATATYPES
from hloom.serving.conversion import ConversionError, from_bytes

__all__ = ["Servicer"]

_DTYPES: dict[str, np.dtype] = {kind: dtype for dtype, kind in DATATYPES.items()}


class Servicer(InferenceServicer):
    """MLServer's, which packs arrays by way of lists and answers INTERNAL where a request is malformed."""

    @handle_mlserver_error
    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 (gRPC's name)
        """One request. Raises InferenceError (INVALID_ARGUMENT) for an invalid one."""
        raw = bool(request.raw_input_contents)
        payload = _payload(request)
        insert_headers(payload, to_headers(context))
        result = await self._data_plane.infer(payload=payload, name=request.model_name, version=request.model_version)
        self._SetTrailingMetadata(result, context)
        # The protocol has no other contents for FP16.
        raw = raw or any(getattr(one.datatype, "value", one.datatype) == "FP16" for one in result.outputs)
        return ModelInferResponseConverter.from_types(result, use_raw=raw)

    async def ModelStreamInfer(self, requests: Any, context: Any) -> Any:  # noqa: N802 (gRPC's name)
        """No library streams."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "exported libraries answer single requests: ModelInfer")
        yield  # which makes it the generator that gRPC expects


def _payload(request: Any) -> InferenceRequest:
    raws = list(request.raw_input_contents)
    request.ClearField("raw_input_contents")
    try:
        payload = ModelInferRequestConverter.to_types(request)
    except (TypeError, ValueError, KeyError, IndexError) as error:  # parameters of unknown forms
        raise InferenceError(f"model {request.model_name}: {error}") from None
    if not raws:
        return payload
    if len(raws) != len(payload.inputs) or any(one.data.root for one in payload.inputs):
        raise InferenceError(
            f"model {request.model_name}: {len(raws)} raw contents for {len(payload.inputs)} inputs; either all inputs "
            "are there or none"
        )
    for one, data in zip(payload.inputs, raws, strict=True):
        dtype = _DTYPES.get(str(one.datatype))
        if dtype is None:
            raise InferenceError(f"model {request.model_name}: {one.name} has the datatype {one.datatype!r}")
        try:
            one.data = TensorData.model_construct(root=from_bytes(data, dtype))
        except ConversionError as error:
            raise InferenceError(f"model {request.model_name}: the raw contents of {one.name}: {error}") from None
    return payload
