"""What tests of libraries chosen by measuring have in common: a fake library, a cache, choosers that use them."""

from __future__ import annotations

import numpy as np
from cuda_cases import finish
from cuda_simulated import compiled
from fake_library import FakeLibrary

from hloom.backends import autotuner as mechanism
from hloom.backends.cuda import autotuner, measurement
from hloom.backends.cuda.autotuner import Chooser
from hloom.compiler.cache import Cache
from hloom.ir import interpret
from hloom.runtime.cuda.array import DeviceArray


class Setup:
    """A library and a cache that the choosers of the test use.

    fake: its class, made anew for each program, and given to `prepare`. cost: milliseconds by the name of what is
    launched; those of the library begin with `names`.
    """

    def __init__(self, fake: type[FakeLibrary], names: tuple[str, ...], folder, monkeypatch):
        self.fake, self.cache, self.folder = fake, Cache(folder), folder
        self.library: FakeLibrary | None = None
        self.chooser: Chooser | None = None
        self.cost = lambda what: 1.0 if what.startswith(names) else 5.0
        self.prepare = lambda library: None
        monkeypatch.setattr(mechanism, "default_cache", lambda: self.cache)
        monkeypatch.setattr(autotuner, "load_library", lambda name: self.library)
        monkeypatch.setattr(measurement, "REPEATS", 1)  # a kernel in the simulator takes a second
        monkeypatch.setattr(autotuner, "ROUNDS", 1)

    def choose(self, device) -> Chooser:
        device.fake.cost = self.cost
        self.library = self.fake(device.fake)
        self.prepare(self.library)
        self.chooser = Chooser(device)
        return self.chooser

    @property
    def choice(self):
        (found,) = self.chooser.choices
        return found

    def finish(self, run) -> None:
        finish(run.device)
        assert self.library is None or self.library.violations == []
        assert self.library is None or self.library.leaks() == []

    def check(self, function, *arrays, turns: int = 1, tolerance: float = 1e-5, **options) -> list[dict]:
        """What the library was given. The results are those of the reference interpreter, arguments are what they were,
        and nothing is left behind."""
        run, module = compiled(function, *arrays, choose=self.choose, **options)
        self.library.enqueued.clear()  # of measuring
        with np.errstate(all="ignore"):
            wanted = interpret.evaluate(module.entry, list(arrays))
        wanted, kept = wanted if isinstance(wanted, tuple) else (wanted,), []
        for _ in range(turns):
            given = [DeviceArray.put(run.device, a, f"argument {k}") for k, a in enumerate(arrays)]
            results = run([a.buffer for a in given])
            for buffer, shape, want in zip(results, run.program.outputs, wanted, strict=True):
                got = DeviceArray(run.device, buffer, shape).numpy()
                assert got.dtype == want.dtype
                wide = np.complex128 if got.dtype.kind == "c" else np.float64
                np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance)
            for there, a in zip(given, arrays, strict=True):
                np.testing.assert_array_equal(there.numpy(), a)
            kept.append((given, results))
        del given, results, kept, there
        self.finish(run)
        return self.library.enqueued
