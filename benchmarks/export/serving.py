"""Requests per second of `hloom serve` for LeNet, batch 1: `python -m hloom.benchmarks.export.serving [--seconds 10]`.

The server and the clients, whose connections stay open, share this machine. Loopback only, bounded in time.
Needs the extras `serve` and `export`, or a C compiler.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time

import numpy as np

import hloom as hl
from hloom.benchmarks.export.models import models

PORTS = 18470, 18471, 18472


async def client(request: bytes, end: float, latencies: list[float], errors: list[str]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORTS[0])
    while time.perf_counter() < end:
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(h.split(b":")[1]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length"))
        await reader.readexactly(length)
        latencies.append(time.perf_counter() - began)
        if b" 200 " not in head[:20]:
            errors.append(head[:40].decode())
    writer.close()


async def load(clients: int, seconds: float) -> tuple[list[float], list[str]]:
    image = np.random.default_rng(1).random(784).round(3).tolist()
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 28, 28, 1], "data": image}]}
    data = json.dumps(body, separators=(",", ":")).encode()
    head = "POST /v2/models/lenet/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
    latencies: list[float] = []
    errors: list[str] = []
    end = time.perf_counter() + seconds
    await asyncio.gather(*[client(request, end, latencies, errors) for _ in range(clients)])
    return latencies, errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        x = hl.ShapeDtypeStruct((hl.Dim("batch", 1, 32), 28, 28, 1), "float32")
        hl.export(models()["lenet"][0], x, folder=folder, name="lenet")
        print("| batching | clients | requests/s | median, ms | p99, ms | errors |")
        print("| --- | --- | --- | --- | --- | --- |")
        for batch in (1, 32):
            names = ("--port", "--grpc-port", "--metrics-port")
            ports = [part for pair in zip(names, map(str, PORTS), strict=True) for part in pair]
            command = [
                sys.executable,
                "-m",
                "hloom",
                "serve",
                f"{folder}/liblenet.so",
                "--max-batch",
                str(batch),
                *ports,
            ]
            server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                _wait()
                asyncio.run(load(4, 1.0))
                for clients in options.clients:
                    latencies, errors = asyncio.run(load(clients, options.seconds))
                    median, last = np.quantile(latencies, [0.5, 0.99]) * 1e3
                    rate = len(latencies) / options.seconds
                    kind = f"up to {batch}" if batch > 1 else "none"
                    print(
                        f"| {kind} | {clients} | {rate:,.0f} | {median:.2f} | {last:.2f} | {len(errors)} |", flush=True
                    )
            finally:
                server.terminate()
                server.wait(30)


def _wait() -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            asyncio.run(load(1, 0.01))
            return
        except (OSError, asyncio.IncompleteReadError):
            time.sleep(0.3)
    raise TimeoutError("the server did not come up")


if __name__ == "__main__":
    main()
