"""Every error class, raised by a mistake that a user can make: its four parts, and this file's line."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, lax
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Module
from hloom.ir.text import parse_module
from hloom.ir.types import Shape
from hloom.ir.verify import verify
from hloom.sessions.queues import FIFOQueue

pytestmark = pytest.mark.quick

X = hnp.ones((2, 3))
LINKED: tuple = ()
for _ in range(5000):
    LINKED = (1.0, LINKED)
kept: list = []


def leak():
    hl.jit(lambda x: kept.append(x + 1) or x)(X)
    return kept.pop()


LEAKED = leak()


def donated():
    x = X + 1
    hl.jit(lambda x: x * 2, donate_argnums=0)(x)
    return x


def broken_module() -> Module:
    builder = Builder("broken")
    x = builder.parameter(Shape("f32", (2,)))
    root = builder.emit("negate", x)
    return Module("broken", Computation("broken", [x], [root, x], root))


TEXT = """HloModule m
ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  ROOT %y = f32[2]{0} tnah(%x)
}
"""


def grad_of_a_custom_call():
    hl.register_custom_call("test.errors_identity", lambda x: x)
    call = lambda x: hnp.sum(lax.custom_call("test.errors_identity", x, shape=(x.dtype, x.shape)))  # noqa: E731
    return hl.grad(call)(X)


def under_debug_nans(function):
    with hl.debug_nans():
        return function()


def under_debug_key_reuse(function):
    with hl.config(debug_key_reuse=True):
        return function(hl.random.key(0))


def split_sums():
    with hl.config(num_cpu_devices=2):
        mesh = hl.make_mesh((2,), ("x",))
        place = hl.NamedSharding(mesh, hl.P(None, "x")), hl.NamedSharding(mesh, hl.P("x", None))
        return hl.device_put(np.ones((2, 2)), place[0]) @ hl.device_put(np.ones((2, 2)), place[1])


def a_session(closed=False):
    """A session of a program with a placeholder x, a variable w and a queue that is closed and empty."""
    program = hl.sessions.Program("errors")
    with program:
        x = hl.sessions.placeholder("x", [None, 3])
        hl.sessions.target("product", x * hl.sessions.variable("w", lambda: hnp.ones(3)))
        queue = FIFOQueue(2, [np.float32], [()], name="queue")
        hl.sessions.target("element", queue.dequeue())
    queue.close()
    session = hl.sessions.Session(program)
    if closed:
        session.close()
    return session


# class -> mistakes, each on one line (which the error names), and what the message says of what was found.
MISTAKES = {
    "BatchingError": [(lambda: hl.vmap(lambda x: x, out_axes=None)(X), "differs between the batch elements")],
    "ParticipantsError": [(lambda: lax.psum(X, "i"), "named axes around it (of vmap, shard_map): none")],
    "ShardingTypeError": [(split_sums, "both dimensions")],
    "ShapeError": [(lambda: hnp.ones(3) + hnp.ones(4), "(3,) and (4,)"),
                   (lambda: hl.jit(lambda x: x @ x)(X), "3 and 2"),
                   (lambda: hl.jit(lambda x: x.reshape(4))(X), "6 elements")],
    "DTypeError": [(lambda: hnp.zeros(3, dtype="text"), "text"), (lambda: hl.jit(lambda x: x & x)(X), "f32"),
                   (lambda: hnp.asarray(np.array(["a"])), "")],
    "AttributeValueError": [(lambda: lax.slice(X, (0, 0), (5, 5)), "f32[2,3]"),
                            (lambda: lax.reduce_precision(X, 0, 5), "0")],
    "DifferentiationError": [(lambda: hl.grad(lambda x: x * 2)(X), "f32[2,3]"),
                             (lambda: hl.grad(lambda x: hnp.sum(x))(hnp.arange(3)), "s32")],
    "TracerBoolError": [(lambda: hl.jit(lambda x: 1 if x > 0 else 2)(1.0), "pred[]"),
                        (lambda: hl.jit(lambda x: x > 0 and x < 2)(1.0), "pred[]")],
    "TracerConversionError": [(lambda: hl.jit(lambda x: float(x))(1.0), "f32[]"),
                              (lambda: hl.jit(lambda x: np.asarray(x))(X), "f32[2,3]"),
                              (lambda: hl.jit(lambda n: [1, 2][n])(1), "s32[]")],
    "ConcretizationTypeError": [(lambda: hl.jit(hnp.intersect1d)(X, X), "pass size=")],
    "LeakedTracerError": [(lambda: leak() + 1, "f32[2,3]"), (lambda: hl.jit(lambda x: x + LEAKED)(X), "f32[2,3]")],
    "DonatedArrayError": [(lambda: donated() + 1, "f32[2,3]"), (lambda: float(donated()[0, 0]), "f32[2,3]")],
    "ArgumentError": [(lambda: hl.jit(lambda x: x)("text"), "str"), (lambda: hl.jit(5), "int 5"),
                      (lambda: hl.jit(lambda x, k: x, static_argnums=1)(X, [1]), "list [1]"),
                      (lambda: len(hl.data.arrays(X).filter(bool)), "not known"),
                      (lambda: hl.jit(lambda x: {"a": object()})(X), "object"), (lambda: bool(X), "6 elements")],
    "TreeError": [(lambda: hl.jvp(lambda x: x, ([X],), ((X, X),)), ""),
                  (lambda: hl.tree.map(lambda a, b: a, [1, 2], [1]), "")],
    "TreeDepthError": [(lambda: hl.tree.leaves(LINKED), "nested too deeply")],
    "OutOfMemoryError": [(lambda: hnp.ones(1 << 55), "PiB"), (lambda: hl.jit(lambda: hnp.ones(1 << 55))(), "bytes")],
    "FileError": [(lambda: hnp.fromfile("/"), "directory")],
    "CheckpointError": [(lambda: hl.checkpoints.save("/absent/c", {"f": print}), "builtin_function_or_method")],
    "DataError": [(lambda: next(iter(hl.data.sequence([X[0], X]).batch(2))), "float32[2, 3] in record 1")],
    "WorkerError": [(lambda: next(iter(hl.data.arrays(X).map(lambda x: x["a"]))), "IndexError"),
                    (lambda: next(iter(hl.data.arrays(X).map(lambda x: np.stack([x, X])))), "same shape")],
    "DistributedError": [(lambda: hl.distributed.initialize(num_processes=4), "started alone")],
    "ExportError": [(lambda: hl.export(hnp.sin, X, target="mars"), "aarch64-linux")],
    "SessionError": [(lambda: a_session(closed=True).run("w"), "closed")],
    "FetchError": [(lambda: a_session().run("produkt"), "produkt")],
    "FeedError": [(lambda: a_session().run("product", {"x": np.ones(3)}), "(3,)")],
    "UninitializedError": [(lambda: a_session().run("w"), "'w'")],
    "OutOfRangeError": [(lambda: a_session().run("element"), "closed")],
    "MissingFileError": [(lambda: hnp.load("/absent/x.npy"), "/absent/x.npy")],
    "ImmutableArrayError": [(lambda: X.__setitem__(0, 1), "f32[2,3]"),
                            (lambda: hl.jit(lambda x: x.__setitem__(0, 1))(X), "f32[2,3]")],
    "ForeignAttributeError": [(lambda: X.numpy(), "no attribute 'numpy'"),
                              (lambda: hl.jit(lambda x: x.detach())(X), "no attribute 'detach'"),
                              (lambda: hl.optim.adam(1e-3).step(), "no attribute 'step'")],
    "UnsupportedIndexError": [(lambda: X["a"], "str"), (lambda: X[1.5], "float"), (lambda: X[X], "f32[2,3]")],
    "NonConcreteBooleanIndexError": [(lambda: hl.vmap(lambda x: x[x > 0])(X), "pred[3]")],
    "IndexOutOfBoundsError": [(lambda: X[5], "size 2"), (lambda: X[0, 0, 0], "f32[2,3]")],
    "DeviceError": [(lambda: hl.device_put(X, "cpu:99"), "cpu:0"), (lambda: hl.devices("tpu"), "cpu"),
                    (lambda: hl.jit(lambda x: x, device="gpu")(X), "cpu:0")],
    "UndecidedSizeError": [
        (lambda: hl.eval_shape(lambda x: x[5], hl.ShapeDtypeStruct((hl.Dim("n"),), "float32")), "n >= 1 alone"),
        (lambda: range(hl.Dim("n")), "known when the program is called")],
    "KeyReuseError": [(lambda: under_debug_key_reuse(lambda k: [hl.random.normal(k) for _ in "ab"]), "normal at")],
    "NonFiniteError": [(lambda: under_debug_nans(lambda: hnp.log(-X)), "6 of 6 elements of f32[2,3]"),
                       (lambda: under_debug_nans(lambda: hl.jit(lambda x: hnp.sqrt(-x))(X)), "sqrt(-1.0)")],
    "UnsupportedError": [(lambda: lax.infeed(X), "no queue"), (lambda: lax.outfeed(X), "no queue")],
    "SettingError": [(lambda: setattr(hl.config, "fusoin", 1), "fusion"), (lambda: setattr(hl.config, "debug", 7), "")],
}  # fmt: skip
CASES = [(name, call, found) for name, calls in MISTAKES.items() for call, found in calls]


@pytest.mark.parametrize("name,call,found", CASES, ids=[f"{name}-{k}" for k, (name, _, _) in enumerate(CASES)])
def test_mistakes(name, call, found):
    kind = getattr(errors, name)
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert type(error) is kind or name == "ShapeError"
    assert error.asked and error.found and error.repair, str(error)
    assert found in str(error), str(error)
    assert error.source is not None and error.source.file == __file__, str(error)
    code = call.__code__
    lines = {code.co_firstlineno, *(line for _, _, line in code.co_lines() if line)}
    if name not in ("LeakedTracerError", "DonatedArrayError"):
        assert error.source.line in lines, f"{error.source} is not one of the lines {lines}"
    text = str(error)
    for part in (error.asked, f"found:  {error.found}", f"where:  {__file__}:{error.source.line}", error.repair):
        assert part in text


def test_text_that_is_no_module():
    with pytest.raises(errors.ParseError) as caught:
        parse_module(TEXT, "mine.hlo")
    text = str(caught.value)
    assert "tnah" in text and "mine.hlo" in text and "4" in text and "^" in text and "tanh" in text


@pytest.mark.parametrize("opcode", ["infeed", "outfeed", "send", "recv"])
def test_channels_to_the_host_are_refused(opcode):
    text = TEXT.replace("%y = f32[2]{0} tnah(%x)", f"%y = (f32[2]{{0}}, token[]) {opcode}(%x)")
    after = TEXT.replace("ROOT %y = f32[2]{0} tnah(%x)", f"%t = token[] after-all()\n  ROOT %y = token[] {opcode}(%t)")
    mlir = (
        "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  %t = stablehlo.create_token : !stablehlo.token\n  "
        f'%y:2 = "stablehlo.{opcode}"(%x, %t) : (tensor<2xf32>, !stablehlo.token) -> (tensor<2xf32>, '
        "!stablehlo.token)\n  return %y#0 : tensor<2xf32>\n}"
    )
    for call in (lambda: hl.from_hlo(text), lambda: hl.from_hlo(after), lambda: hl.from_stablehlo(mlir)(X[0, :2])):
        with pytest.raises(errors.UnsupportedError) as caught:
            call()
        error = caught.value
        assert "no channels" in error.asked and error.found and "as arguments" in error.repair and error.source


def test_a_module_that_breaks_a_rule():
    with pytest.raises(errors.VerifyError) as caught:
        verify(broken_module())
    assert caught.value.asked and caught.value.found


def test_every_class_has_a_mistake_and_says_in_its_docstring_what_it_is():
    tested = {
        *MISTAKES,
        "ParseError",
        "VerifyError",
        "HloomError",
        "TracerError",
        "CompileTimeWarning",
        "DataDependentWarning",
        "DonationWarning",
        "NonFiniteWarning",
        "FallbackWarning",
        "PlacementWarning",
        "PrecisionWarning",
        "ReplicationWarning",
    }
    assert tested == set(errors.__all__)
    for name in errors.__all__:
        assert len(getattr(errors, name).__doc__) > 40


def test_errors_are_what_python_calls_them():
    for name, base in {"ShapeError": ValueError, "DTypeError": TypeError, "IndexOutOfBoundsError": IndexError,
                       "TracerBoolError": TypeError, "ArgumentError": TypeError, "TreeError": ValueError,
                       "DonatedArrayError": RuntimeError, "DeviceError": RuntimeError}.items():  # fmt: skip
        kind = getattr(errors, name)
        assert issubclass(kind, base) and issubclass(kind, errors.HloomError)


def test_errors_cross_processes():
    with pytest.raises(errors.ShapeError) as caught:
        hnp.ones(3) + hnp.ones(4)
    other = pickle.loads(pickle.dumps(caught.value))
    assert type(other) is errors.ShapeError
    assert (other.asked, other.found, other.repair) == (caught.value.asked, caught.value.found, caught.value.repair)
    assert str(other.source) == str(caught.value.source)


def kinds_of(kind: type) -> list[type]:
    return [kind, *(inner for other in kind.__subclasses__() for inner in kinds_of(other))]


@pytest.mark.parametrize("kind", kinds_of(errors.CudaError))
def test_errors_of_gpus_are_hlooms_too(kind):
    error = kind("this was asked", "that was found", "try this", "model.py:3 in f", 700, "CUDA_ERROR_X")
    assert isinstance(error, errors.HloomError) and isinstance(error, RuntimeError)
    assert str(error).splitlines()[2] == "  where:  model.py:3 in f" and error.code == 700
    here = kind("nothing is known of a line").source
    if kind.immediate:
        assert here.function == "test_errors_of_gpus_are_hlooms_too"
    else:
        assert here == ""  # not the line that happened to wait
    with pytest.raises(errors.HloomError, match="this was asked"):
        raise error


def test_which_errors_of_gpus_come_from_the_call_that_is_made():
    """Those that no work of before can cause."""
    names = {kind.__name__ for kind in kinds_of(errors.CudaError) if kind.immediate}
    assert {"NoDriverError", "DriverTooOldError", "NoGpuError", "ComputeCapabilityError"} < names
    assert {"CudaOutOfMemoryError", "CudaInteropError"} < names
    assert not names & {"CudaError", "CudaLaunchError", "CudaModuleError", "CudaDeviceLostError", "CudaLibraryError"}


def test_the_line_is_that_of_the_operation_inside_the_function():
    @hl.jit
    def outer(x):
        def inner(y):
            z = y * 2
            return z @ z

        return inner(x) + 1

    with pytest.raises(errors.ShapeError) as caught:
        outer(X)
    assert caught.value.source.function == "inner"
    lines = inspect.getsource(inspect.getmodule(inspect.currentframe())).splitlines()
    assert "return z @ z" in lines[caught.value.source.line - 1]


def test_an_op_without_a_derivative_names_its_line():
    with pytest.raises(errors.DifferentiationError, match="custom"):
        grad_of_a_custom_call()
