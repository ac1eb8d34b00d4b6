"""What does the work of a program on a GPU that can be done in several ways.

    chooser = Chooser(device)        Executable(program, device, chooser)        chooser.choices

A product that cublasLt can compute (`compiler/targets/cuda/libraries/matmul.py`), a Fourier transform that cuFFT can
(`library_transforms.py`), or a sort that may go either way (`sort_ways.py`) is done on arrays made up for it, by our
kernels, which for a sort are those that arithmetic prefers, and by the other ways. What these give has to agree with
ours; the quickest is taken and kept in the disk cache, as is a failure, so that later processes time nothing and have
the same bits. The key says all that it depends on: the work, our kernels, the GPU, the driver and the library.

`hl.config.cuda_libraries` is 'measured', 'never' or 'always' (the library's first way wherever it has one, not compared
with ours; with neither is a sort measured). Our own kernels serve where the library is not installed, where there is no
folder to keep a choice in, and where the library fails; `choices` says which and why.

Routines of linear algebra (`targets/cuda/libraries/linear_algebra.py`) have no kernels of ours: cuSOLVER computes them.
Where it is not installed the host does with `hl.config.soft_placement`, and without it that is an error.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import weakref

from hloom.backends.cuda.algorithms import Work, work_of
from hloom.backends.cuda.autotune_trial import Trial
from hloom.compiler.cache import default_cache
from hloom.config import config
from hloom.ir.records import record
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.errors import CudaDeviceLostError, CudaError, CudaLibraryError
from hloom.runtime.cuda.libraries.cusolver import CuSolver, RoutineCall
from hloom.runtime.cuda.libraries.load import LibraryMissing, load_library
from hloom.runtime.cuda.programs.choice import LibraryCall, own_kernels
from hloom.runtime.cuda.programs.program import Alternatives, Step

FORMAT = 3  # of what is kept
WAYS = 4  # of a library that are tried
GAIN = 0.97  # of our time: what the library has to be below, or the difference may be chance


@record(frozen=True)
class Choice:
    """What became of a product, a transform, a sort or a routine.

    title: for people. taken: the library with its version, or what does it instead. why: a sentence. own_ms: what our
    kernels took, of a sort those of its first way; other_ms: what the other way took; None where nothing was measured.
    """

    title: str
    taken: str
    why: str
    own_ms: float | None = None
    other_ms: float | None = None


ON_HOST = "LAPACK on the host"


def undecided(step: Alternatives) -> Choice:
    """What is said of a step before a device has loaded its program."""
    if isinstance(step.call, RoutineCall):
        return Choice(str(step.call), "cuSOLVER", "compiled only: it has to be installed where the program runs")
    work = work_of(step.call)
    return Choice(work.title, work.own, "compiled only: a choice is made on the device that loads the program")


class Chooser:
    """Decides the `Alternatives` steps of programs for a device. choices: what it decided, in their order."""

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
        """What has kernels of ours too."""
        mode, work = config.cuda_libraries, work_of(step.call)

        def own(why: str, *times: float) -> tuple[Choice, tuple[Step, ...]]:
            return Choice(work.title, work.own, why, *times), step.own

        if mode == "never" or (mode == "always" and work.kind is None):
            return own(f"hl.config.cuda_libraries is '{mode}'")
        try:
            with self.device.guard() as api:  # nobody else works there while it is measured
                library = None
                if work.kind is not None:
                    more = {"api": api} if work.wants_api else {}
                    library = _opened(self.device, work.kind, work.libraries, **more)
                if mode == "always":
                    found = work.ways(library, 1)
                    kept = _kept("hl.config.cuda_libraries is 'always'", found[0]) if found else _kept(work.without)
                else:
                    kept = self._measured(step, work, library)
                if kept is None:
                    return own("the cache has no folder to keep a choice in, without which bits might change")
                times = kept["own ms"], kept["other ms"]
                if kept["way"] is None:
                    return own(kept["why"], *times)
                chosen = work.chosen(library, kept["way"], step)
            taken = kept["way"][0] if library is None else f"{library.name} {library.version}"
            return Choice(work.title, taken, kept["why"], *times), chosen
        except LibraryMissing as missing:
            return own(str(missing))
        except CudaDeviceLostError:
            raise
        except CudaError as error:
            return own(f"{error.asked}: {error.found}")

    # --- measuring ---

    def _measured(self, step: Alternatives, work: Work, library) -> dict | None:
        """What is kept of a step on this machine, measured now where nothing is. None where nothing can be kept."""
        cache = default_cache()
        if cache.folder is None:
            return None
        key = self._key(step, library)
        kept = cache.get(key)
        if kept is None:
            try:
                found = self._measure(step, work, library)
            except CudaDeviceLostError:
                raise
            except CudaError as error:  # kept as well: with another choice the next time bits would change
                found = _kept(f"it could not be measured: {error.asked}: {error.found}")
            kept = cache.put_first(key, json.dumps(found).encode())
        return None if kept is None else json.loads(kept)

    def _key(self, step: Alternatives, library) -> str:
        own, other = (
            [(hashlib.sha256(s.kernel.cubin).hexdigest(), s.kernel.name, s.grid, s.block, s.shared) for s in way]
            for way in (step.own, step.other)
        )
        facts, version = self.device.facts, library and (library.name, library.version)
        gpu = (facts.name, facts.capability, facts.multiprocessors, facts.driver)
        text = repr((FORMAT, step.call, own, other, gpu, version))
        return "choice-" + hashlib.sha256(text.encode()).hexdigest()

    def _measure(self, step: Alternatives, work: Work, library) -> dict:
        ways = work.ways(library, WAYS)
        if not ways:
            return _kept(work.without)
        name = ways[0][0] if library is None else library.name
        trial = Trial(step, work, self.device)
        wanted = trial.results(own_kernels)
        tried = [(way, functools.partial(work.chosen, library, way)) for way in ways]
        tried = [(way, choose) for way, choose in tried if trial.agrees(wanted, trial.results(choose))]
        if not tried:
            return _kept(f"results of {name} differ from ours")
        own_ms, *times = trial.milliseconds([own_kernels, *(choose for _, choose in tried)])
        other_ms, (best, _) = min(zip(times, tried, strict=True), key=lambda found: found[0])
        why = f"measured: {own_ms:.4f} ms by {work.own}, {other_ms:.4f} ms by {name}"
        return _kept(why, best if other_ms < GAIN * own_ms else None, own_ms, other_ms)


def _kept(why: str, way: list | None = None, own_ms: float | None = None, other_ms: float | None = None) -> dict:
    """What is kept of a choice. way: the other one (`cuda_work.py`), None for our own kernels."""
    return {"why": why, "way": way, "own ms": own_ms, "other ms": other_ms}


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
