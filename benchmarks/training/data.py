"""Input: records and images per second, decoded, shuffled and in batches, against other loaders in the same run.

    python -m benchmarks.training.data --seconds 2 --rounds 3

All read the same files: 28 x 28 images with labels as tf.train.Example in TFRecord, arrays, small PNG and JPEG. Batches
of 100; a window of 10,000 where they are shuffled. The loaders take turns, and the best round of each counts, as other
programs share the machine; processor time is that of the main process, without workers. Peers that are not installed
are left out: grain, torch, tfrecord (with protobuf), crc32c.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import itertools
import random
import struct
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import data, nn

COUNT, BATCH, WINDOW, PNGS, JPEGS = 60_000, 100, 10_000, 4_000, 1_000
FEATURES = {"image": data.Bytes((28, 28), "uint8"), "label": data.Int64()}


def write(folder: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (COUNT, 28, 28), np.uint8)
    labels = rng.integers(0, 10, COUNT)
    data.write_tfrecord(folder / "train.tfrecord", {"image": images, "label": labels}, FEATURES)
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
    if installed("PIL"):
        from PIL import Image

        for label in range(10):
            (folder / "png" / str(label)).mkdir(parents=True)
        smooth = np.cumsum(rng.integers(-3, 4, (PNGS, 64, 64, 3)), axis=1).astype(np.uint8)
        for k, picture in enumerate(smooth):
            Image.fromarray(picture).save(folder / "png" / str(k % 10) / f"{k}.png")
        (folder / "jpg").mkdir()
        for k, picture in enumerate(smooth[:JPEGS]):
            Image.fromarray(picture).resize((256, 256)).save(folder / "jpg" / f"{k}.jpg")


def installed(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


def batched(records: Iterable):
    images, labels = [], []
    for image, label in records:
        images.append(image)
        labels.append(label)
        if len(labels) == BATCH:
            yield np.stack(images), np.array(labels)
            images, labels = [], []


def windowed(records: Iterable):
    pool: list = []
    rng = random.Random(0)
    for record in records:
        if len(pool) < WINDOW:
            pool.append(record)
            continue
        slot = rng.randrange(WINDOW)
        yield pool[slot]
        pool[slot] = record
    rng.shuffle(pool)
    yield from pool


# --- loaders: functions that return an iterator of batches --------------------------------------------------------


def hloom_records(folder: Path):
    return data.tfrecord(folder / "train.tfrecord", FEATURES)


def hloom_images(files: Path, **options):
    return data.images(files, **options).shuffle().repeat().batch(BATCH)


def opened(path: Path, size: tuple[int, int] | None) -> np.ndarray:
    from PIL import Image

    image = Image.open(path).convert("RGB")
    return np.asarray(image if size is None else image.resize(size))


def torch_images(folder: Path, workers: int, kind: str = "png", size: tuple[int, int] | None = None):
    import torch

    paths = sorted((folder / kind).rglob(f"*.{kind}"))

    class Pictures(torch.utils.data.Dataset):
        def __len__(self):
            return len(paths)

        def __getitem__(self, index):
            return opened(paths[index], size).copy()

    loader = torch.utils.data.DataLoader(
        Pictures(), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    return itertools.chain.from_iterable(itertools.repeat(loader))


def torch_arrays(folder: Path, workers: int):
    import torch

    images, labels = (torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("images", "labels"))
    dataset = torch.utils.data.TensorDataset(images, labels)
    return torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=workers)


def parsed_with_protobuf(record: bytes):
    from tfrecord import example_pb2

    feature = example_pb2.Example.FromString(record).features.feature
    image = np.frombuffer(feature["image"].bytes_list.value[0], np.uint8).reshape(28, 28)
    return image, feature["label"].int64_list.value[0]


def grain_records(folder: Path, parse: bool):
    import grain
    from grain.experimental import TFRecordIterDataset

    dataset = TFRecordIterDataset(str(folder / "train.tfrecord"))
    if not parse:
        return iter(dataset)
    dataset = grain.experimental.WindowShuffleIterDataset(dataset.map(parsed_with_protobuf), window_size=WINDOW, seed=0)
    return iter(dataset.batch(BATCH))


def grain_arrays(folder: Path):
    import grain

    images, labels = (np.load(folder / f"{name}.npy") for name in ("images", "labels"))
    indices = grain.MapDataset.range(COUNT).shuffle(seed=0)
    return iter(indices.map(lambda k: (images[k], labels[k])).batch(BATCH).to_iter_dataset())


def grain_images(folder: Path, kind: str = "png", size: tuple[int, int] | None = None):
    import grain

    paths = sorted((folder / kind).rglob(f"*.{kind}"))

    def load(k):
        return opened(paths[k], size)

    dataset = grain.MapDataset.range(len(paths)).shuffle(seed=0).repeat().map(load).batch(BATCH)
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)))


def framed_with_crc32c(folder: Path):
    from crc32c import crc32c

    def masked(text):
        crc = crc32c(text)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    content = io.BytesIO((folder / "train.tfrecord").read_bytes()).getbuffer()
    at = 0
    while at < len(content):
        (length,), (crc,) = struct.unpack_from("<Q", content, at), struct.unpack_from("<I", content, at + 8)
        record = content[at + 12 : at + 12 + length]
        assert crc == masked(content[at : at + 8])
        assert struct.unpack_from("<I", content, at + 12 + length)[0] == masked(record)
        yield record
        at += 16 + length


def tfrecord_wheel(folder: Path):
    from tfrecord.torch.dataset import TFRecordDataset

    description = {"image": "byte", "label": "int"}
    records = TFRecordDataset(str(folder / "train.tfrecord"), None, description, shuffle_queue_size=WINDOW)
    return batched((np.frombuffer(e["image"], np.uint8).reshape(28, 28), e["label"][0]) for e in records)


Loader = tuple[str, tuple[str, ...], Callable[[Path], Iterable], int]
TABLES: dict[str, list[Loader]] = {
    "verified records of TFRecord, as bytes": [
        ("hloom", (), lambda f: data.tfrecord(f / "train.tfrecord"), 1),
        ("the crc32c wheel", ("crc32c",), framed_with_crc32c, 1),
        ("grain (no checksums)", ("grain",), lambda f: grain_records(f, False), 1),
    ],
    "TFRecord: parsed, shuffled by a window of 10,000, batches of 100": [
        ("hloom", (), lambda f: hloom_records(f).shuffle(WINDOW).batch(BATCH), BATCH),
        ("hloom, prefetch", (), lambda f: hloom_records(f).shuffle(WINDOW).batch(BATCH).prefetch(4), BATCH),
        ("hloom, not shuffled", (), lambda f: hloom_records(f).batch(BATCH), BATCH),
        ("crc32c and protobuf", ("crc32c", "tfrecord"),
         lambda f: batched(windowed(map(parsed_with_protobuf, map(bytes, framed_with_crc32c(f))))), BATCH),
        ("grain and protobuf", ("grain", "tfrecord"), lambda f: grain_records(f, True), BATCH),
        ("the tfrecord wheel, torch", ("tfrecord", "torch"), tfrecord_wheel, BATCH),
    ],
    "arrays in memory: all shuffled, batches of 100": [
        ("hloom", (), lambda f: data.npy((f / "images.npy", f / "labels.npy")).shuffle().batch(BATCH), BATCH),
        ("torch DataLoader", ("torch",), lambda f: torch_arrays(f, 0), BATCH),
        ("torch DataLoader, 2 workers", ("torch",), lambda f: torch_arrays(f, 2), BATCH),
        ("grain", ("grain",), grain_arrays, BATCH),
    ],
    "JPEG of 256 x 256: decoded, 128 x 128, shuffled, batches of 100": [
        ("hloom", ("PIL",), lambda f: hloom_images(f / "jpg/*.jpg", size=(128, 128)), BATCH),
        ("hloom, 2 processes", ("PIL",), lambda f: hloom_images(f / "jpg/*.jpg", size=(128, 128), processes=2), BATCH),
        ("torch DataLoader", ("torch", "PIL"), lambda f: torch_images(f, 0, "jpg", (128, 128)), BATCH),
        ("torch DataLoader, 2 workers", ("torch", "PIL"), lambda f: torch_images(f, 2, "jpg", (128, 128)), BATCH),
        ("grain", ("grain", "PIL"), lambda f: grain_images(f, "jpg", (128, 128)), BATCH),
    ],
    "PNG of 64 x 64: decoded, shuffled, batches of 100": [
        ("hloom", ("PIL",), lambda f: hloom_images(f / "png"), BATCH),
        ("hloom, 1 thread", ("PIL",), lambda f: hloom_images(f / "png", threads=1), BATCH),
        ("hloom, 2 processes", ("PIL",), lambda f: hloom_images(f / "png", processes=2), BATCH),
        ("torch DataLoader", ("torch", "PIL"), lambda f: torch_images(f, 0), BATCH),
        ("torch DataLoader, 2 workers", ("torch", "PIL"), lambda f: torch_images(f, 2), BATCH),
        ("grain", ("grain", "PIL"), grain_images, BATCH),
    ],
}  # fmt: skip


def lenet_waits(folder: Path, seconds: float) -> tuple[float, float, float]:
    """Milliseconds of a training step of LeNet on one batch that is there, on batches that are read, shuffled and
    prefetched (both with the copy to the device), and of waiting for those. Steps of both kinds take turns."""
    keys = hl.random.split(hl.random.key(0), 4)
    model = nn.Sequential(
        nn.Conv(1, 32, (5, 5), padding="SAME", key=keys[0]), nn.relu, nn.MaxPool((2, 2)),
        nn.Conv(32, 64, (5, 5), padding="SAME", key=keys[1]), nn.relu, nn.MaxPool((2, 2)), nn.Flatten(),
        nn.Linear(3136, 512, key=keys[2]), nn.relu, nn.Linear(512, 10, key=keys[3]),
    )  # fmt: skip

    @hl.jit
    def step(model, batch):
        def loss(model):
            pixels = batch["image"][..., None].astype(hnp.float32) / 255
            return hnp.mean(nn.losses.softmax_cross_entropy_with_integer_labels(model(pixels), batch["label"]))

        value, gradient = hl.value_and_grad(loss)(model)
        return hl.tree.map(lambda w, g: w - 0.01 * g, model, gradient), value

    features = {**FEATURES, "label": data.Int64(dtype="int32")}
    dataset = data.tfrecord(folder / "train.tfrecord", features).shuffle(WINDOW).repeat().batch(BATCH).prefetch()
    spent: dict[bool, list[float]] = {True: [], False: []}
    waiting: list[float] = []
    with iter(dataset) as batches:
        fixed = next(batches)
        for _ in range(3):
            model, value = step(model, fixed)
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            for reads in (True, False):
                began = time.perf_counter()
                batch = next(batches) if reads else fixed
                came = time.perf_counter()
                model, value = step(model, batch)
                float(value)
                spent[reads].append(time.perf_counter() - began)
                if reads:
                    waiting.append(came - began)
    alone, fed, waits = (1000 * float(np.median(each)) for each in (spent[False], spent[True], waiting))
    return alone, fed, waits


def rate(make: Callable[[], Iterable], size: int, seconds: float) -> tuple[float, float]:
    """Elements per second of wall time and of processor time, for `seconds` after the first ones: the start, such as
    filling a window, imports and starting processes, does not count, nor do buffers filled then."""
    iterator, seen = iter(make()), 0
    for _ in range(8 if size > 1 else 1000):
        next(iterator)
    began, used = time.perf_counter(), time.process_time()
    for _ in iterator:
        seen += size
        if time.perf_counter() - began > seconds:
            break
    wall, processor = time.perf_counter() - began, time.process_time() - used
    getattr(iterator, "close", lambda: None)()
    return seen / wall, seen / processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="that each loader reads at most in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="tables whose title has this text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        next(iter(hloom_records(folder).batch(BATCH)))  # loads the native functions
        for title, loaders in TABLES.items():
            if options.only not in title:
                continue
            there = [each for each in loaders if installed(*each[1])]
            best = {each[0]: (0.0, 0.0) for each in there}
            for _ in range(options.rounds):
                for label, _, make, size in there:
                    found = rate(lambda: make(folder), size, options.seconds)  # noqa: B023
                    best[label] = max(best[label][0], found[0]), max(best[label][1], found[1])
            ours = max(wall for label, (wall, _) in best.items() if label.startswith("hloom"))
            print(f"\n{title}\n\n| loader | per second | of hloom's best | per second of processor time |")
            print("| --- | --- | --- | --- |")
            for label, (wall, processor) in best.items():
                print(f"| {label} | {wall:,.0f} | {wall / ours:.3f} | {processor:,.0f} |", flush=True)
        alone, fed, waits = lenet_waits(folder, 10 * options.seconds)
        print(
            f"\nA step of LeNet, batches of 100: {alone:.1f} ms on a batch that is there, {fed:.1f} ms on batches from "
        )
        print(f"TFRecord ({alone / fed:.3f}), of which {waits:.2f} ms are waiting for input.")


if __name__ == "__main__":
    main()
