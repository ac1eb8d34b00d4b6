"""A server at a fixed load for a long time: `python -m hloom.benchmarks.export.steady --server triton --seconds 3600`.

Valid and invalid requests over HTTP and gRPC, `--rate` of them each second, are sent when they are due, however long
the answers to others take. Failures: a valid request answered with other results than the library's, an invalid one
that is not refused, an answer after ten seconds. Shown: counts, latencies from the time a request was due, and the
memory of the server's processes each minute. Loopback only. Needs grpcio and MLServer (the extra `serve`: the messages
of the protocol), the server, and a C compiler.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import numpy as np

import hloom as hl
from hloom.benchmarks.export.models import models
from hloom.export.loading import Library

from mlserver.grpc import dataplane_pb2, dataplane_pb2_grpc  # isort: skip

PORTS = 18475, 18476, 18477
WAIT = 10.0  # seconds for an answer
MOST_AT_ONCE = 200
REFUSED = 400, 404, 422, 500  # Triton's reader of JSON answers 500 to malformed input; the report counts each
PAGE = os.sysconf("SC_PAGE_SIZE")
HEAD = (
    "POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    "Content-Length: {size}\r\n\r\n"
)


def http_request(body: Any, model: str = "lenet") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return HEAD.format(model=model, size=len(data)).encode() + data


def http_body(image: np.ndarray, **changes: Any) -> dict:
    one = {"name": "x", "datatype": "FP32", "shape": list(image.shape), "data": image.ravel().tolist(), **changes}
    return {"inputs": [one]}


def grpc_request(image: np.ndarray, datatype: str = "FP32", name: str = "x", shape: Any = None) -> Any:
    tensor = dataplane_pb2.ModelInferRequest.InferInputTensor(
        name=name, datatype=datatype, shape=list(shape or image.shape)
    )
    if datatype == "FP32":
        tensor.contents.fp32_contents.extend(image.ravel().tolist())
    else:
        tensor.contents.int_contents.extend([1] * image.size)
    return dataplane_pb2.ModelInferRequest(model_name="lenet", inputs=[tensor])


class Load:
    """The requests by kind, their outcomes, and the connections."""

    def __init__(self, library: Library):
        draw = np.random.default_rng(1)
        images = [draw.random((1, 28, 28, 1), np.float32).round(3) for _ in range(8)]
        function = next(iter(library.functions.values()))
        self.expected = [function.run([image])[0].ravel() for image in images]
        self.http = [http_request(http_body(image)) for image in images]
        self.grpc = [grpc_request(image) for image in images]
        image = images[0]
        self.bad_http = {
            "wrong size": http_request(http_body(image[:, :27])),
            "wrong datatype": http_request(http_body(image, datatype="INT32", data=[1] * 784)),
            "too few elements": http_request(http_body(image, data=[1.0])),
            "no input": http_request({"inputs": []}),
            "unknown input": http_request(http_body(image, name="y")),
            "broken JSON": http_request(b'{"inputs": [{'),
            "unknown model": http_request(http_body(image), model="absent"),
            "too many rows": http_request(http_body(np.zeros((64, 28, 28, 1), np.float32))),
        }
        self.bad_grpc = {
            "gRPC: wrong size": grpc_request(image[:, :27]),
            "gRPC: wrong datatype": grpc_request(image, "INT32"),
            "gRPC: unknown input": grpc_request(image, name="y"),
            "gRPC: too few elements": grpc_request(image, shape=(2, 28, 28, 1)),
        }
        self.sent: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()
        self.latencies: list[float] = []
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._running: set[asyncio.Task] = set()

    async def run(self, rate: float, seconds: float, pid: int) -> list[tuple[float, int]]:
        """Sends; memory of the server each minute as (seconds, bytes)."""
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{PORTS[1]}")
        self._stub = dataplane_pb2_grpc.GRPCInferenceServiceStub(channel)
        draw = np.random.default_rng(2)
        memory, began, minute = [], time.perf_counter(), 0
        for number in range(int(rate * seconds)):
            due = began + number / rate
            now = time.perf_counter()
            if now < due:
                await asyncio.sleep(due - now)
            if number / rate >= 60 * minute:
                memory.append((number / rate, resident(pid)))
                _show(self, memory[-1], len(self.latencies))
                minute += 1
            if len(self._running) >= MOST_AT_ONCE:
                self.wrong["not sent: too many wait"] += 1
                continue
            task = asyncio.create_task(self._one(draw.random(), number, due))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        if self._running:
            await asyncio.wait(self._running, timeout=WAIT)
        memory.append((seconds, resident(pid)))
        await channel.close()
        for _, writer in self._idle:
            writer.close()
        return memory

    async def _one(self, chance: float, number: int, due: float) -> None:
        """60 % valid over HTTP, 20 % valid over gRPC, 12 % and 8 % invalid."""
        if chance < 0.6:
            kind, work = "HTTP", self._http(self.http[number % 8], self.expected[number % 8])
        elif chance < 0.8:
            kind, work = "gRPC", self._grpc(self.grpc[number % 8], self.expected[number % 8])
        elif chance < 0.92:
            kind = list(self.bad_http)[number % len(self.bad_http)]
            work = self._http(self.bad_http[kind], None)
        else:
            kind = list(self.bad_grpc)[number % len(self.bad_grpc)]
            work = self._grpc(self.bad_grpc[kind], None)
        self.sent[kind] += 1
        try:
            fault = await asyncio.wait_for(work, WAIT)
        except Exception as error:
            fault = f"{type(error).__name__} {error}"[:80]
        if fault:
            self.wrong[f"{kind}: {fault}"] += 1
        self.latencies.append(time.perf_counter() - due)

    async def _http(self, request: bytes, expected: np.ndarray | None) -> str | None:
        pair = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", PORTS[0])
        reader, writer = pair
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.split(b":", 1) for line in head.lower().split(b"\r\n")[1:] if b":" in line)
            text = await reader.readexactly(int(fields[b"content-length"]))
        except BaseException:
            writer.close()
            raise
        if b"close" in fields.get(b"connection", b""):
            writer.close()
        else:
            self._idle.append(pair)
        status = int(head.split(b" ")[1])
        if expected is None:
            self.refused[status] += 1
            return None if status in REFUSED else f"status {status}"
        if status != 200:
            return f"status {status}"
        found = np.asarray(json.loads(text)["outputs"][0]["data"], np.float32)
        return None if close(found, expected) else "another result"

    async def _grpc(self, request: Any, expected: np.ndarray | None) -> str | None:
        try:
            answer = await self._stub.ModelInfer(request, timeout=WAIT)
        except grpc.RpcError as error:
            refused = error.code().name in ("INVALID_ARGUMENT", "NOT_FOUND")
            return None if expected is None and refused else error.code().name
        if expected is None:
            return "not refused"
        raw = answer.raw_output_contents
        found = np.frombuffer(raw[0], np.float32) if raw else np.asarray(answer.outputs[0].contents.fp32_contents)
        return None if close(found, expected) else "another result"


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    """Sums of a batch are cut into blocks for its size: the last bits may differ."""
    return found.shape == expected.shape and bool(np.allclose(found, expected, rtol=1e-5, atol=1e-6))


def resident(pid: int) -> int:
    """The bytes in memory of a process and of all that it started."""
    total, left = 0, [pid]
    while left:
        one = left.pop()
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * PAGE
            for task in Path(f"/proc/{one}/task").iterdir():
                left += map(int, (task / "children").read_text().split())
        except (OSError, ValueError):
            continue
    return total


def _show(load: Load, memory: tuple[float, int], count: int) -> None:
    last = sorted(load.latencies[-6000:]) or [math.nan]
    print(
        f"{memory[0]:6.0f} s: {count} answers, {sum(load.wrong.values())} wrong, p99 of the last minute "
        f"{last[int(len(last) * 0.99)] * 1e3:.1f} ms, memory {memory[1] / 1e6:.1f} MB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=("mlserver", "triton"), default="triton")
    parser.add_argument("--rate", type=float, default=100.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=3600.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        x = hl.ShapeDtypeStruct((hl.Dim("batch", 1, 32), 28, 28, 1), "float32")
        library = hl.export(models()["lenet"][0], x, folder=folder, name="lenet").load()
        names = ("--port", "--grpc-port", "--metrics-port")
        ports = [part for pair in zip(names, map(str, PORTS), strict=True) for part in pair]
        command = [sys.executable, "-m", "hloom", "serve", f"{folder}/liblenet.so", "--server", options.server]
        server = subprocess.Popen([*command, "--max-batch", "32", "--max-wait", "0", *ports], stdout=subprocess.DEVNULL)
        try:
            wait(server)
            load = Load(library)
            memory = asyncio.run(load.run(options.rate, options.seconds, server.pid))
        finally:
            server.terminate()
            server.wait(40)
    report(load, memory, options)


def wait(server: subprocess.Popen) -> None:
    """Until both ports answer."""
    end = time.monotonic() + 120

    while time.monotonic() < end and server.poll() is None:
        try:
            for port in PORTS[:2]:
                socket.create_connection(("127.0.0.1", port), 1).close()
            time.sleep(1)
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError("the server did not come up")


def report(load: Load, memory: list[tuple[float, int]], options: argparse.Namespace) -> None:
    median, last, most = np.quantile(load.latencies, [0.5, 0.99, 1.0]) * 1e3
    first = next((pair for pair in memory if pair[0] >= 60), memory[0])
    print(f"server: {options.server}, {options.rate:g} requests/s for {options.seconds:g} s")
    print(f"requests: {sum(load.sent.values()):,}, wrong: {sum(load.wrong.values())} {dict(load.wrong) or ''}")
    print(f"median {median:.2f} ms, p99 {last:.2f} ms, longest {most:.1f} ms")
    print(f"memory after {first[0]:.0f} s: {first[1] / 1e6:.1f} MB, at the end {memory[-1][1] / 1e6:.1f} MB")
    print("statuses of invalid requests over HTTP:", dict(sorted(load.refused.items())))
    print("sent:", ", ".join(f"{kind} {count:,}" for kind, count in sorted(load.sent.items())))


if __name__ == "__main__":
    main()
