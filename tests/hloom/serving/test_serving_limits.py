"""What strangers may do to `hloom serve`: management, other sites, slow and many connections, odd numbers."""

import concurrent.futures
import contextlib
import gzip
import json
import shutil
import socket
import threading
import time

import numpy as np
import pytest
from served import Server, inputs

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, ExportError
from hloom.serving.checks import check_access
from hloom.serving.options import ServerOptions, parse_model

pytest.importorskip("mlserver", reason="MLServer is not installed: pip install 'hloom[serve]'")
pytestmark = pytest.mark.skipif(not (shutil.which("cc") or shutil.which("zig")), reason="no C compiler")

KINDS = {"bool": "BOOL", "int8": "INT8", "uint64": "UINT64", "int64": "INT64", "float16": "FP16", "float32": "FP32"}
KINDS |= {"float64": "FP64"}
USE, MANAGE = {"Authorization": "Bearer use"}, {"Authorization": "Bearer manage"}


def special(x):
    return {"inverse": 1 / x, "log": hnp.log(x), "half": (1 / x).astype("float16")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    hl.export(special, np.ones(1, "f4"), folder=folder, name="special")
    for dtype in KINDS:
        hl.export(lambda x: x, np.ones(2, dtype), folder=folder, name=f"as_{dtype}")
    (folder / "use.txt").write_text("use\n")
    (folder / "manage.txt").write_text("manage")
    return folder


@pytest.fixture(scope="module")
def server(folder):
    """Without keys; management is on."""
    names = ["special", *[f"as_{dtype}" for dtype in KINDS]]
    server = Server(
        folder, [*[f"lib{n}.so" for n in names], "--management", "--max-connections", "12", "--max-body", "1"]
    )
    yield server
    assert server.close() == 0


@pytest.fixture(scope="module")
def guarded(folder):
    """With both keys."""
    files = ["--key-file", "use.txt", "--management", "--management-key-file", "manage.txt"]
    server = Server(folder, ["libspecial.so", *files])
    yield server
    assert server.close() == 0


@pytest.fixture(scope="module")
def stub(server):
    import grpc
    from mlserver.grpc import dataplane_pb2, dataplane_pb2_grpc

    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        yield dataplane_pb2_grpc.GRPCInferenceServiceStub(channel), dataplane_pb2, grpc


def echoed(server, dtype, data, shape=(2,)):
    one = {"name": "x", "shape": list(shape), "datatype": KINDS[dtype], "data": data}
    status, answer = server.ask(f"/v2/models/as_{dtype}/infer", {"inputs": [one]})
    return status, answer["outputs"][0]["data"] if status == 200 else answer


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("int64", [1, 1.7]), ("int64", [1.0, 1]), ("int64", ["5_0", 1]), ("int64", [True, 1]), ("int64", [2**63, 1]),
        ("int64", [None, 1]), ("int64", [1e3, 1]), ("int8", [128, 0]), ("int8", [-129, 0]), ("uint64", [-1, 0]),
        ("uint64", [2**64, 0]), ("bool", ["false", True]), ("bool", [1, 0]), ("bool", [None, True]), ("bool", [0.5, 1]),
        ("float32", [1e39, 0]), ("float32", [-(10**39), 0]), ("float32", ["1", 0]), ("float32", [None, 0]),
        ("float32", [True, 0]), ("float16", [65520, 0]), ("float64", ["inf", 0]), ("float64", [[1, 2], 3]),
        ("float64", [[[1.0]], [[2.0]]]), ("float64", {"0": 1, "1": 2}), ("float64", "12"), ("float64", 3),
    ],
)  # fmt: skip
def test_elements_that_a_datatype_does_not_have(server, dtype, data):
    status, text = echoed(server, dtype, data)
    assert status == 400 and KINDS[dtype] in text, text


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("int64", [-(2**63), 2**63 - 1]), ("uint64", [0, 2**64 - 1]), ("int8", [-128, 127]), ("bool", [True, False]),
        ("float32", [1, 3.4028234663852886e38]), ("float16", [65504, -0.0]), ("float64", [1e308, 5e-324]),
    ],
)  # fmt: skip
def test_elements_come_back_as_they_were_sent(server, dtype, data):
    assert echoed(server, dtype, data) == (200, data)


def test_nested_data(folder, server):
    assert echoed(server, "int64", [[1, 2]], [1, 2])[0] == 400  # of another shape than the model's
    assert "elements" in echoed(server, "int64", [[1, 2]])[1]


def test_infinities_and_nan(server, stub):
    """In JSON they are null, in gRPC themselves, in the shape that the function gave."""
    status, answer = server.ask("/v2/models/special/infer", inputs(np.zeros(1, "f4")))
    assert status == 200 and all(one["shape"] == [1] and one["data"] == [None] for one in answer["outputs"])
    calls, messages, _ = stub
    for value, wanted in ((0.0, [np.inf, -np.inf]), (-1.0, [-1.0, np.nan])):
        tensor = messages.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1])
        raw = messages.ModelInferRequest(model_name="special", inputs=[tensor])
        raw.raw_input_contents.append(np.float32(value).tobytes())
        answer = calls.ModelInfer(raw, timeout=30)
        found = dict(zip([one.name for one in answer.outputs], answer.raw_output_contents, strict=True))
        got = [np.frombuffer(found[name], "f4")[0] for name in ("inverse", "log")]
        np.testing.assert_array_equal(got, wanted)
        assert all(list(one.shape) == [1] for one in answer.outputs)
        assert np.frombuffer(found["half"], "f2") == np.float16(wanted[0])


def test_malformed_requests_of_grpc_are_errors_of_the_client(stub):
    calls, messages, grpc = stub
    good = np.ones(2, "f4").tobytes()
    for datatype, shape, raws, contents in (
        ("FP32", [2], [good[:-1]], {}),
        ("FP32", [2], [good, good], {}),
        ("FP32", [1 << 60], [good], {}),
        ("FP32", [-2], [good], {}),
        ("FP99", [2], [good], {}),
        ("FP32", [2], [good], {"fp32_contents": [1.0, 2.0]}),
        ("FP32", [2], [], {"bytes_contents": [b"1", b"2"]}),
        ("FP32", [2], [], {"bool_contents": [True, False]}),
        ("FP32", [2], [], {}),
    ):
        tensor = messages.ModelInferRequest.InferInputTensor(
            name="x", datatype=datatype, shape=shape, contents=contents
        )
        request = messages.ModelInferRequest(model_name="as_float32", inputs=[tensor], raw_input_contents=raws)
        with pytest.raises(grpc.RpcError) as error:
            calls.ModelInfer(request, timeout=30)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT, (datatype, shape, raws, error.value)
    request = messages.ModelInferRequest(model_name="as_bool", raw_input_contents=[b"\2\0"])
    request.inputs.append(messages.ModelInferRequest.InferInputTensor(name="x", datatype="BOOL", shape=[2]))
    with pytest.raises(grpc.RpcError, match="0 or 1"):
        calls.ModelInfer(request, timeout=30)
    with pytest.raises(grpc.RpcError) as error:
        list(calls.ModelStreamInfer(iter([request]), timeout=30))
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_management_is_never_for_other_sites(server):
    host = f"127.0.0.1:{server.http}"
    for headers in (
        {"Origin": "http://example.org"}, {"Origin": "null"}, {"Origin": f"http://{host}.example.org"},
        {"Origin": "http://127.0.0.1:1"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
        {"Host": "example.org"}, {"Host": "example.org", "Origin": "http://example.org"}, {"Host": "[::1"},
    ):  # fmt: skip
        for path in ("models/special/unload", "models/special/load", "index"):
            assert server.ask(f"/v2/repository/{path}", {}, headers)[0] == 403, headers
    assert server.ask("/v2/health/ready")[0] == 200
    same = {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert server.ask("/v2/repository/models/special/unload", {}, same)[0] == 200
    assert server.ask("/v2/repository/models/special/load", {}, same)[0] == 200


def test_models_that_are_unloaded_can_be_loaded_again(server):
    request = inputs(np.ones(1, "f4"))
    assert server.ask("/v2/repository/models/special/unload", {})[0] == 200
    assert server.ask("/v2/health/ready")[0] != 200  # one of its models is not there
    assert server.ask("/v2/models/special/ready")[0] == server.ask("/v2/models/special/infer", request)[0] == 404
    states = {one["name"]: one["state"] for one in server.ask("/v2/repository/index", {})[1]}
    assert states["special"] == "UNAVAILABLE" and states["as_int64"] == "READY"
    assert server.ask("/v2/repository/models/special/load", {})[0] == 200
    assert server.ask("/v2/health/ready")[0] == server.ask("/v2/models/special/infer", request)[0] == 200
    assert server.ask("/v2/repository/models/absent/load", {})[0] == 404


def test_models_are_unloaded_after_the_calls_that_run(server):
    request = inputs(np.ones(1, "f4"))
    with concurrent.futures.ThreadPoolExecutor(6) as clients:
        asked = [clients.submit(server.ask, "/v2/models/special/infer", request) for _ in range(60)]
        for _ in range(5):
            assert server.ask("/v2/repository/models/special/unload", {})[0] == 200
            assert server.ask("/v2/repository/models/special/load", {})[0] == 200
        assert {one.result(30)[0] for one in asked} <= {200, 400, 404}
    assert server.ask("/v2/models/special/infer", request)[0] == 200


def test_a_library_is_closed_after_the_calls_that_run(folder):
    library = hl.export.load(folder / "libspecial.so")
    begun, checked = threading.Event(), library._check

    def slow(*arguments):
        begun.set()
        time.sleep(0.2)
        checked(*arguments)

    library._check = slow
    with concurrent.futures.ThreadPoolExecutor(2) as workers:
        running = workers.submit(library.special, np.ones(1, "f4"))
        assert begun.wait(10)
        library.close()
        assert running.done() and running.result()["inverse"] == 1
    with pytest.raises(ExportError, match="closed"):
        library.special(np.ones(1, "f4"))


def test_each_key_opens_its_own_routes(guarded):
    request = inputs(np.ones(1, "f4"))
    for headers, infer, manage in (({}, 401, 401), (USE, 200, 401), (MANAGE, 401, 200)):
        assert guarded.ask("/v2/models/special/infer", request, headers)[0] == infer
        assert guarded.ask("/v2/repository/index", {}, headers)[0] == manage
    assert guarded.ask("/v2/repository/index", {}, {**MANAGE, "Origin": "http://example.org"})[0] == 403
    import grpc
    from mlserver.grpc import dataplane_pb2, dataplane_pb2_grpc, model_repository_pb2, model_repository_pb2_grpc

    code = grpc.StatusCode
    with grpc.insecure_channel(f"127.0.0.1:{guarded.grpc}") as channel:
        both = (dataplane_pb2_grpc.GRPCInferenceServiceStub(channel), dataplane_pb2), (
            model_repository_pb2_grpc.ModelRepositoryServiceStub(channel), model_repository_pb2
        )  # fmt: skip
        for calls, messages in both:
            for key, wanted in (("use", code.UNAUTHENTICATED), ("wrong", code.UNAUTHENTICATED), ("manage", None)):
                metadata = [("authorization", f"Bearer {key}")]
                try:
                    calls.RepositoryIndex(messages.RepositoryIndexRequest(), metadata=metadata, timeout=30)
                    found = None
                except grpc.RpcError as error:
                    found = error.code()
                assert found == wanted, (calls, key)


def test_management_is_off_unless_it_is_asked_for(folder):
    server = Server(folder, ["libspecial.so"])
    try:
        for path in ("models/special/unload", "models/special/load", "index"):
            status, text = server.ask(f"/v2/repository/{path}", {})
            assert status == 403 and "--management" in text
        assert server.ask("/v2/models/special/ready")[0] == 200
        import grpc
        from mlserver.grpc import dataplane_pb2, dataplane_pb2_grpc

        with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
            calls = dataplane_pb2_grpc.GRPCInferenceServiceStub(channel)
            with pytest.raises(grpc.RpcError, match="PERMISSION_DENIED"):
                calls.RepositoryModelUnload(
                    dataplane_pb2.RepositoryModelUnloadRequest(model_name="special"), timeout=30
                )
    finally:
        assert server.close() == 0


def test_compressed_bodies_are_bounded(server):
    body, gzipped = json.dumps(inputs(np.ones(1, "f4"))).encode(), {"Content-Encoding": "gzip"}
    path = "/v2/models/special/infer"
    assert server.ask(path, raw=gzip.compress(body), headers=gzipped)[0] == 200
    assert server.ask(path, raw=gzip.compress(b" " * (50 << 20)), headers=gzipped)[0] == 413
    assert server.ask(path, raw=gzip.compress(body)[:-9], headers=gzipped)[0] == 400
    assert server.ask(path, raw=b"no gzip", headers=gzipped)[0] == 400
    assert server.ask(path, raw=body, headers={"Content-Encoding": "br"})[0] == 415


def test_deep_json_is_an_error_of_the_client(server):
    assert server.ask("/v2/models/special/infer", raw=b"[" * 100_000)[0] == 422
    assert server.ask("/v2/models/special/infer", raw=b'{"inputs":' * 5000)[0] == 422


def test_many_connections_and_slow_headers(server):
    """The limit of connections is 12; a header has 10 s, however its bytes come."""
    with contextlib.ExitStack() as kept:
        slow = [kept.enter_context(socket.create_connection(("127.0.0.1", server.http), 10)) for _ in range(12)]
        for one in slow:
            one.sendall(b"GET /v2 HTTP/1.1\r\nx: ")
        began = time.monotonic()
        time.sleep(0.3)
        assert server.status("/v2/health/ready") == 503
        answers = {}
        while len(answers) < len(slow) and time.monotonic() - began < 25:
            for one in slow:
                if one not in answers:
                    with contextlib.suppress(TimeoutError):
                        one.settimeout(0.05)
                        try:
                            one.sendall(b"a")
                            answers[one] = one.recv(100)
                        except ConnectionError:
                            answers[one] = b""
        assert len(answers) == len(slow) and 8 < time.monotonic() - began < 20
    assert server.status("/v2/health/ready") == 200


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"management": True, "key": "use"}, "unload them"),
        ({"management": True, "host": "0.0.0.0"}, "unload them"),
        ({"management": True, "key": "a", "management_key": "a"}, "another key"),
        ({"management_key": "a"}, "management is off"),
        ({"management": True, "server": "triton"}, "closed to clients"),
    ],
)
def test_keys_that_leave_management_open(changes, found):
    with pytest.raises(ArgumentError, match=found):
        check_access(ServerOptions(**changes))


@pytest.mark.parametrize("text", ["..=lib.so", ".=lib.so", "...so", "lib<b>.so", "li b.so", "a/\n.so"])
def test_names_of_models_are_names(text):
    with pytest.raises(ArgumentError):
        parse_model(text)
