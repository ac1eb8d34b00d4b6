"""NVIDIA's Triton as the server: a model repository, a backend that is compiled once, and the process.

Triton itself is native, with HTTP, gRPC, batching and metrics; it needs no GPU. `native/triton.c` is its backend for
exported libraries.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hloom._version import __version__
from hloom.compiler.cache import default_folder
from hloom.compiler.targets.cpu.machine import available_cores
from hloom.distributed.parents import die_with_parent
from hloom.errors import ArgumentError, ExportError, UnsupportedError, file_error
from hloom.export.emit import NATIVE
from hloom.export.loading import Library, Value
from hloom.export.names import c_string
from hloom.export.targets import host_target_name, target_of
from hloom.export.toolchain import toolchain
from hloom.ir.process.files import temporary_folder, whole_file
from hloom.serving.checks import DATATYPES, check, check_ports, chosen_function
from hloom.serving.options import LOCAL, Model, ServerOptions

SOURCE = Path(__file__).with_name("native") / "triton.c"
INSTALL = "pip install --no-deps nvidia-pytriton==0.7.0 (the wheel with Triton's binary), or put tritonserver on PATH"
# Features that clients do not need, and those that let them write files or map memory.
CLOSED = "shared-memory,model-repository,trace,logging"
NEEDS_KEY = "inference,metadata,model-config,statistics"


def tritonserver() -> Path:
    """The program: on PATH, else in the package nvidia-pytriton. Raises UnsupportedError."""
    found = shutil.which("tritonserver")
    if found:
        return Path(found)
    package = importlib.util.find_spec("pytriton")  # not imported: it needs NumPy 1
    for folder in package.submodule_search_locations or () if package else ():
        binary = Path(folder) / "tritonserver" / "bin" / "tritonserver"
        if binary.is_file():
            return binary
    raise UnsupportedError("serving models with Triton", "there is no tritonserver", INSTALL)


def backend() -> Path:
    """The folder of backends with `hloom/libtriton_hloom.so`, which is compiled where it is missing. Raises ExportError
    without a C compiler."""
    made = hashlib.sha256(SOURCE.read_bytes() + (NATIVE / "hloom.h").read_bytes()).hexdigest()[:16]
    folder = default_folder() or Path(tempfile.gettempdir()) / f"hloom-{os.getuid()}"
    place = folder / "triton" / f"{__version__}-{made}"
    library = place / "hloom" / "libtriton_hloom.so"
    if not library.is_file():
        _, target, _ = target_of(None, None)
        tools = toolchain(host_target_name(), target)
        try:
            library.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise file_error(f"compiling Triton's backend into {place}", error) from None
        tools.shared(SOURCE, NATIVE, library)
    return place


def write_repository(folder: Path, options: ServerOptions, copy: bool) -> None:
    """Writes models as Triton has them: NAME/config.pbtxt, NAME/VERSION/model.so and options.txt.

    copy: whether libraries and weights are copied, else linked. Raises ArgumentError for versions that Triton does not
    have, FileError.
    """
    for model in options.models:
        if model.version is not None and not (model.version.isascii() and model.version.isdecimal()):
            raise ArgumentError(
                f"version {model.version!r} of model {model.name!r}", "Triton's versions are whole numbers",
                f"{model.name}@1=PATH, or --server mlserver",
            )  # fmt: skip
    configurations: dict[str, str] = {}
    try:
        for model in options.models:
            version = str(int(model.version or 1))
            place = folder / model.name / version
            place.mkdir(parents=True, exist_ok=True)
            with Library(model.path, num_threads=1) as library:
                function = chosen_function(library, model.function)
                weights = library._library.weights
                text = _configuration(model, library, options)
            if configurations.setdefault(model.name, text) != text:
                raise ArgumentError(
                    f"versions of model {model.name!r}", f"version {version} has other inputs or outputs",
                    "Triton's versions of a model are alike: give it another name, or --server mlserver",
                )  # fmt: skip
            (place.parent / "config.pbtxt").write_text(text)
            (place / "options.txt").write_text(f"function {function.name}\nthreads {options.threads}\n")
            files = {place / "model.so": model.path.resolve()}
            if weights is not None and copy:
                files[place / weights.decode()] = model.path.resolve().parent / weights.decode()
            for made, source in files.items():
                if copy:
                    with whole_file(made) as partial:
                        shutil.copyfile(source, partial)
                else:
                    made.unlink(missing_ok=True)
                    made.symlink_to(source)
    except OSError as error:
        raise file_error(f"writing the model repository {folder}", error) from None


def _configuration(model: Model, library: Library, options: ServerOptions) -> str:
    """The text of config.pbtxt, whose strings have C's escapes. The versions of a model share it."""
    function = chosen_function(library, model.function)
    batches = options.max_batch > 1

    def sizes(value: Value, fixed: int | None = None) -> list[int]:
        shape = value.shape[1:] if batches else value.shape
        return [s if isinstance(s, int) else library.dimensions.get(s, (1, 1))[0] if fixed else -1 for s in shape]

    def tensor(kind: str, value: Value) -> str:
        dims = sizes(value)
        # Triton has no sizes of nothing: its scalars have one element, as have the rows of arrays with one dimension.
        shape = f"dims: {dims}" if dims else "dims: [ 1 ]" + (" reshape: { shape: [ ] }" if batches else "")
        return f"{kind} {{ name: {c_string(value.name)} data_type: TYPE_{DATATYPES[value.dtype]} {shape} }}"

    def warm_up(rows: int) -> str:
        inputs = " ".join(
            f"inputs {{ key: {c_string(v.name)} value {{ data_type: TYPE_{DATATYPES[v.dtype]} "
            f"dims: {sizes(v, fixed=1) or [1]} zero_data: true }} }}"
            for v in function.inputs
        )
        return f'model_warmup {{ name: "{rows} rows" batch_size: {rows} {inputs} }}'

    waits = f"max_queue_delay_microseconds: {round(options.max_wait * 1e6) if batches else 0}"
    if options.timeout is not None:
        waits += (
            f" default_queue_policy {{ timeout_action: REJECT "
            f"default_timeout_microseconds: {round(options.timeout * 1e6)} }}"
        )
    least = library.dimensions[str(function.inputs[0].shape[0])][0] if batches else 0
    lines = [
        f"name: {c_string(model.name)}",
        'backend: "hloom"',
        f"max_batch_size: {options.max_batch if batches else 0}",
        *[tensor("input", v) for v in function.inputs],
        *[tensor("output", v) for v in function.outputs],
        f"instance_group {{ count: {max(1, available_cores() // max(1, options.threads))} kind: KIND_CPU }}",
        f"dynamic_batching {{ {waits} }}" if batches or options.timeout is not None else "",
        "version_policy { all { } }",
        *[warm_up(rows) for rows in dict.fromkeys((least, options.max_batch) if batches else (0,)) if function.inputs],
    ]
    return "\n".join(line for line in lines if line) + "\n"


def check_options(options: ServerOptions) -> None:
    """Raises ArgumentError for options that Triton lacks."""
    if options.max_body is not None:
        raise ArgumentError(
            "--max-body with Triton", "it has no limit for the bodies of HTTP",
            "--server mlserver has one, as has a proxy in front of Triton",
        )  # fmt: skip
    if options.certificate is not None and options.port != 0:
        raise ArgumentError(
            "TLS with Triton", "it has TLS for gRPC only, and HTTP would stay open",
            "--port 0 leaves HTTP out; --server mlserver has HTTPS",
        )  # fmt: skip
    if options.key is not None and options.metrics_host not in LOCAL:
        raise ArgumentError(
            f"metrics on {options.metrics_host} with Triton", "it asks for no key there",
            "--metrics-host 127.0.0.1, or --server mlserver",
        )  # fmt: skip
    if options.key is not None and ("\n" in options.key or not options.key.isprintable()):
        raise ArgumentError("a key for Triton", "it has characters that a header does not have", "use printable ASCII")


def _command(program: Path, backends: Path, repository: Path, options: ServerOptions) -> list[str]:
    cores = available_cores()
    command = [
        str(program), f"--model-repository={repository}", f"--backend-directory={backends}",
        f"--http-address={options.host}", f"--grpc-address={options.host}", f"--metrics-address={options.metrics_host}",
        f"--grpc-port={options.grpc_port}", f"--metrics-port={options.metrics_port}", "--allow-gpu-metrics=false",
        "--pinned-memory-pool-byte-size=0", "--log-info=false", "--disable-auto-complete-config",
        f"--http-thread-count={max(2, cores)}", "--model-control-mode=none",
    ]  # fmt: skip
    command.append(f"--http-port={options.port}" if options.port else "--allow-http=false")
    nobody = secrets.token_hex(16)
    for flag in ("--http-restricted-api", "--grpc-restricted-protocol"):
        command.append(f"{flag}={CLOSED}:closed={nobody}")
        if options.key is not None:
            command.append(f"{flag}={NEEDS_KEY}:authorization=Bearer {options.key}")
    if options.certificate is not None:
        command += ["--grpc-use-ssl=true", f"--grpc-server-cert={options.certificate}"]
        command.append(f"--grpc-server-key={options.private_key}")
    return command


def run(options: ServerOptions) -> int:
    """Serves until SIGINT or SIGTERM; the exit status. Raises as `hloom.serving.server.serve` does."""
    check_options(options)
    check(options)
    program = tritonserver()
    ports = (options.port, options.grpc_port, options.metrics_port)
    used = tuple(port for k, port in enumerate(ports[:2]) if k or port)
    check_ports(options.host, used, options.metrics_host, options.metrics_port)
    backends = backend()
    with temporary_folder("hloom-triton-") as work:
        repository = work if options.repository is None else options.repository
        write_repository(repository, options, copy=options.repository is not None)
        return _process(_command(program, backends, repository, options), options)


def _process(command: Sequence[str], options: ServerOptions) -> int:
    """Runs Triton, forwards signals to it, and reports when it is ready."""
    ended: list[int] = []
    process = subprocess.Popen(command, preexec_fn=die_with_parent, stdin=subprocess.DEVNULL)

    def end(number: int, frame: object) -> None:
        ended.append(number)
        process.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        port = options.port or options.grpc_port
        ready = False
        while process.poll() is None:
            if not ready and _listens(options.host, port):
                ready = True
                shown = f"HTTP {options.port or '-'}, gRPC {options.grpc_port}, metrics {options.metrics_port}"
                print(f"hloom serve: Triton is ready on {options.host}: {shown}", file=sys.stderr)
            try:
                process.wait(3600 if ready else 0.05)
            except subprocess.TimeoutExpired:
                continue
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process.poll() is None:
            process.kill()
            process.wait()
    if ended:
        return 0
    if not ready:
        raise ExportError(
            "serving models with Triton", f"it ended with status {process.returncode}", "see its output above"
        )
    return process.returncode or 1


def _listens(host: str, port: int) -> bool:
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    try:
        socket.create_connection((address, port), 1).close()
        return True
    except OSError:
        return False
