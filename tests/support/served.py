"""`hloom serve` as a process that tests ask over HTTP."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Server:
    """`hloom serve` as a process. context: of TLS."""

    def __init__(self, folder, arguments, context=None):
        self.http, self.grpc, self.metrics = free_ports(3)
        ports = ["--port", self.http, "--grpc-port", self.grpc, "--metrics-port", self.metrics]
        command = [sys.executable, "-m", "hloom", "serve", *arguments, *ports]
        self.log = open(folder / "log.txt", "w+")
        self.process = subprocess.Popen(list(map(str, command)), cwd=folder, stdout=self.log, stderr=self.log)
        self.context = context
        end = time.monotonic() + 120
        while self.status("/v2/health/ready") != 200:
            assert self.process.poll() is None and time.monotonic() < end, (folder / "log.txt").read_text()
            time.sleep(0.2)

    def ask(self, path, body=None, headers=None, raw=None):
        """(status, answer)"""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        scheme = "http" if self.context is None else "https"
        address = f"{scheme}://127.0.0.1:{self.http}{path}"
        request = urllib.request.Request(address, data, {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.context) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def status(self, path):
        try:
            return self.ask(path)[0]
        except OSError:
            return 0

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(30)
        self.log.close()
        return status


def inputs(array, **changes):
    one = {"name": "x", "shape": list(array.shape), "datatype": "FP32", "data": array.ravel().tolist(), **changes}
    return {"inputs": [one]}
