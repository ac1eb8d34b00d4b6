"""A server of exported libraries: answers, bad requests, limits, keys, TLS, versions, and how it ends."""

import concurrent.futures
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

import numpy as np
import pytest
from served import Server, inputs

import hloom as hl
import hloom.numpy as hnp

pytest.importorskip("mlserver", reason="MLServer is not installed: pip install 'hloom[serve]'")
pytestmark = pytest.mark.skipif(not (shutil.which("cc") or shutil.which("zig")), reason="no C compiler")

KEY = {"Authorization": "Bearer secret"}
x = np.random.default_rng(0).random((4, 6)).astype(np.float32)
weights = np.random.default_rng(1).random((6, 3)).astype(np.float32)


def predict(x):
    return {"scores": hnp.tanh(x @ weights), "best": hnp.argmax(x @ weights, axis=1)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    hl.export(predict, x, folder=folder, name="scores")
    (folder / "key.txt").write_text("secret\n")
    return folder


@pytest.fixture(scope="module")
def server(folder):
    models = ["libscores.so", "scores2@1=libscores.so", "scores2@2=libscores.so"]
    server = Server(folder, [*models, "--key-file", "key.txt", "--max-body", "0.5"])
    yield server
    assert server.close() == 0


def test_answers_are_those_of_the_function(server):
    expected = {k: np.asarray(v) for k, v in hl.jit(predict)(x).items()}
    status, answer = server.ask("/v2/models/scores/infer", {**inputs(x), "id": "7"}, KEY)
    assert status == 200 and answer["id"] == "7"
    found = {o["name"]: np.asarray(o["data"], np.float32).reshape(o["shape"]) for o in answer["outputs"]}
    assert np.array_equal(found["scores"], expected["scores"]) and np.array_equal(found["best"], expected["best"])
    one = {**inputs(x), "outputs": [{"name": "best"}]}
    assert [o["name"] for o in server.ask("/v2/models/scores/infer", one, KEY)[1]["outputs"]] == ["best"]
    described = server.ask("/v2/models/scores", headers=KEY)[1]
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [4, 6]}]


def test_versions(server):
    for version in ("1", "2"):
        status, answer = server.ask(f"/v2/models/scores2/versions/{version}/infer", inputs(x), KEY)
        assert status == 200 and answer["model_version"] == version
    assert server.ask("/v2/models/scores2/versions/3/infer", inputs(x), KEY)[0] == 404


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"inputs": []}, "'x' is missing"),
        (inputs(x, name="y"), "it takes x"),
        ({"inputs": inputs(x)["inputs"] * 2}, "twice"),
        (inputs(x, datatype="INT32"), "x is INT32, it must be FP32"),
        (inputs(x[:2]), r"the shape \[2, 6\], it must be \[4, 6\]"),
        (inputs(x, shape=[-4, -6]), "it must be"),
        (inputs(x, data=[1.0]), "has 1 elements, its shape"),
        (inputs(x, data=[]), "has 0 elements"),
        (inputs(x, data=["a"] * 24), "are not FP32"),
        ({**inputs(x), "outputs": [{"name": "worst"}]}, "there is no output 'worst'"),
    ],
)
def test_bad_requests_have_status_400_and_the_server_lives(server, body, text):
    status, answer = server.ask("/v2/models/scores/infer", body, KEY)
    assert status == 400
    assert re.search(text, answer)
    assert server.ask("/v2/models/scores/infer", inputs(x), KEY)[0] == 200


def test_broken_json_unknown_models_keys_and_large_bodies(server):
    assert server.ask("/v2/models/scores/infer", raw=b"{broken", headers=KEY)[0] == 422
    assert server.ask("/v2/models/scores/infer", {}, KEY)[0] == 422
    assert server.ask("/v2/models/absent/infer", inputs(x), KEY)[0] == 404
    assert server.ask("/v2/models/scores/infer", inputs(x))[0] == 401
    assert server.ask("/v2/models/scores/infer", inputs(x), {"Authorization": "Bearer wrong"})[0] == 401
    assert server.ask("/v2/models/scores/infer", raw=b" " * (1 << 20), headers=KEY)[0] == 413
    with socket.create_connection(("127.0.0.1", server.http), 10) as raw:  # a body without a length
        head = "POST /v2/models/scores/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n"
        raw.sendall(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        answer = b""
        try:
            for _ in range(20):
                raw.sendall(chunk)
            answer = raw.recv(200)
        except OSError:
            pass  # the server has hung up
        assert not answer or b"413" in answer
    assert server.ask("/v2/models/scores/infer", inputs(x), KEY)[0] == 200


def test_metrics_count_requests(server):
    text = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=30).read().decode()
    assert "rest_server_requests_total" in text and "/v2/models/" in text


def test_grpc_has_the_same_answers_and_wants_the_key(server):
    import grpc
    from mlserver.grpc import dataplane_pb2, dataplane_pb2_grpc

    tensor = dataplane_pb2.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[4, 6])
    tensor.contents.fp32_contents.extend(x.ravel().tolist())
    request = dataplane_pb2.ModelInferRequest(model_name="scores", inputs=[tensor])
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        stub = dataplane_pb2_grpc.GRPCInferenceServiceStub(channel)
        answer = stub.ModelInfer(request, metadata=[("authorization", "Bearer secret")], timeout=30)
        scores = next(o for o in answer.outputs if o.name == "scores")
        expected = np.asarray(hl.jit(predict)(x)["scores"])
        assert np.array_equal(np.asarray(scores.contents.fp32_contents, np.float32).reshape(4, 3), expected)
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(request, timeout=30)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        del request.inputs[0].contents.fp32_contents[:]
        with pytest.raises(grpc.RpcError):
            stub.ModelInfer(request, metadata=[("authorization", "Bearer secret")], timeout=30)
        assert stub.ServerLive(dataplane_pb2.ServerLiveRequest(), metadata=[("authorization", "Bearer secret")]).live


@pytest.mark.slow
def test_tls(folder):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost"
    subprocess.run(
        [*make.split(), "-addext", "subjectAltName=IP:127.0.0.1"], cwd=folder, check=True, capture_output=True
    )
    context = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    server = Server(folder, ["libscores.so", "--tls-certificate", "cert.pem", "--tls-key", "key.pem"], context)
    try:
        assert server.ask("/v2/models/scores/infer", inputs(x))[0] == 200
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{server.http}/v2/health/ready", timeout=10)
        import grpc
        from mlserver.grpc import dataplane_pb2, dataplane_pb2_grpc

        credentials = grpc.ssl_channel_credentials((folder / "cert.pem").read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{server.grpc}", credentials) as channel:
            stub = dataplane_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert stub.ServerLive(dataplane_pb2.ServerLiveRequest(), timeout=30).live
    finally:
        assert server.close() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["absent.so"], "there is no such file"),
        (["libscores.so", "--timeout", "-1"], "at least 0.001"),
        (["key.txt"], "load it on the system"),
        (["libscores.so:forecast"], "there is no 'forecast'; it has predict"),
        (["libscores.so", "libscores.so"], "two are 'scores'"),
        (["libscores.so", "--max-batch", "8"], 'hl.Dim("batch", 1, 8)'),
        (["libscores.so", "--tls-key", "key.txt"], "--tls-certificate FILE"),
        (["libscores.so", "--port", "9", "--grpc-port", "9"], "different ports"),
        (["libscores.so", "--key-file", "absent"], "reading the key"),
    ],
)
def test_mistakes_of_the_command_line(folder, arguments, text):
    command = [sys.executable, "-m", "hloom", "serve", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and text in done.stderr, done.stderr


@pytest.mark.slow
def test_a_port_in_use(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "hloom", "serve", "libscores.so", "--port", port]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == 2 and f"port {port}" in done.stderr


@pytest.mark.slow
def test_requests_are_computed_together_where_the_library_takes_a_range_of_batches(folder):
    batches = hl.ShapeDtypeStruct((hl.Dim("batch", 1, 16), 6), np.float32)
    hl.export(predict, batches, folder=folder, name="ranged")
    server = Server(folder, ["libranged.so", "--max-batch", "16", "--max-wait", "20"])
    try:
        expected = np.asarray(hl.jit(predict)(x)["scores"])
        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            asked = [
                clients.submit(server.ask, "/v2/models/ranged/infer", inputs(x[k % 4 : k % 4 + 1])) for k in range(24)
            ]
            bad = clients.submit(server.ask, "/v2/models/ranged/infer", inputs(np.zeros((17, 6), np.float32)))
            for k, waiting in enumerate(asked):
                status, answer = waiting.result(60)
                scores = next(o for o in answer["outputs"] if o["name"] == "scores")
                assert status == 200 and scores["shape"] == [1, 3]
                assert np.allclose(scores["data"], expected[k % 4], atol=1e-6)
            assert bad.result(60)[0] == 400
    finally:
        assert server.close() == 0
