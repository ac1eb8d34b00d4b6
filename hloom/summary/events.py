"""Values as the messages of TensorBoard's event files.

Each function returns a `Summary.Value`, in the form that TensorBoard's plugins define for TensorFlow 2: a tensor and
the metadata of the plugin that shows it. The messages are those of the package `tensorboard`, which is imported at the
first use.

Source: github.com/tensorflow/tensorboard, the `metadata.py` of each plugin.
"""

from __future__ import annotations

import io
import math
import wave
from collections.abc import Iterable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from hloom.errors import DTypeError, ShapeError, import_extra

BUCKETS = 30  # of a histogram: TensorFlow's default


_MODULES = {
    **{
        name: f"tensorboard.compat.proto.{name}"
        for name in (
            "attr_value_pb2", "config_pb2", "event_pb2", "graph_pb2", "step_stats_pb2", "summary_pb2", "tensor_pb2",
            "tensor_shape_pb2", "types_pb2",
        )
    },
    **{
        name: f"tensorboard.plugins.{name}.metadata"
        for name in ("audio", "histogram", "hparams", "image", "scalar", "text")
    },
    "image_files": "PIL.Image",  # Pillow, a dependency of tensorboard
    "hparams_api": "tensorboard.plugins.hparams.api_pb2",
    "hparams_data": "tensorboard.plugins.hparams.plugin_data_pb2",
    "records": "tensorboard.summary.writer.record_writer",
}  # fmt: skip


@cache
def tensorboard() -> SimpleNamespace:
    """The modules of the package `tensorboard` that write events, by the names above; their import takes a quarter of a
    second. Raises UnsupportedError if the package is not installed."""
    asked = "event files of the package tensorboard (Writer(folder, events=False, lines='jsonl') does without)"
    return SimpleNamespace(**{name: import_extra(asked, "train", module) for name, module in _MODULES.items()})


def _value(tag: str, tensor, metadata):
    return tensorboard().summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)


def _floats(array: np.ndarray):
    """A tensor of float32, row by row."""
    tb = tensorboard()
    dims = [tb.tensor_shape_pb2.TensorShapeProto.Dim(size=n) for n in array.shape]
    return tb.tensor_pb2.TensorProto(
        dtype=tb.types_pb2.DT_FLOAT,
        tensor_shape=tb.tensor_shape_pb2.TensorShapeProto(dim=dims),
        tensor_content=np.ascontiguousarray(array, np.float32).tobytes(),
    )


def _strings(values: list[bytes], *shape: int):
    tb = tensorboard()
    dims = [tb.tensor_shape_pb2.TensorShapeProto.Dim(size=n) for n in shape]
    return tb.tensor_pb2.TensorProto(
        dtype=tb.types_pb2.DT_STRING,
        tensor_shape=tb.tensor_shape_pb2.TensorShapeProto(dim=dims),
        string_val=values,
    )


def scalar(tag: str, value: float):
    """A number."""
    return _value(tag, _floats(np.asarray(value)), tensorboard().scalar.create_summary_metadata("", ""))


def buckets(values: np.ndarray, count: int = BUCKETS) -> np.ndarray:
    """f64[count, 3]: the left and right edge of each bucket of equal width, and how many values it contains.

    Values that are not finite are left out. Equal values are all in the last bucket, as TensorBoard expects.
    """
    values = values.reshape(-1)
    values = values[np.isfinite(values)].astype(np.float64)
    if not values.size:
        return np.zeros((count, 3))
    low, high = values.min(), values.max()
    if low == high:
        rows = np.full((count, 3), [low, high, 0.0])
        rows[-1, 2] = values.size
        return rows
    counts, edges = np.histogram(values, count, (low, high))
    return np.stack([edges[:-1], edges[1:], counts], axis=1)


def histogram(tag: str, values: np.ndarray, count: int = BUCKETS):
    """How values are distributed."""
    return _value(tag, _floats(buckets(values, count)), tensorboard().histogram.create_summary_metadata("", ""))


def pictures(asked: str, values: Any) -> np.ndarray:
    """u8[n, height, width, channels]: images in encoded form.

    values: [height, width], [height, width, channels] or [n, height, width, channels] of 1 (grey), 3 (RGB) or 4 (RGBA)
    channels; u8, or floats from 0 to 1. Raises ShapeError, DTypeError.
    """
    array = np.asarray(values)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim == 3:
        array = array[None]
    if array.ndim != 4 or array.shape[-1] not in (1, 3, 4) or 0 in array.shape:
        raise ShapeError(
            f"{asked} takes [height, width], [height, width, channels] or [n, height, width, channels], with 1, 3 or 4 "
            "channels",
            f"the shape {list(np.shape(values))}",
            "move the channels to the end: hnp.moveaxis(x, 1, -1)" if array.ndim == 4 else "reshape the pictures",
        )
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind in "iu":
        raise DTypeError(
            f"{asked} takes u8 from 0 to 255, or floats from 0 to 1", f"{array.dtype}", "convert it: x.astype(np.uint8)"
        )
    return (np.clip(np.nan_to_num(array.astype(np.float32)), 0, 1) * 255 + 0.5).astype(np.uint8)


def png(picture: np.ndarray) -> bytes:
    """A u8[height, width, channels] as a PNG file."""
    file = io.BytesIO()
    tensorboard().image_files.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture).save(file, "PNG")
    return file.getvalue()


def encoded_images(tag: str, width: int, height: int, files: list[bytes]):
    """PNG files, which TensorBoard shows side by side."""
    tb = tensorboard()
    content = [str(width).encode(), str(height).encode(), *files]
    return _value(tag, _strings(content, len(content)), tb.image.create_summary_metadata("", ""))


def images(tag: str, array: np.ndarray):
    """u8[n, height, width, channels]: pictures that TensorBoard shows side by side."""
    return encoded_images(tag, array.shape[2], array.shape[1], [png(picture) for picture in array])


def figure(tag: str, drawing):
    """A figure of matplotlib."""
    file = io.BytesIO()
    drawing.savefig(file, format="png")
    width, height = (int(n) for n in drawing.get_size_inches() * drawing.dpi)
    return encoded_images(tag, width, height, [file.getvalue()])


def sounds(asked: str, values: Any) -> np.ndarray:
    """f32[n, samples, channels] from [samples], [samples, channels] or [n, samples, channels]. Raises ShapeError."""
    array = np.asarray(values, np.float32)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or not 1 <= array.shape[-1] <= 2:
        raise ShapeError(
            f"{asked} takes [samples], [samples, channels] or [n, samples, channels], with 1 or 2 channels",
            f"the shape {list(np.shape(values))}",
            "move the channels to the end: hnp.moveaxis(x, -2, -1)",
        )
    return array


def wav(samples: np.ndarray, rate: int) -> bytes:
    """f32[samples, channels] from -1 to 1 as a WAV file of 16 bits a sample. rate: samples a second."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(samples.shape[1])
        out.setsampwidth(2)
        out.setframerate(rate)
        scaled = np.clip(np.nan_to_num(samples), -1, 1) * 32767
        out.writeframes(np.round(scaled).astype("<i2").tobytes())
    return file.getvalue()


def audio(tag: str, array: np.ndarray, rate: int):
    """f32[n, samples, channels]: sounds that TensorBoard plays."""
    tb = tensorboard()
    content = [piece for sound in array for piece in (wav(sound, rate), b"")]  # b"": no label
    metadata = tb.audio.create_summary_metadata("", "", tb.audio.Encoding.Value("WAV"))
    return _value(tag, _strings(content, len(array), 2), metadata)


def text(tag: str, content: str | Iterable[str]):
    """Markdown; several texts are a table."""
    several = not isinstance(content, str)
    values = [str(c).encode() for c in (content if several else [content])]
    shape = (len(values),) if several else ()
    return _value(tag, _strings(values, *shape), tensorboard().text.create_summary_metadata("", ""))


def hparams(values: Mapping[str, Any], metrics: Iterable[str], group: str, now: float) -> list:
    """Summaries for the hyperparameters of a run: the columns of TensorBoard's table, their values, and the status of
    success.

    values: numbers, bools and texts; others are shown as text. metrics: the tags of scalars that become columns.
    """
    tb = tensorboard()
    api, data = tb.hparams_api, tb.hparams_data
    start = data.SessionStartInfo(group_name=group, start_time_secs=now)
    infos = []
    for name, value in values.items():
        if isinstance(value, bool | np.bool_):
            start.hparams[name].bool_value = bool(value)
            kind = api.DATA_TYPE_BOOL
        elif isinstance(value, int | float | np.number) and not math.isnan(float(value)):
            start.hparams[name].number_value = float(value)
            kind = api.DATA_TYPE_FLOAT64
        else:
            start.hparams[name].string_value = str(value)
            kind = api.DATA_TYPE_STRING
        infos.append(api.HParamInfo(name=name, type=kind))
    columns = [api.MetricInfo(name=api.MetricName(tag=tag)) for tag in metrics]
    experiment = api.Experiment(hparam_infos=infos, metric_infos=columns, time_created_secs=now)
    end = data.SessionEndInfo(status=api.STATUS_SUCCESS, end_time_secs=now)

    def of(tag, **content):
        metadata = tb.hparams.create_summary_metadata(data.HParamsPluginData(**content))
        return _value(tag, tb.hparams.NULL_TENSOR, metadata)

    return [
        of(tb.hparams.EXPERIMENT_TAG, experiment=experiment),
        of(tb.hparams.SESSION_START_INFO_TAG, session_start_info=start),
        of(tb.hparams.SESSION_END_INFO_TAG, session_end_info=end),
    ]
