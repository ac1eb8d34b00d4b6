"""Programs for several devices as jax 0.10 prints them, with Shardy's annotations and with HLO's.

They were lowered for 8 devices. Each is read, keeps what it says of devices, means the same as the unsharded program,
and is written in both languages, which jaxlib accepts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xla

from hloom.errors import ParseError
from hloom.ir.interpret import run
from hloom.ir.module import below
from hloom.ir.spmd.sharding import DeviceMesh, Sharding, on_device
from hloom.ir.stablehlo import parse_program, print_program, stablehlo_text, to_module
from hloom.ir.text import parse_module, print_module
from hloom.ir.verify import verify

FOLDER = Path(__file__).parents[2] / "support" / "sharded"
FILES = sorted(FOLDER.iterdir())
NAMES = sorted({f.stem.split("_", 1)[1] for f in FILES})


def loss(w, x):
    return np.mean(np.tanh(x @ w) ** 2)


def loss_gradient(w, x):
    y = np.tanh(x @ w)
    return x.T @ (2 * y * (1 - y**2) / y.size)


def tanh_gradient(w, x):
    return x.T @ (1 - np.tanh(x @ w) ** 2)


def scanned(x):
    c, parts = x.reshape(8, 2, 3), x.reshape(8, 2, 3)
    for _ in range(3):
        c = c.sum(0) * np.float32(0.1) + parts
    return c.reshape(16, 3)


def exchanged(x):
    """Device k gets the k-th part of each device's columns."""
    return x.reshape(8, 2, 8, 1).transpose(2, 0, 1, 3).reshape(128, 1)


MEANING = {
    "data_parallel": loss_gradient,
    "fsdp": lambda w, x: (loss(w, x), loss_gradient(w, x)),
    "tensor_parallel": lambda down, up, x: np.maximum(x @ up, 0) @ down,
    "unconstrained": lambda x: np.sin(x) * 2,
    "psum": lambda x: x.reshape(8, 2, 3).sum(0),
    "ppermute": lambda x: np.roll(x, 2, 0),
    "all_gather": lambda x: np.tile(x * 2, (8, 1)),
    "all_to_all": exchanged,
    "psum_scatter": lambda x: x.reshape(8, 8, 3).sum(0),
    "axis_index": lambda x: x + np.repeat(np.arange(8), 2)[:, None],
    "mixed": lambda x, w: x.reshape(2, 2, 4).sum(0) @ w,
    "two_axes": lambda x: 2 * x.reshape(2, 2, 4, 2).sum((0, 2)),
    "shard_map_grad": tanh_gradient,
    "scan": scanned,
    "explicit": lambda a, b: (a @ b).T,
    "nested": lambda x: x.reshape(4, 4, 2).sum(1) * 2,
    "pmap": lambda x: x + x.sum(0),
}


def read(path: Path):
    text = path.read_text()
    return parse_module(text, path.name) if path.suffix == ".hlo" else to_module(parse_program(text, path.name))


def results(module, arguments) -> list[np.ndarray]:
    found = run(module, arguments)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_it_means_what_it_means_on_one_device(path):
    module = read(path)
    verify(module)
    assert module.partitions == 8
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=p.dims).astype(p.dtype) for p in module.entry.parameters]
    wanted = MEANING[path.stem.split("_", 1)[1]](*arguments)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    texts = [module, to_module(parse_program(stablehlo_text(module))), parse_module(print_module(module))]
    for one in texts:
        verify(one)
        for a, b in zip(results(one, arguments), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_written_and_read_it_stays(path):
    module = read(path)
    text = stablehlo_text(module)
    assert stablehlo_text(to_module(parse_program(text))) == text
    text = print_module(module)
    assert print_module(parse_module(text)) == text


@pytest.mark.parametrize("path", [f for f in FILES if f.suffix == ".mlir"], ids=lambda p: p.name)
def test_the_syntax_tree_prints_as_it_was(path):
    text = path.read_text()
    printed = print_program(parse_program(text))
    assert print_program(parse_program(printed)) == printed
    for word in ("sdy.sharding =", "mhlo.sharding =", "sdy.manual_computation", "sdy.sharding_constraint", "sdy.mesh"):
        assert printed.count(word) == text.count(word)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_jaxlib_accepts_what_is_written(path):
    module = read(path)
    xla.parse(print_module(module))
    pytest.importorskip("jax", reason="jax is not installed")
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        found = ir.Module.parse(stablehlo_text(module))
        assert found.operation.verify()


def layouts(module):
    """Of parameters, results, constraints and manual computations: the part that each device has."""

    def part(sharding, shape):
        if sharding is None:
            return None
        assert isinstance(sharding, Sharding)
        regions = tuple(str(sharding.region(k, shape.dims)) for k in range(sharding.mesh.size))
        return regions, tuple(sorted(sharding.open))

    entry = module.entry
    root = entry.root.sharding if isinstance(entry.root.sharding, tuple) else (entry.root.sharding,)
    shapes = entry.shape.elements if hasattr(entry.shape, "elements") else (entry.shape,)
    root = root if len(root) == len(shapes) else (None,) * len(shapes)
    found = [part(p.sharding, p.shape) for p in entry.parameters]
    found += [part(s, shape) for s, shape in zip(root, shapes, strict=True)]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_both_annotations_say_the_same(name):
    shardy, tiles = (layouts(read(FOLDER / f"{kind}_{name}.mlir")) for kind in ("shardy", "gspmd"))
    assert tiles == shardy
    module = read(FOLDER / f"gspmd_{name}.hlo")
    count = len(module.entry.parameters)
    assert layouts(module)[:count] == shardy[:count]
    given = [{i["in_shardings"][0].local_dims(i.operands[0].dims) for i in below(read(f).entry.instructions)
              if i.opcode == "manual-computation"} for f in FILES if f.stem.split("_", 1)[1] == name]  # fmt: skip
    assert given[0] == given[1] == given[2]


def test_annotations_are_kept():
    module = read(FOLDER / "shardy_tensor_parallel.mlir")
    mesh = DeviceMesh(("data", "model"), (2, 4))
    assert [p.sharding for p in module.entry.parameters] == [
        Sharding(mesh, (("model",), ())), Sharding(mesh, ((), ("model",))), Sharding(mesh, (("data",), ())),
    ]  # fmt: skip
    held = [i["sharding"].dims for i in module.entry.instructions if i.opcode == "sharding-constraint"]
    assert held == [(("data",), ("model",)), (("data",), ())]
    (opened,) = [i for i in read(FOLDER / "shardy_unconstrained.mlir").instructions() if "sharding" in i.attributes]
    assert opened["sharding"] == Sharding(mesh, (("data",), ()), open=(1,))
    (manual,) = [i for i in read(FOLDER / "shardy_mixed.mlir").instructions() if i.opcode == "manual-computation"]
    assert manual["manual_axes"] == ("data",)
    assert manual["in_shardings"][0] == Sharding(mesh, (("data",), ()), open=(0, 1))


def program(body: str, *, argument: str = "", result: str = "", mesh: str = '<["x"=2, "y"=4]>', count: int = 8) -> str:
    return (
        f"module @m attributes {{mhlo.num_partitions = {count} : i32}} {{\n  sdy.mesh @mesh = {mesh}\n"
        f"  func.func public @main(%arg0: tensor<8x8xf32>{argument}) -> (tensor<8x8xf32>{result})"
        f" {{\n{body}\n  }}\n}}\n"
    )


SHARDY = """    %0 = sdy.all_gather [{}, {"y"}] %arg0 out_sharding=<@mesh, [{"x"}, {}]> : tensor<8x8xf32>
    %1 = sdy.all_slice [{}, {"y"}] %0 out_sharding=<@mesh, [{"x"}, {"y"}]> : tensor<8x8xf32>
    %2 = sdy.all_to_all [{"y"}: 1->0] %1 out_sharding=<@mesh, [{"x", "y"}, {}]> : tensor<8x8xf32>
    %3 = sdy.collective_permute %2 out_sharding=<@mesh, [{"y", "x"}, {}]> : tensor<8x8xf32>
    %4 = sdy.all_reduce {"x"} %3 out_sharding=<@mesh, [{"y"}, {}]> : tensor<8x8xf32>
    %5 = sdy.reduce_scatter [{"x"}, {}] %4 out_sharding=<@mesh, [{"y", "x"}, {}]> : tensor<8x8xf32>
    %6 = sdy.propagation_barrier %5 allowed_direction=BACKWARD : tensor<8x8xf32>
    sdy.sharding_group %6 group_id=3 : tensor<8x8xf32>
    %7 = sdy.reshard %6 <@mesh, [{"y":(2)2}, {"y":(1)2}p1], replicated={"x"}> : tensor<8x8xf32>
    %8 = stablehlo.negate %7 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{?}, {"x", ?}]>]>} : tensor<8x8xf32>
    return %8 : tensor<8x8xf32>"""


def test_shardys_collectives_are_constraints():
    text = program(SHARDY)
    module = to_module(parse_program(text))
    verify(module)
    printed = print_program(parse_program(text))
    assert print_program(parse_program(printed)) == printed and printed.count("out_sharding") == 6
    found = [i["sharding"] for i in module.entry.instructions if i.opcode == "sharding-constraint"]
    assert [s.dims for s in found[:6]] == [
        (("x",), ()), (("x",), ("y",)), (("x", "y"), ()), (("y", "x"), ()), (("y",), ()), (("y", "x"), ()),
    ]  # fmt: skip
    atomic = DeviceMesh(("x", "y"), (2, 4)).atomic()
    assert found[6] == Sharding(atomic, (("y.1",), ("y.0",)), (), (), ("x",), (0, 1))
    assert module.entry.root.sharding == Sharding(DeviceMesh(("x", "y"), (2, 4)), ((), ("x",)), open=(0, 1))
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    np.testing.assert_array_equal(run(module, [x]), -x)


def test_an_array_on_one_device():
    text = program("    return %arg0 : tensor<8x8xf32>", mesh="<[], device_ids=[3]>",
                   argument=" {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}")  # fmt: skip
    module = to_module(parse_program(text))
    assert module.entry.parameters[0].sharding == on_device(3, 2)
    assert "maximal device=3" in print_module(module)
    again = to_module(parse_program(stablehlo_text(module)))
    assert again.entry.parameters[0].sharding == on_device(3, 2)


def test_a_sharding_may_be_empty():
    text = program("    return %arg0 : tensor<8x8xf32>", argument=' {mhlo.sharding = ""}')
    assert to_module(parse_program(text)).entry.parameters[0].sharding is None


def test_for_one_device_nothing_is_left_of_it():
    text = (FOLDER / "shardy_tensor_parallel.mlir").read_text()
    module = to_module(parse_program(text), shardings=False)
    assert module.partitions == 1 and all(i.sharding is None for i in module.instructions())
    assert not any(i.opcode == "sharding-constraint" for i in module.instructions())


BAD = {
    "unknown axis": ({"argument": ' {sdy.sharding = #sdy.sharding<@mesh, [{"z"}, {}]>}'}, "an axis 'z'"),
    "repeated axis": ({"argument": ' {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"x"}]>}'}, "each axis once"),
    "wrong rank": ({"argument": ' {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}'}, "for each dimension"),
    "wrong rank of a result": ({"result": ' {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}'}, "for each dimension"),
    "no such mesh": ({"argument": ' {sdy.sharding = #sdy.sharding<@other, [{"x"}, {}]>}'}, "no mesh"),
    "wrong number of devices": ({"count": 4}, "mesh has 8 devices"),
    "repeated axis of a mesh": ({"mesh": '<["x"=2, "x"=4]>'}, "have distinct names"),
    "device ids": ({"mesh": '<["x"=2], device_ids=[0, 0]>'}, "each of its 2 devices once"),
    "part of an axis": ({"argument": ' {sdy.sharding = #sdy.sharding<@mesh, [{"y":(1)3}, {}]>}'}, "part of size 3"),
    "tiles": ({"argument": ' {mhlo.sharding = "{devices=[2,2]<=[4]}"}'}, "over 4 devices"),
    "tiles of a wrong rank": ({"argument": ' {mhlo.sharding = "{devices=[8]<=[8]}"}'}, "rank 2"),
    "no sharding": ({"argument": ' {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}>}'}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_errors_say_what_is_wrong_and_where(name):
    given, said = BAD[name]
    with pytest.raises(ParseError) as caught:
        to_module(parse_program(program("    return %arg0 : tensor<8x8xf32>", **given), "bad.mlir"))
    error = caught.value
    assert said in f"{error.asked} {error.found}" and error.found and error.source.line
    assert error.repair or name == "no sharding"


@pytest.mark.parametrize("sharding", ['[{"x"}]', "[{?}]", '[{"x"}, {}, {}]', '[{"x"}, {"x"}]'])
def test_a_constraint_that_does_not_fit_is_an_error_of_its_line(sharding):
    body = (
        f"    %0 = sdy.sharding_constraint %arg0 <@mesh, {sharding}> : tensor<8x8xf32>\n    return %0 : tensor<8x8xf32>"
    )
    with pytest.raises(ParseError) as caught:
        to_module(parse_program(program(body), "bad.mlir"))
    text = program(body).splitlines()
    assert "sharding_constraint" in text[caught.value.source.line - 1]
