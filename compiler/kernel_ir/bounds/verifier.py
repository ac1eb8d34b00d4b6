"""Proofs that a kernel's accesses are within its arrays.

    verify(kernel, extents, ranges) -> list[Access]

The kernel is run on what is known of its integers (`affine.facts.Facts`) instead of on numbers. A branch knows its
test, a loop its variable's bounds; what a loop changes keeps the bounds that one iteration keeps, which is found by
assuming them, running the body and dropping those that it breaks. Arithmetic that might not fit into its type has an
unknown result, so what is proved holds of the kernel's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping

from hloom.compiler.kernel_ir.affine.facts import youngest
from hloom.compiler.kernel_ir.affine.sums import Affine
from hloom.compiler.kernel_ir.bounds.abstract import PROVED, UNPROVED, Run, TooLong
from hloom.compiler.kernel_ir.bounds.accesses import Blocks, Site, Sites, element_bytes
from hloom.compiler.kernel_ir.nodes import Expr, Kernel
from hloom.ir.records import record

__all__ = ["Access", "Extent", "Range", "by_kernel", "verify"]

Extent = int | Expr | None
Range = int | tuple[int, int]


@record(frozen=True)
class Access:
    """One access of a kernel. status: 'proved', 'unproved', or 'out of range' where the kernel certainly makes it and
    it is outside. reason: of the last two, with the array, what its index may be and its size."""

    kernel: str
    number: int
    line: int
    text: str
    status: str
    reason: str = ""


def verify(
    kernel: Kernel, extents: Mapping[str, Extent], ranges: Mapping[str, Range], *,
    called: Mapping[str, Kernel] | None = None, parts: Mapping[str, Kernel] | None = None, blocks: Blocks | None = None,
) -> list[Access]:  # fmt: skip
    """All accesses of a kernel, then those of the kernels that it calls, each in the order of their text.

    extents: elements of the array of each pointer parameter: a number, an expression of parameters, or None where
    nobody knows. ranges: of integer parameters their value, or the least and the greatest; of `lo` and `hi`, the last
    two, those of all calls together. called: the kernel whose address an integer parameter is; parts: kernels that the
    text calls, by name. blocks: what other functions that are called for their effect access.
    """
    found = by_kernel(kernel, extents, ranges, called or {}, parts or {}, blocks)
    return [access for _, accesses in found for access in accesses]


def by_kernel(
    kernel: Kernel, extents: Mapping[str, Extent], ranges: Mapping[str, Range], called: Mapping[str, Kernel],
    parts: Mapping[str, Kernel], blocks: Blocks | None,
) -> list[tuple[Kernel, list[Access]]]:  # fmt: skip
    """As `verify`, with the kernel that the accesses are of."""
    kernels = list({id(one): one for one in (kernel, *called.values(), *parts.values())}.values())
    named = frozenset(parts)
    sites = {id(one): Sites(one, blocks, named) for one in kernels}
    run = Run(sites, parts)
    long = False
    try:
        _start(run, kernel, extents, ranges, called)
        run.kernel(kernel)
    except TooLong:
        long = True
    # What was not come to is not accessed, unless a call was not followed.
    rest = (UNPROVED, "which kernel is called is not known") if run.missed else (PROVED,)
    made = []
    for one in kernels:
        other = (PROVED,) if one is kernel else rest
        accesses = []
        for site in sites[id(one)].all:
            found = (UNPROVED, "the kernel is too long") if long else run.journal.get(site, other)
            accesses.append(_access(site, *found))
        made.append((one, accesses))
    return made


def _access(site: Site, status: str, reason: str = "") -> Access:
    return Access(site.kernel, site.number, site.line, site.text, status, reason)


def _start(
    run: Run, kernel: Kernel, extents: Mapping[str, Extent], ranges: Mapping[str, Range], called: Mapping[str, Kernel]
) -> None:
    """What is known of the parameters."""
    environment, pointers = run.environment, [var for var in kernel.params if var.type[0] == "*"]
    for var in pointers:
        environment[var] = run.base(var.name, None)
    for var in kernel.params:
        found = ranges.get(var.name)
        if var.name in called:
            made = run.unknown(var.name, "s64")
            assert isinstance(made, Affine)
            environment[var] = made
            run.kernels[youngest(made)] = called[var.name]
        elif isinstance(found, int):
            environment[var] = Affine(found)
        elif var.type[0] != "*":
            environment[var] = run.unknown(var.name, var.type, *(found or ()))
    if len(kernel.params) >= 2:  # a call does some items, all calls together do all
        lo, hi = (environment.get(var) for var in kernel.params[-2:])
        if isinstance(lo, Affine) and isinstance(hi, Affine) and lo.terms and hi.terms:
            youngest(hi).lowers.append(((lo + 1,), 1))
            run.items = (lo, hi) if all([var.name in ranges for var in kernel.params[-2:]]) else None
    for var in pointers:
        extent = extents.get(var.name)
        value = Affine(extent) if isinstance(extent, int) else None if extent is None else run.value(extent)
        address = environment[var]
        if isinstance(value, Affine) and isinstance(address, Affine):
            youngest(address).region = value * element_bytes(var.type)
