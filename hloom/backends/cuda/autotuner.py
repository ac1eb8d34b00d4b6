"""Which algorithm does the steps of a GPU program that have several.

    chooser = Chooser(device)        Executable(program, device, chooser)        chooser.choices

A product that cublasLt can compute, a Fourier transform that cuFFT can, or a sort that may go either way is run on
arrays made up for it, by our kernels (of a sort those that arithmetic prefers) and by the candidates of
`algorithms.py`. A candidate's results have to agree with ours; the fastest is taken. The choice, and a failure, is kept
in the disk cache, so that later processes measure nothing and have the same bits. The key has all that it depends on:
the step, our kernels, the GPU, the driver and the library.

`hl.config.cuda_libraries` is 'measured', 'never' or 'always' (the library's first algorithm wherever it has one, not
compared with ours; with neither is a sort measured). Our own kernels serve where the library is not installed, where
the cache has no folder, and where the library fails; `choices` says which and why.

Routines of linear algebra (`targets/cuda/libraries/linear_algebra.py`) have no kernels of ours: cuSOLVER computes them.
Where it is not installed the host does with `hl.config.soft_placement`, and without it that is an error.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import weakref

from hloom.backends.autotuner import compare, keep_choice, keeps_choices, load_choice
from hloom.backends.cuda.algorithms import Algorithms, algorithms_for
from hloom.backends.cuda.measurement import AlgorithmCandidate, MeasuredStep
from hloom.config import config
from hloom.ir.records import record
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.errors import CudaDeviceLostError, CudaError, CudaLibraryError
from hloom.runtime.cuda.libraries.cusolver import CuSolver, RoutineCall
from hloom.runtime.cuda.libraries.load import LibraryMissing, load_library
from hloom.runtime.cuda.programs.choice import LibraryCall, own_kernels
from hloom.runtime.cuda.programs.program import Alternatives, Launch, Step

FORMAT = 4  # of the stored choices
CANDIDATES = 4  # of a library that are tried
ROUNDS = 5  # in which each is measured


@record(frozen=True)
class Choice:
    """The choice for a product, a transform, a sort or a routine.

    title: for people. taken: the library with its version, or the chosen alternative. why: a sentence. own_ms: time of
    our kernels (for a sort, of the default); other_ms: of the best candidate; None if not measured.
    """

    title: str
    taken: str
    why: str
    own_ms: float | None = None
    other_ms: float | None = None


ON_HOST = "LAPACK on the host"


def undecided(step: Alternatives) -> Choice:
    """The choice shown for a step before a device has loaded its program."""
    if isinstance(step.call, RoutineCall):
        return Choice(str(step.call), "cuSOLVER", "compiled only: it has to be installed where the program runs")
    algorithms = algorithms_for(step.call)
    return Choice(
        algorithms.title, algorithms.own, "compiled only: a choice is made on the device that loads the program"
    )


class Chooser:
    """Decides the `Alternatives` steps of programs for a device. choices: its decisions, in their order."""

    def __init__(self, device: Device):
        self.device = device
        self.choices: list[Choice] = []

    def __call__(self, step: Alternatives) -> LibraryCall | tuple[Step, ...]:
        """Raises CudaDeviceLostError, and CudaLibraryError for a routine of linear algebra without its library."""
        choice, call = self._routine(step) if isinstance(step.call, RoutineCall) else self._measurable(step)
        self.choices.append(choice)
        if config.debug >= 1:
            print(f"hloom: {choice.title}: {choice.taken}; {choice.why}", file=sys.stderr)
        return call

    def _routine(self, step: Alternatives) -> tuple[Choice, LibraryCall | tuple[Step, ...]]:
        """Linear algebra: by the library; where there is none, on the host if soft placement allows it."""
        words = str(step.call)
        try:
            if config.cuda_libraries == "never":
                raise LibraryMissing("hl.config.cuda_libraries is 'never'")
            with self.device.guard() as api:
                library = _opened(self.device, CuSolver, ("cusolver", "cublas"), api=api)
                call = library.call(step.call)
            return Choice(words, f"{library.name} {library.version}", "we have no kernel for it"), call
        except CudaError as error:
            error.locate(step.where)
            raise
        except LibraryMissing as missing:
            if config.soft_placement:
                return Choice(words, ON_HOST, f"{missing}; soft placement"), step.own
            raise CudaLibraryError(
                f"{words} on {self.device}",
                str(missing),
                "pip install \"hloom[cuda-libraries]\", or compute this part on the CPU: with hl.device('cpu:0'), or "
                "leave the choice to soft placement",
                step.where,
            ) from None

    def _measurable(self, step: Alternatives) -> tuple[Choice, LibraryCall | tuple[Step, ...]]:
        """A step that our kernels can compute as well."""
        mode, algorithms = config.cuda_libraries, algorithms_for(step.call)

        def own(why: str, *times: float) -> tuple[Choice, tuple[Step, ...]]:
            return Choice(algorithms.title, algorithms.own, why, *times), step.own

        if mode == "never" or (mode == "always" and algorithms.kind is None):
            return own(f"hl.config.cuda_libraries is '{mode}'")
        try:
            with self.device.guard() as api:  # no other work runs there during a measurement
                library = None
                if algorithms.kind is not None:
                    more = {"api": api} if algorithms.wants_api else {}
                    library = _opened(self.device, algorithms.kind, algorithms.libraries, **more)
                kept: dict | None
                if mode == "always":
                    found = algorithms.candidates(library, 1)
                    kept = (
                        _kept("hl.config.cuda_libraries is 'always'", found[0]) if found else _kept(algorithms.without)
                    )
                else:
                    kept = self._measured(step, algorithms, library)
                if kept is None:
                    return own("the cache has no folder to keep a choice in, without which bits might change")
                times = kept["own ms"], kept["other ms"]
                if kept["algorithm"] is None:
                    return own(kept["why"], *times)
                chosen = algorithms.chosen(library, kept["algorithm"], step)
            taken = kept["algorithm"][0] if library is None else f"{library.name} {library.version}"
            return Choice(algorithms.title, taken, kept["why"], *times), chosen
        except LibraryMissing as missing:
            return own(str(missing))
        except CudaDeviceLostError:
            raise
        except CudaError as error:
            return own(f"{error.asked}: {error.found}")

    def _measured(self, step: Alternatives, algorithms: Algorithms, library) -> dict | None:
        """The stored choice for a step on this machine, measured now if there is none. None if nothing can be
        stored."""
        if not keeps_choices():
            return None
        key = self._key(step, library)
        kept = load_choice(key)
        if kept is not None:
            return kept
        try:
            found = self._measure(step, algorithms, library)
        except CudaDeviceLostError:
            raise
        except CudaError as error:  # kept as well: with another choice the next time bits would change
            found = _kept(f"it could not be measured: {error.asked}: {error.found}")
        return keep_choice(key, found)

    def _key(self, step: Alternatives, library) -> str:
        own, other = (
            [
                (hashlib.sha256(s.kernel.cubin).hexdigest(), s.kernel.name, s.grid, s.block, s.shared)
                for s in steps
                if isinstance(s, Launch)
            ]
            for steps in (step.own, step.other)
        )
        facts, version = self.device.facts, library and (library.name, library.version)
        gpu = (facts.name, facts.capability, facts.multiprocessors, facts.driver)
        text = repr((FORMAT, step.call, own, other, gpu, version))
        return "choice-" + hashlib.sha256(text.encode()).hexdigest()

    def _measure(self, step: Alternatives, algorithms: Algorithms, library) -> dict:
        others = algorithms.candidates(library, CANDIDATES)
        if not others:
            return _kept(algorithms.without)
        name = others[0][0] if library is None else library.name
        measured = MeasuredStep(step, algorithms, self.device)

        def factory(algorithm: list):
            return lambda: AlgorithmCandidate(
                measured, functools.partial(algorithms.chosen, library, algorithm), algorithm
            )

        default = AlgorithmCandidate(measured, own_kernels)
        found = compare(default, map(factory, others), measured.agree, rounds=(ROUNDS, ROUNDS))
        fastest = found.fastest
        if fastest is None:
            return _kept(f"results of {name} differ from ours")
        own_ms, other_ms = found.seconds(0) * 1e3, found.seconds(fastest) * 1e3
        why = f"measured: {own_ms:.4f} ms by {algorithms.own}, {other_ms:.4f} ms by {name}"
        return _kept(why, found.candidates[found.best].algorithm, own_ms, other_ms)


def _kept(why: str, algorithm: list | None = None, own_ms: float | None = None, other_ms: float | None = None) -> dict:
    """A stored choice. algorithm: a candidate (`algorithms.py`), None for our own kernels."""
    return {"why": why, "algorithm": algorithm, "own ms": own_ms, "other ms": other_ms}


_libraries: weakref.WeakKeyDictionary[Device, dict] = weakref.WeakKeyDictionary()


def _opened(device: Device, kind: type, names: tuple[str, ...], **more):
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
