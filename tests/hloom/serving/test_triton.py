"""Triton as the server: answers, batches, bad requests, keys, TLS for gRPC, versions, and what it does not have."""

import concurrent.futures
import re
import shutil
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
from served import Server, free_ports, inputs

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import UnsupportedError
from hloom.serving import triton

try:
    triton.tritonserver()
except UnsupportedError:
    pytest.skip(f"there is no tritonserver: {triton.INSTALL}", allow_module_level=True)
pytestmark = pytest.mark.skipif(not (shutil.which("cc") or shutil.which("zig")), reason="no C compiler")

KEY = {"Authorization": "Bearer secret"}
x = np.random.default_rng(0).random((4, 6)).astype(np.float32)
weights = np.random.default_rng(1).random((6, 3)).astype(np.float32)
wide = np.random.default_rng(2).random((6, 200)).astype(np.float32)


def predict(x):
    return {"scores": hnp.tanh(x @ weights), "best": hnp.argmax(x @ weights, axis=1)}


def several(x, scale, mask):
    return {"scaled": x * scale, "sum": x.sum(), "kept": hnp.where(mask, x, 0), "half": x.astype("float16")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("triton")
    batches = hl.ShapeDtypeStruct((hl.Dim("batch", 1, 16), 6), np.float32)
    hl.export(predict, batches, folder=folder, name="scores")
    hl.export(lambda x: {"y": x @ wide}, x, folder=folder, name="wide", weights="file")
    hl.export(predict, x, folder=folder, name="fixed")
    scale = np.float32(2)
    hl.export(several, x, scale, np.ones((4, 6), bool), folder=folder, name="several")
    (folder / "key.txt").write_text("secret\n")
    return folder


@pytest.fixture(scope="module")
def server(folder):
    models = ["libscores.so", "two@1=libscores.so", "two@2=libscores.so"]
    options = ["--server", "triton", "--max-batch", "16", "--max-wait", "5", "--key-file", "key.txt"]
    server = Server(folder, [*models, *options])
    yield server
    assert server.close() == 0


def outputs(answer):
    return {o["name"]: np.asarray(o["data"], np.float32).reshape(o["shape"]) for o in answer["outputs"]}


def test_answers_are_those_of_the_function(server):
    expected = {k: np.asarray(v) for k, v in hl.jit(predict)(x).items()}
    status, answer = server.ask("/v2/models/scores/infer", {**inputs(x), "id": "7"}, KEY)
    assert status == 200 and answer["id"] == "7"
    found = outputs(answer)
    assert np.array_equal(found["scores"], expected["scores"])
    assert np.array_equal(found["best"], expected["best"][:, None])  # Triton has no arrays without dimensions in a row
    one = {**inputs(x), "outputs": [{"name": "best"}]}
    assert [o["name"] for o in server.ask("/v2/models/scores/infer", one, KEY)[1]["outputs"]] == ["best"]
    described = server.ask("/v2/models/scores", headers=KEY)[1]
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 6]}]


def test_versions(server):
    for version in ("1", "2"):
        status, answer = server.ask(f"/v2/models/two/versions/{version}/infer", inputs(x), KEY)
        assert status == 200 and answer["model_version"] == version
    assert server.ask("/v2/models/two/versions/3/infer", inputs(x), KEY)[0] in (400, 404)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"inputs": []}, "expected 1 inputs"),
        (inputs(x, name="y"), "unexpected inference input 'y'|Got input\\(s\\) \\['y'\\]"),
        (inputs(x, datatype="INT32", data=[1] * 24), "INT32"),
        (inputs(x[:, :2]), "unexpected shape for input 'x'"),
        (inputs(np.zeros((17, 6), np.float32)), "must be <= 16"),
        (inputs(np.zeros((0, 6), np.float32)), ""),
        ({**inputs(x), "outputs": [{"name": "worst"}]}, "unexpected inference output 'worst'"),
    ],
)
def test_bad_requests_have_status_400_and_the_server_lives(server, body, text):
    status, answer = server.ask("/v2/models/scores/infer", body, KEY)
    assert status == 400
    assert re.search(text, answer)
    assert server.ask("/v2/models/scores/infer", inputs(x), KEY)[0] == 200


def test_what_triton_cannot_read_is_refused_and_the_server_lives(server):
    for body in (b"{broken", b"", b'{"inputs": 3}', b'{"inputs": [{"name": "x"}]}', b"[" * 100_000):
        assert server.ask("/v2/models/scores/infer", raw=body, headers=KEY)[0] in (400, 500)
    for data in ([1.0], [], ["a"] * 24):
        assert server.ask("/v2/models/scores/infer", inputs(x, data=data), KEY)[0] in (400, 500)
    assert server.ask("/v2/models/scores/infer", inputs(x), KEY)[0] == 200


def test_keys_and_what_is_closed_to_everybody(server):
    assert server.ask("/v2/models/scores/infer", inputs(x))[0] == 403
    assert server.ask("/v2/models/scores/infer", inputs(x), {"Authorization": "Bearer wrong"})[0] == 403
    assert server.ask("/v2/health/ready")[0] == 200
    for path in ("/v2/systemsharedmemory/status", "/v2/logging", "/v2/trace/setting"):
        assert server.ask(path, headers=KEY)[0] == 403


def test_requests_are_computed_together_and_a_bad_one_fails_alone(server):
    expected = np.asarray(hl.jit(predict)(x)["scores"])
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        path = "/v2/models/scores/infer"
        asked = [clients.submit(server.ask, path, inputs(x[k % 4 : k % 4 + 1]), KEY) for k in range(48)]
        bad = [clients.submit(server.ask, path, inputs(np.zeros((17, 6), np.float32)), KEY) for _ in range(4)]
        for k, waiting in enumerate(asked):
            status, answer = waiting.result(60)
            assert status == 200 and np.allclose(outputs(answer)["scores"], expected[k % 4], atol=1e-6)
        assert [one.result(60)[0] for one in bad] == [400] * 4
    text = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=30).read().decode()
    counted = {
        name: int(re.search(rf'{name}{{model="scores",version="1"}} (\d+)', text)[1])
        for name in ("nv_inference_count", "nv_inference_exec_count")
    }
    assert counted["nv_inference_exec_count"] < counted["nv_inference_count"]


def test_arrays_of_several_kinds_without_a_range_of_batches(folder):
    server = Server(folder, ["libseveral.so", "--server", "triton"])
    try:
        mask = np.arange(24).reshape(4, 6) % 2 == 0
        body = inputs(x)
        body["inputs"].append({"name": "scale", "shape": [1], "datatype": "FP32", "data": [3.0]})
        body["inputs"].append({"name": "mask", "shape": [4, 6], "datatype": "BOOL", "data": mask.ravel().tolist()})
        body["outputs"] = [{"name": name} for name in ("scaled", "sum", "kept")]  # JSON has no FP16 in Triton
        status, answer = server.ask("/v2/models/several/infer", body)
        assert status == 200, answer
        found = outputs(answer)
        assert np.array_equal(found["scaled"], x * 3) and np.array_equal(found["kept"], np.where(mask, x, 0))
        assert np.allclose(found["sum"], x.sum())
    finally:
        assert server.close() == 0


def test_grpc_has_the_same_answers_and_wants_the_key(server):
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("mlserver", reason="the messages of the protocol are MLServer's")
    from mlserver.grpc import dataplane_pb2, dataplane_pb2_grpc

    key = [("triton-grpc-protocol-authorization", "Bearer secret")]
    tensor = dataplane_pb2.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[4, 6])
    tensor.contents.fp32_contents.extend(x.ravel().tolist())
    request = dataplane_pb2.ModelInferRequest(model_name="scores", inputs=[tensor])
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        stub = dataplane_pb2_grpc.GRPCInferenceServiceStub(channel)
        answer = stub.ModelInfer(request, metadata=key, timeout=30)
        names = [o.name for o in answer.outputs]
        found = np.frombuffer(answer.raw_output_contents[names.index("scores")], np.float32).reshape(4, 3)
        assert np.array_equal(found, np.asarray(hl.jit(predict)(x)["scores"]))
        with pytest.raises(grpc.RpcError):
            stub.ModelInfer(request, timeout=30)
        del request.inputs[0].contents.fp32_contents[:]
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(request, metadata=key, timeout=30)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.slow
def test_tls_of_grpc_and_a_limit_of_waiting(folder):
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("mlserver", reason="the messages of the protocol are MLServer's")
    from mlserver.grpc import dataplane_pb2, dataplane_pb2_grpc

    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost"
    subprocess.run(
        [*make.split(), "-addext", "subjectAltName=IP:127.0.0.1"], cwd=folder, check=True, capture_output=True
    )
    (port, metrics) = free_ports(2)
    options = ["--tls-certificate", "cert.pem", "--tls-key", "key.pem", "--port", "0", "--timeout", "5"]
    command = [sys.executable, "-m", "hloom", "serve", "libfixed.so", "--server", "triton", *options]
    process = subprocess.Popen([*command, "--grpc-port", str(port), "--metrics-port", str(metrics)], cwd=folder)
    try:
        tensor = dataplane_pb2.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[4, 6])
        tensor.contents.fp32_contents.extend(x.ravel().tolist())
        request = dataplane_pb2.ModelInferRequest(model_name="fixed", inputs=[tensor])
        credentials = grpc.ssl_channel_credentials((folder / "cert.pem").read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            stub = dataplane_pb2_grpc.GRPCInferenceServiceStub(channel)
            answer = stub.ModelInfer(request, timeout=60, wait_for_ready=True)
            assert len(answer.raw_output_contents) == 2
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError):
            dataplane_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=5)
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["absent.so"], "there is no such file"),
        (["libfixed.so", "--timeout", "-1"], "at least 0.001"),
        (["a@one=libfixed.so"], "versions are whole numbers"),
        (["a@1=libfixed.so", "a@2=libseveral.so"], "has other inputs or outputs"),
        (["libfixed.so", "--max-body", "8"], "no limit for the bodies"),
        (["libfixed.so", "--max-batch", "8"], 'hl.Dim("batch", 1, 8)'),
        (["libfixed.so", "--tls-certificate", "key.txt", "--tls-key", "key.txt"], "--port 0 leaves HTTP out"),
    ],
)
def test_mistakes_of_the_command_line(folder, arguments, text):
    command = [sys.executable, "-m", "hloom", "serve", *arguments, "--server", "triton"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and text in done.stderr, done.stderr


def test_a_repository_that_stays_holds_all_that_triton_needs(folder, tmp_path):
    server = Server(folder, ["libwide.so", "--server", "triton", "--repository", str(tmp_path / "models")])
    try:
        status, answer = server.ask("/v2/models/wide/infer", inputs(x))
        assert status == 200 and np.allclose(outputs(answer)["y"], x @ wide, rtol=1e-5)
    finally:
        assert server.close() == 0
    found = [p for p in (tmp_path / "models" / "wide").rglob("*") if p.is_file()]
    assert not any(p.is_symlink() for p in found)
    assert {p.name for p in found} == {"model.so", "options.txt", "wide.safetensors", "config.pbtxt"}


def test_without_triton_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="pip install --no-deps nvidia-pytriton"):
        triton.tritonserver()
