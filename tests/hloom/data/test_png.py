"""PNG decoded without Pillow: the same pixels; what it leaves to Pillow; damaged files."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest

from hloom import data
from hloom.data.png import decode_png
from hloom.errors import DataError

images = pytest.importorskip("PIL.Image", reason="Pillow judges: pip install 'hloom[train]'")
pytestmark = pytest.mark.quick
CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}


def pixels(mode: str, height: int, width: int, seed: int = 0) -> np.ndarray:
    steps = np.random.default_rng(seed).integers(-3, 4, (height, width, CHANNELS[mode]))
    found = np.cumsum(steps, axis=seed % 2).astype(np.uint8)
    return found[..., 0] if mode == "L" else found


def encoded(array: np.ndarray, mode: str, **options) -> bytes:
    file = io.BytesIO()
    images.fromarray(array, mode).save(file, "png", **options)
    return file.getvalue()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def filtered(array: np.ndarray, kind: int) -> bytes:
    """A file whose rows all have one filter."""
    height, width, channels = array.shape
    rows = array.reshape(height, -1).astype(np.int64)
    out = bytearray()
    for k, row in enumerate(rows):
        above = rows[k - 1] if k else np.zeros_like(row)
        left, corner = (np.concatenate([np.zeros(channels, np.int64), v[:-channels]]) for v in (row, above))
        guess = left + above - corner
        near = [abs(guess - v) for v in (left, above, corner)]
        paeth = np.where((near[0] <= near[1]) & (near[0] <= near[2]), left, np.where(near[1] <= near[2], above, corner))
        taken = [np.zeros_like(row), left, above, (left + above) // 2, paeth][kind]
        out += bytes([kind]) + ((row - taken) % 256).astype(np.uint8).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    body = zlib.compress(bytes(out))
    parts = chunk(b"IDAT", body[:20]) + chunk(b"IDAT", body[20:])  # divided, as large ones are
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + parts + chunk(b"IEND", b"")


@pytest.mark.parametrize("mode", CHANNELS)
@pytest.mark.parametrize("shape", [(16, 24), (1, 1), (1, 9), (9, 1)])
def test_the_pixels_are_pillow_s(mode, shape):
    for seed in (0, 1):
        wanted = pixels(mode, *shape, seed=seed)
        file = encoded(wanted, mode)
        np.testing.assert_array_equal(decode_png(file), wanted)
        np.testing.assert_array_equal(data.decode_image(file), np.asarray(images.open(io.BytesIO(file))))


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_each_filter(kind, channels):
    array = np.random.default_rng(kind).integers(0, 256, (7, 5, channels)).astype(np.uint8)
    file = filtered(array, kind)
    wanted = array[..., 0] if channels == 1 else array
    np.testing.assert_array_equal(decode_png(file), wanted)
    np.testing.assert_array_equal(np.asarray(images.open(io.BytesIO(file))), wanted)


def test_other_kinds_are_left_to_pillow():
    array = pixels("RGB", 8, 8)
    palette = images.fromarray(array).quantize(16)
    deep = images.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000)
    for image in (palette, deep, images.fromarray(array[..., 0] > 2)):
        file = io.BytesIO()
        image.save(file, "png")
        assert decode_png(file.getvalue()) is None
        wanted = image.convert("RGB") if image.mode == "P" else image
        np.testing.assert_array_equal(data.decode_image(file.getvalue()), np.asarray(wanted))
    file = encoded(array, "RGB")
    assert decode_png(file, mode="L") is None and decode_png(file, (4, 4)) is None
    assert data.decode_image(file, (4, 4), "L").shape == (4, 4)
    np.testing.assert_array_equal(data.decode_image(file, (8, 8), "RGB"), array)


def test_damaged_files_are_errors():
    array = pixels("RGB", 9, 7)
    file = encoded(array, "RGB")
    assert decode_png(filtered(array, 0).replace(b"IDAT", b"IDAX")) is None
    for cut in range(len(file) - 12):
        assert decode_png(file[:cut]) is None
    random = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(file)
        changed[random.integers(8, len(file) - 12)] ^= 1 << int(random.integers(8))
        found = decode_png(bytes(changed))
        assert found is None or found.shape == array.shape
    with pytest.raises(DataError, match="decoding an image"):
        data.decode_image(file[:60])


def test_sizes_are_checked_before_memory_is_taken():
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1 << 30, 1 << 30, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    assert decode_png(bomb) is None
    small = struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0)  # more rows than it says
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", small) + chunk(b"IDAT", zlib.compress(bytes(10_000_000)))
    assert decode_png(file + chunk(b"IEND", b"")).shape == (4, 4, 3)
