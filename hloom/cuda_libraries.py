"""What libraries compute in a program on a GPU: products where they were measured to be faster, and linear algebra.

    chooser = LibraryChooser(device)        Executable(program, device, chooser)        chooser.choices

A product that cublasLt can compute (`compiler/targets/cuda/library_products.py`) is computed on arrays made up for it,
by our kernels and by the algorithms that cublasLt proposes first. What the library gives has to agree with ours; the
quickest is taken and kept in the disk cache, as is a failure, so that later processes time nothing and have the same
bits. The key says all that it depends on: the product, our kernels, the GPU, the driver and the library.

`hl.config.cuda_libraries` is 'measured', 'never' or 'always' (cublasLt's first algorithm wherever it has one, not
compared with ours). Our own kernels serve where the library is not installed, where there is no folder to keep a choice
in, and where the library fails; `choices` says which and why.

Routines of linear algebra (`compiler/targets/cuda/linear_algebra.py`) have no kernels of ours: cuSOLVER computes them.
Where it is not installed the host does with `hl.config.soft_placement`, and without it that is an error.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from hloom.compiler.cache import default_cache
from hloom.compiler.targets.cuda.library_products import LibraryProduct
from hloom.config import config
from hloom.ir.records import record, replace
from hloom.ir.types import Shape
from hloom.runtime.cuda.choice import LibraryCall, own_kernels
from hloom.runtime.cuda.cublas_lt import Algorithm, CublasLt, Matmul, Matrix, version_text
from hloom.runtime.cuda.cusolver import CuSolver, RoutineCall
from hloom.runtime.cuda.detach import with_places
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.errors import CudaDeviceLostError, CudaError, CudaLibraryError
from hloom.runtime.cuda.executable import Executable
from hloom.runtime.cuda.libraries import LibraryMissing, load_library
from hloom.runtime.cuda.program import CudaProgram, Library, Ref

FORMAT = 1  # of what is kept
ALGORITHMS = 4  # that are tried
REPEATS = 5  # of the work in a program that is timed: launches of graphs weigh less
ROUNDS = 5  # in which each is timed; the lowest time counts, since what else goes on only adds
GAIN = 0.97  # of our time: what the library has to be below, or the difference may be chance


@record(frozen=True)
class LibraryChoice:
    """What became of a product or a routine.

    title: for people. taken: the library with its version, or what computes it instead. why: a sentence. own_ms,
    library_ms: what a product took when it was measured, or None.
    """

    title: str
    taken: str
    why: str
    own_ms: float | None = None
    library_ms: float | None = None


OWN, ON_HOST = "own kernels", "LAPACK on the host"


def undecided(step: Library) -> LibraryChoice:
    """What is said of a step before a device has loaded its program."""
    if isinstance(step.call, RoutineCall):
        return LibraryChoice(str(step.call), "cuSOLVER", "compiled only: it has to be installed where the program runs")
    return LibraryChoice(title(step.call), OWN, "compiled only: a choice is made on the device that loads the program")


class LibraryChooser:
    """Decides the `Library` steps of programs for a device. choices: what it decided, in the order of the steps."""

    def __init__(self, device: Device):
        self.device = device
        self.choices: list[LibraryChoice] = []

    def __call__(self, step: Library) -> LibraryCall | None:
        """Raises CudaDeviceLostError, and CudaLibraryError for a routine of linear algebra without its library."""
        choice, call = self._routine(step) if isinstance(step.call, RoutineCall) else self._product(step)
        self.choices.append(choice)
        if config.debug >= 1:
            print(f"hloom: {choice.title}: {choice.taken}; {choice.why}", file=sys.stderr)
        return call

    def _routine(self, step: Library) -> tuple[LibraryChoice, LibraryCall | None]:
        """Linear algebra: by the library; where there is none, on the host if soft placement allows it."""
        words = str(step.call)
        try:
            if config.cuda_libraries == "never":
                raise LibraryMissing("hl.config.cuda_libraries is 'never'")
            with self.device.guard() as api:
                library = _opened(self.device, CuSolver, "cusolver", "cublas", api=api)
                call = library.call(step.call)
            return LibraryChoice(words, f"{library.name} {library.version}", "we have no kernel for it"), call
        except CudaError as error:
            error.source = error.source or step.where
            raise
        except LibraryMissing as missing:
            if config.soft_placement:
                return LibraryChoice(words, ON_HOST, f"{missing}; soft placement"), None
            raise CudaLibraryError(
                f"{words} on {self.device}",
                str(missing),
                "pip install \"hloom[cuda-libraries]\", or compute this part on the CPU: with hl.device('cpu:0'), or "
                "leave the choice to soft placement",
                step.where,
            ) from None

    def _product(self, step: Library) -> tuple[LibraryChoice, LibraryCall | None]:
        mode = config.cuda_libraries

        def own(why: str, *times: float) -> tuple[LibraryChoice, None]:
            return LibraryChoice(title(step.call), OWN, why, *times), None

        if mode == "never":
            return own("hl.config.cuda_libraries is 'never'")
        try:
            matmul = column_major(step.call)
            with self.device.guard():  # nobody else works there while it is measured
                library = _opened(self.device, CublasLt, "cublasLt")
                if mode == "always":
                    found = library.algorithms(matmul, 1)
                    kept = _kept("hl.config.cuda_libraries is 'always'", found[0]) if found else _kept(NONE_THERE)
                else:
                    kept = self._measured(step, matmul, library)
            if kept is None:
                return own("the cache has no folder to keep a choice in, without which bits might change")
            times = kept["own ms"], kept["library ms"]
            if not kept["algorithm"]:
                return own(kept["why"], *times)
            algorithm = Algorithm(bytes.fromhex(kept["algorithm"]), kept["scratch bytes"])
            taken = f"{library.name} {version_text(library.version)}"
            return LibraryChoice(title(step.call), taken, kept["why"], *times), _call(library, matmul, algorithm)
        except LibraryMissing as missing:
            return own(str(missing))
        except CudaDeviceLostError:
            raise
        except CudaError as error:
            return own(f"{error.asked}: {error.found}")

    # --- measuring ---

    def _measured(self, step: Library, matmul: Matmul, library: CublasLt) -> dict | None:
        """What is kept of a product on this machine, measured now where nothing is. None where nothing can be kept."""
        cache = default_cache()
        if cache.folder is None:
            return None
        key = self._key(step, library)
        kept = cache.get(key)
        if kept is None:
            try:
                found = self._measure(step, matmul, library)
            except CudaDeviceLostError:
                raise
            except CudaError as error:  # kept as well: with another choice the next time bits would change
                found = _kept(f"it could not be measured: {error.asked}: {error.found}")
            kept = cache.put_first(key, json.dumps(found).encode())
        return None if kept is None else json.loads(kept)

    def _key(self, step: Library, library: CublasLt) -> str:
        own = [(hashlib.sha256(s.kernel.cubin).hexdigest(), s.kernel.name, s.grid, s.block, s.shared) for s in step.own]
        facts = self.device.facts
        gpu = (facts.name, facts.capability, facts.multiprocessors, facts.driver)
        text = repr((FORMAT, step.call, own, gpu, library.name, library.version))
        return "library-" + hashlib.sha256(text.encode()).hexdigest()

    def _measure(self, step: Library, matmul: Matmul, library: CublasLt) -> dict:
        algorithms = library.algorithms(matmul, ALGORITHMS)
        if not algorithms:
            return _kept(NONE_THERE)
        trial = _Trial(step, self.device)
        wanted = trial.results(own_kernels)
        ways = {algorithm: _always(_call(library, matmul, algorithm)) for algorithm in algorithms}
        ways = {algorithm: way for algorithm, way in ways.items() if trial.agrees(wanted, trial.results(way))}
        if not ways:
            return _kept("cublasLt's results differ from ours")
        own_ms, *times = trial.milliseconds([own_kernels, *ways.values()])
        library_ms, best = min(zip(times, ways, strict=True), key=lambda found: found[0])
        why = f"measured: {own_ms:.4f} ms by our kernels, {library_ms:.4f} ms by cublasLt"
        return _kept(why, best if library_ms < GAIN * own_ms else None, own_ms, library_ms)


NONE_THERE = "cublasLt has no algorithm for it"


def _kept(why: str, algorithm: Algorithm | None = None, own_ms=None, library_ms=None) -> dict:
    """What is kept of a choice. algorithm: None for our own kernels."""
    data, scratch = (algorithm.data.hex(), algorithm.scratch_bytes) if algorithm else ("", 0)
    return {"why": why, "algorithm": data, "scratch bytes": scratch, "own ms": own_ms, "library ms": library_ms}


def _always(call: LibraryCall) -> Callable[[Library], LibraryCall]:
    return lambda step: call


class _Trial:
    """A product on arrays of its own."""

    def __init__(self, step: Library, device: Device):
        self.device, self.product = device, step.call
        batch, m, n, k = self.product.extents
        self.tolerance = _tolerance(self.product)
        lhs = m * k * (batch if self.product.lhs_strides[0] else 1)
        rhs = k * n * (batch if self.product.rhs_strides[0] else 1)
        size = batch * m * n
        sizes = [lhs, rhs, size, size, n]
        dtypes = [self.product.factors] * 2 + [self.product.result] * 3
        out = step.places[3]
        moved: dict[Ref, Ref] = {}
        self.inputs: list[Shape] = []
        self.donated: dict[int, int] = {}
        for position, (ref, elements, dtype) in enumerate(zip(step.places, sizes, dtypes, strict=False)):
            if position == 3 or ref in moved or (position == 2 and not self.product.addend):
                continue
            moved[ref] = Ref("input", len(self.inputs))
            if ref == out:  # it overwrites what is added
                self.donated[0] = len(self.inputs)
            self.inputs.append(Shape(dtype, (elements,)))
        moved[out] = Ref("output", 0)
        self.output = Shape(self.product.result, (size,))
        self.arena_bytes = 0
        for ref, nbytes in step.scratch:
            moved[ref] = Ref("arena", self.arena_bytes)
            self.arena_bytes += -(-nbytes // 256) * 256
        self.step = with_places(step, moved.__getitem__)

    def results(self, choose) -> np.ndarray:
        """What comes out, in float64; where there is a max(x, 0), which keeps NaNs, once more with a NaN in lhs."""
        program, found = self._program(choose, 1), []
        for nan in (False, True)[: 1 + self.product.relu]:
            (out,) = program(self._arguments(nan))
            found.append(self.device.get(out, np.empty(self.output.dims, self.output.dtype)).result())
        return np.concatenate(found).astype(np.float64)

    def milliseconds(self, ways: Sequence) -> list[float]:
        """What each of several ways takes."""
        programs, arguments = [self._program(choose, REPEATS) for choose in ways], self._arguments()
        for program in programs:
            program(arguments)  # makes the graph
        times = [[self.device.milliseconds(lambda p=p: p(arguments)) for p in programs] for _ in range(ROUNDS)]
        return [min(found) / REPEATS for found in zip(*times, strict=True)]

    def agrees(self, wanted: np.ndarray, found: np.ndarray) -> bool:
        """Whether results differ by no more than the order of the sums explains; NaNs have to be in the same places."""
        scale = np.max(np.abs(wanted[np.isfinite(wanted)]), initial=1.0)
        return bool(np.allclose(found, wanted, rtol=0.0, atol=self.tolerance * scale, equal_nan=True))

    def _program(self, choose, repeats: int) -> Executable:
        steps = (self.step,) * repeats
        program = CudaProgram(
            title(self.product), steps, [], self.arena_bytes, self.inputs, [self.output], dict(self.donated)
        )
        return Executable(program, self.device, choose)

    def _arguments(self, nan: bool = False) -> list:
        random = np.random.default_rng(0)
        made = []
        for number, shape in enumerate(self.inputs):
            values = random.uniform(-1, 1, min(shape.size, 1 << 20)).astype(np.float32)
            if nan and number == 0:
                values[0] = np.nan
            made.append(self.device.put(np.resize(values, shape.dims).astype(shape.dtype), "an array for timing"))
        return made


def _tolerance(product: LibraryProduct) -> float:
    """What results may differ by, as a part of the largest."""
    of_sums = {"f32": 2.0**-24, "f64": 2.0**-53, "tf32": 2.0**-11}[product.sums]
    of_result = {"f32": 2.0**-24, "f64": 2.0**-53, "f16": 2.0**-11, "bf16": 2.0**-8}[product.result]
    return 8 * (of_result + of_sums * math.sqrt(product.extents[3]))


# --- products in the library's words ---


def column_major(product: LibraryProduct) -> Matmul:
    """The product that cublasLt is asked for: row-major arrays are the transposed ones to it, and out.T = rhs.T lhs.T.

    So the bias, an element for each column of ours, is one for each row of its, as it wants.
    """
    batch, m, n, k = product.extents
    (lb, si, sp), (rb, tp, tj) = product.lhs_strides, product.rhs_strides
    a, transpose_a = _matrix(product.factors, (n, tj), (k, tp), rb)
    b, transpose_b = _matrix(product.factors, (k, sp), (m, si), lb)
    d = Matrix(product.result, n, m, n, m * n)
    return Matmul(
        batch, a, b, d, transpose_a, transpose_b, product.sums, product.alpha, product.beta, bool(product.bias),
        product.relu,
    )  # fmt: skip


def _call(library: CublasLt, matmul: Matmul, algorithm: Algorithm) -> LibraryCall:
    """The work of a `Library` step, whose lhs is the library's B."""
    call = library.call(matmul, algorithm)
    return replace(call, enqueue=lambda stream, lhs, rhs, *rest: call.enqueue(stream, rhs, lhs, *rest))


def _matrix(dtype: str, rows: tuple[int, int], columns: tuple[int, int], step: int) -> tuple[Matrix, bool]:
    """(an array as a column-major matrix, whether it has to be transposed for these rows and columns). rows, columns:
    (extent, stride)."""
    (height, down), (width, across) = rows, columns
    if height == 1 or down == 1:
        return Matrix(dtype, height, width, across if width > 1 else height, step), False
    return Matrix(dtype, width, height, down, step), True


def title(product: LibraryProduct) -> str:
    """A product, for people."""
    batch, m, n, k = product.extents
    words = [f"product {product.factors} {m} x {k} by {k} x {n}"]
    words += [f"{batch} of them"] if batch > 1 else []
    parts = {"added": product.addend, "bias": product.bias, "relu": product.relu}
    return ", ".join([*words, *(name for name, there in parts.items() if there)])


_libraries: weakref.WeakKeyDictionary[Device, dict] = weakref.WeakKeyDictionary()


def _opened(device: Device, kind: type, *names: str, **more):
    """A kind of library (of those that `load_library` finds by these names) for a device, closed with it. Raises
    LibraryMissing."""
    known = _libraries.setdefault(device, {})
    if kind not in known:
        known[kind] = kind(*(load_library(name) for name in names), **more)
        device.on_close(known[kind].close)
    return known[kind]


def has_solver() -> bool:
    """Whether routines of linear algebra have their libraries in this process."""
    try:
        return config.cuda_libraries != "never" and all(load_library(name) for name in ("cusolver", "cublas"))
    except LibraryMissing:
        return False
