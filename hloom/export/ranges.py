"""A function with named dimensions as one program: traced once, and compiled in variants that serve all sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hloom.backends.cpu.open_sizes import Variant, variant_for
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.targets.cpu.cross import CrossMachine
from hloom.errors import ExportError, HloomError
from hloom.export import emit
from hloom.export.cover import MOST_VARIANTS, covering
from hloom.export.functions import TracedFunction, keep, plan_of, refuse_python
from hloom.export.tables import Shared, tables_of
from hloom.ir.module import Module
from hloom.ir.sizes.expressions import Dim
from hloom.ir.sizes.guards import inner
from hloom.ir.sizes.policy import SMALLEST

__all__ = ["ranged_body"]


class _Variants:
    """Makes the variants of a function for a machine."""

    def __init__(self, function: TracedFunction, machine: CrossMachine, dims: list[Dim]):
        self.function, self.machine = function, machine
        self.dims = {dim.name: dim for dim in dims}
        self.takes_numbers = False

    def at(self, sizes: Mapping[str, int]) -> Variant:
        """The variant for sizes. Raises ExportError for kernels that take fixed sizes only, if there are many sizes."""
        if not self.takes_numbers:
            try:
                return self.variant(sizes, {name: size for name, size in sizes.items() if size < SMALLEST})
            except HloomError:  # the user's, of which some are TypeErrors
                raise
            except (TypeError, AttributeError) as error:  # by a part of the compiler that computes with integers alone
                count = math.prod(d.most // d.multiple_of - -(-d.min // d.multiple_of) + 1 for d in self.dims.values())
                if count > MOST_VARIANTS:
                    raise self.refused(count, error) from error
                self.takes_numbers = True
        return self.variant(sizes, sizes)

    def variant(self, sizes: Mapping[str, int], fixed: Mapping[str, int]) -> Variant:
        return variant_for(self.function.lowered.module, self.dims, sizes, fixed, self.planned)

    def planned(self, module: Module) -> tuple[Module, Plan]:
        plan = plan_of(self.function, self.machine, module)
        refuse_python({self.function.request.name: plan})
        return module, plan

    def refused(self, count: int, error: Exception) -> ExportError:
        return ExportError(
            f"export of {self.function.request.name!r} for {', '.join(d.declaration() for d in self.dims.values())}",
            f"one of its kernels needs fixed sizes, so that each of {count:,} sizes is a separate variant ({error})",
            f"narrow the ranges to {MOST_VARIANTS} sizes, or export for fixed ones",
            source="",
        )


def ranged_body(
    function: TracedFunction, machine: CrossMachine, shared: Shared, all_dims: list[Dim], dims: list[Dim]
) -> emit.Body:
    """The function with its variants for all sizes of its dimensions."""
    name = function.request.name
    facts = {text: fact for dim in dims if dim.scope is not None for text, fact in dim.scope.comparisons}
    facts |= {str(one): one.comparison for one in function.lowered.module.assumptions}
    variants = covering(name, dims, [*facts.values()], _Variants(function, machine, dims).at)
    if len({tuple(sorted(variant.plan.donated.items())) for variant in variants}) != 1:
        raise ExportError(
            f"export of {name!r}",
            "its state is computed in place for some sizes only",
            "narrow the range of the Dim",
        )
    keep(function, variants[0].plan)
    numbers = {called: k for k, dim in enumerate(all_dims) for called in (dim.name, inner(dim.name))}
    by_name = {dim.name: dim for dim in dims}
    tables = [tables_of(v.plan, shared, numbers, v.conditions(by_name)) for v in variants]
    return emit.Body(function, tables, [*facts.items()])
