"""One compiled version of a jitted function: its executable, and how it is called."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.arrays.array import Array
from hloom.backends.donation import warn_of_unused
from hloom.dispatch.kept_programs import KeptProgram
from hloom.errors import DonatedArrayError
from hloom.platforms.backend import Executable
from hloom.platforms.device import Device, default_device, find_device
from hloom.sharding.shardings import SingleDeviceSharding
from hloom.tracing.exact import exact_arguments
from hloom.tracing.trace import Traced, Tracer, as_array
from hloom.tree import pytrees as tree

# Errors raised by reading `a._data` before a program runs: not an array, a donated one, or not row-major.
_NO_PLAIN_DATA = (AttributeError, TypeError)


class Specialization:
    """A function compiled for one signature. Called with the flat arrays of a call.

    donated: indices of the donated arguments. device: that of the results, unless the executable specifies another.
    kept: records its use.
    """

    def __init__(
        self,
        name: str,
        traced: Traced,
        executable: Executable,
        donated: frozenset[int],
        device: Device | None,
        kept: KeptProgram,
    ):
        self.name, self.traced, self.executable, self.donated, self.kept = name, traced, executable, donated, kept
        self._run, self._as_they_lie = executable.runner, executable.accepts_device_data
        self._weak, self._structure, self._wide = traced.weak, traced.out_tree, traced.wide
        self._weak += (False,) * len(traced.twins)
        self.shapes = executable.output_shapes
        self._shapes = [None if s.is_open else s for s in self.shapes]  # None: determined by the results
        devices = executable.output_devices
        self.devices = [device] * len(self.shapes) if devices is None else [find_device(d) for d in devices]

    @property
    def input_shardings(self) -> list:
        """The sharding of each argument."""
        device = next((d for d in self.devices if d is not None), None) or default_device()
        return [SingleDeviceSharding(device)] * len(self.traced.computation.parameters)

    @property
    def output_shardings(self) -> list:
        """The sharding of each result."""
        return [SingleDeviceSharding(d or default_device()) for d in self.devices]

    def warn_of_unused_donations(self) -> None:
        """Warns of donated arguments whose memory no result takes. Where other processes run parts of the program, they
        may take it."""
        if not (self.executable.has_remote_parts or self.executable.warns_of_donations):
            unused = self.donated - set(self.executable.donated.values())
            warn_of_unused(self.name, self.traced.computation.parameters, unused)

    def ready_for(self, arrays: list[Array]) -> bool:
        """Completes the preparation for running with such arrays (`Executable.ready_for`)."""
        arrays = [*arrays, *exact_arguments(arrays, self._wide)]
        return self.executable.ready_for([a.shape for a in arrays])

    def __call__(self, arrays: list[Array]):
        """The results as a tree."""
        if self._wide:
            arrays = [*arrays, *exact_arguments(arrays, self._wide)]
        inputs = self._values(arrays)
        if self.donated:
            self._check_donated_twice(arrays, inputs)
            outputs = self.executable.call_donating(inputs, lambda: self._release(arrays, inputs))
        else:
            outputs = self._run(inputs)
        return self._wrap(outputs)

    def _values(self, arrays) -> list:
        """The data of the arrays. Raises DonatedArrayError, LeakedTracerError."""
        try:
            return [a._held() for a in arrays] if self._as_they_lie else [a._value() for a in arrays]
        except AttributeError:
            for array in arrays:
                if isinstance(array, Tracer):
                    array.trace_ended()
            raise

    def _checked_values(self, arrays) -> list:
        """The same. Raises ArgumentError if one is a ShapeDtypeStruct."""
        return self._values([as_array(a) for a in arrays])

    def _wrap(self, outputs: list):
        results = zip(outputs, self._weak, self.devices, self._shapes, strict=True)
        return self._unflatten([Array(x, w, d, s) for x, w, d, s in results])

    def _unflatten(self, arrays: list[Array]):
        traced = self.traced
        return traced.unflatten(arrays) if traced.twins else tree.unflatten(self._structure, arrays)

    def fast(self) -> Callable:
        """The call for a list or tuple of arrays of the right shapes, with as little Python as it takes."""
        executable = self.executable
        if self.donated or self._wide or executable.accepts_device_data:
            return lambda args: self([*args])
        values, run = self._checked_values, executable.for_one_output()
        if run is not None and self._structure == tree.structure(0):
            (one_weak,), (device,), (one_shape,) = self._weak, self.devices, self._shapes

            def call_one(args):
                try:
                    data = run([a._data for a in args])
                except _NO_PLAIN_DATA:
                    data = run(values(args))
                return Array(data, one_weak, device, one_shape)

            return call_one

        runner, wrapped = executable.runner, self._wrap

        def call(args):
            return wrapped(runner(self._values(args)))

        def call_with_data(args):
            try:
                outputs = runner([a._data for a in args])
            except _NO_PLAIN_DATA:
                outputs = runner(values(args))
            return wrapped(outputs)

        return call_with_data if executable.rejects_none else call

    def _release(self, arrays: list[Array], inputs: list) -> None:
        """Takes the data of donated arguments from their arrays."""
        for k in self.donated:
            if _may_be_given_away(inputs[k]):
                arrays[k]._data = None

    def _check_donated_twice(self, arrays: list[Array], inputs: list) -> None:
        if len({id(data) for data in inputs}) == len(inputs):
            return
        for k in self.donated:
            if _may_be_given_away(inputs[k]) and sum(data is inputs[k] for data in inputs) > 1:
                raise DonatedArrayError(
                    f"'{self.name}' was given one array twice, once to be donated",
                    repr(arrays[k]._shape),
                    "pass a copy, or do not donate it",
                )


def _may_be_given_away(data) -> bool:
    """Whether data are hloom's own: on a device, or no caller's NumPy array and no constant that many hold."""
    return not isinstance(data, np.ndarray) or data.flags.writeable
