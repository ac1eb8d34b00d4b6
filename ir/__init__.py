"""The intermediate representation: types, modules, the op table, HLO text and StableHLO, the reference interpreter."""

# The op table is complete before any module of this package runs.
from hloom.ir import ops as _ops

__all__: list[str] = []
