"""Requests per second of `hloom serve` for LeNet, batch 1.

`python -m hloom.benchmarks.export.serving [--server triton]`. The server and the clients, whose connections stay open,
share this machine. The load comes from `wrk` (one thread) where it is installed, else from this process. Loopback only,
bounded in time. Needs the server and a C compiler.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def body() -> bytes:
    image = np.random.default_rng(1).random(784).round(3).tolist()
    one = {"name": "x", "datatype": "FP32", "shape": [1, 28, 28, 1], "data": image}
    return json.dumps({"inputs": [one]}, separators=(",", ":")).encode()


async def load(clients: int, seconds: float) -> tuple[list[float], list[str]]:
    data = body()
    head = "POST /v2/models/lenet/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
    latencies: list[float] = []
    errors: list[str] = []
    end = time.perf_counter() + seconds
    await asyncio.gather(*[client(request, end, latencies, errors) for _ in range(clients)])
    return latencies, errors


def measure(clients: int, seconds: float, folder: str) -> tuple[float, float, float, int]:
    """(requests per second, median and p99 in milliseconds, errors)"""
    if shutil.which("wrk") is None:
        latencies, errors = asyncio.run(load(clients, seconds))
        median, last = np.quantile(latencies, [0.5, 0.99]) * 1e3
        return len(latencies) / seconds, median, last, len(errors)
    (Path(folder) / "body.json").write_bytes(body())
    script = Path(folder) / "post.lua"
    script.write_text(
        f'local f = io.open("{folder}/body.json"); wrk.body = f:read("*a"); f:close()\n'
        'wrk.method = "POST"; wrk.headers["Content-Type"] = "application/json"\n'
        "done = function(summary, latency)\n"
        "  local e = summary.errors\n"
        "  local failed = e.status + e.connect + e.read + e.write + e.timeout\n"
        '  io.write(string.format("found %d %d %d %d %d\\n", summary.requests, summary.duration,\n'
        "    latency:percentile(50), latency:percentile(99), failed))\nend\n"
    )
    address = f"http://127.0.0.1:{PORTS[0]}/v2/models/lenet/infer"
    command = ["wrk", "-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "-s", str(script), address]
    text = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=True).stdout
    found = re.search(r"found (\d+) (\d+) (\d+) (\d+) (\d+)", text)
    assert found is not None, text
    count, microseconds, median, last, failed = map(int, found.groups())
    return count / microseconds * 1e6, median / 1e3, last / 1e3, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--server", choices=("mlserver", "triton"), default="mlserver")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        x = hl.ShapeDtypeStruct((hl.Dim("batch", 1, 32), 28, 28, 1), "float32")
        hl.export(models()["lenet"][0], x, folder=folder, name="lenet")
        print("load:", "wrk" if shutil.which("wrk") else "asyncio", "- server:", options.server)
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
                "--server",
                options.server,
                "--max-batch",
                str(batch),
                "--max-wait",
                "0",
                *ports,
            ]
            server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                _wait()
                asyncio.run(load(4, 1.0))
                for clients in options.clients:
                    rate, median, last, errors = measure(clients, options.seconds, folder)
                    kind = f"up to {batch}" if batch > 1 else "none"
                    print(f"| {kind} | {clients} | {rate:,.0f} | {median:.2f} | {last:.2f} | {errors} |", flush=True)
            finally:
                server.terminate()
                server.wait(40)


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
