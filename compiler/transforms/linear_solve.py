"""The rule of a call that solves a linear system, differentiated implicitly.

x = A(c)^-1 b, where c are values that the operator and the method use: dx = A^-1 (db - dA x), and the call is linear
in b, its transposed call solves with the transposed operator.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.transforms.batch import batch
from hloom.compiler.transforms.custom import Rule, as_tuple, inlined, output_shapes, packed
from hloom.compiler.transforms.flat import elements
from hloom.compiler.transforms.jvp import has_tangent, jvp
from hloom.compiler.transforms.vjp import transposed
from hloom.ir.build import Builder, Value
from hloom.ir.errors import DifferentiationError
from hloom.ir.module import Computation


class LinearSolve(Rule):
    """The call's operands are the leaves of b, `count` of them, then c; its first `count` results are the leaves of x.

    matvec: (leaves of x, c) -> leaves of A x. solve: what the call runs. transposed_solve() -> (leaves of b, c) ->
    leaves of A^-T b; None if the method cannot be transposed.
    """

    def __init__(
        self, name: str, count: int, matvec: Computation, solve: Computation,
        transposed_solve: Callable[[], Computation] | None, symmetric: bool,
    ):  # fmt: skip
        self.name, self.count, self.matvec, self.solve = name, count, matvec, solve
        self.transposed_solve, self.symmetric = transposed_solve, symmetric

    def _call(self, builder, right, values):
        operands = [v.instruction for v in [*right, *values]]
        return elements(builder, builder.emit("call", *operands, to_apply=self.solve, rule=self))[: self.count]

    def jvp(self, build, instruction, primals, tangents):
        builder, count = build.builder, self.count
        values = primals[count:]
        right = list(tangents[:count])
        changed = [t for t in tangents[count:] if t is not None]
        if changed:
            x = elements(builder, instruction)[:count]
            made = jvp(self.matvec, [False] * count + [t is not None for t in tangents[count:]])
            moved = inlined(builder, made, [*x, *values, *changed])[count:]
            found = iter(moved)
            for k, output in enumerate(x):
                if has_tangent(output.shape):
                    term = next(found)
                    right[k] = -term if right[k] is None else right[k] - term
        right = [
            Value(builder, builder.splat(0, p.shape)) if r is None else r for r, p in zip(right, primals, strict=False)
        ]
        missing = len(output_shapes(instruction)) - count
        return packed(instruction, [*self._call(builder, right, values), *[None] * missing])

    def transpose(self, build, instruction, cotangent, operands):
        if self.transposed_solve is None:
            raise DifferentiationError(
                f"reverse-mode differentiation of the linear solve '{self.name}' was asked for",
                "it has no transpose_solve",
                "pass transpose_solve=, or symmetric=True where the operator is its own transpose",
                source=instruction.source,
            )
        given = cotangent if isinstance(cotangent, list) else [cotangent]
        shapes = output_shapes(instruction)[: self.count]
        given = [Value(build, build.splat(0, s)) if g is None else g for g, s in zip(given, shapes, strict=False)]
        values = operands[self.count :]
        # The rule of the system with the transposed operator.
        matvec = self.matvec if self.symmetric else transposed_operator(self.matvec, self.count)
        solve = self.transposed_solve()
        flipped = LinearSolve(self.name, self.count, matvec, solve, lambda: self.solve, self.symmetric)
        return [*flipped._call(build, given, values), *[None] * len(values)]

    def batch(self, build, instruction, operands, mapped):
        count = self.count
        right = [v if m else build.spread(v) for v, m in zip(operands[:count], mapped, strict=False)]
        flags = [True] * count + list(mapped[count:])
        size, axis_name = build.size, build.axis_name

        def many(computation: Computation) -> Computation:
            results = [True] * len(output_shapes(computation.root))
            return batch(computation, flags, size, results, axis_name)[0]

        transposed_solve = self.transposed_solve
        later = transposed_solve and (lambda: many(transposed_solve()))
        rule = LinearSolve(self.name, count, many(self.matvec), many(self.solve), later, self.symmetric)
        values = [v.instruction for v in [*right, *operands[count:]]]
        call = build.builder.emit("call", *values, to_apply=rule.solve, rule=rule)
        return packed(instruction, elements(build.builder, call))


def transposed_operator(matvec: Computation, count: int) -> Computation:
    """(leaves of y, c) -> leaves of A^T y."""
    values = len(matvec.parameters) - count
    made = as_tuple(transposed(matvec, [True] * count + [False] * values))
    builder = Builder(made.name)
    leaves = [builder.parameter(p.shape) for p in made.parameters[values:]]
    others = [builder.parameter(p.shape) for p in made.parameters[:values]]
    return builder.finish(builder.inline(made, [*others, *leaves]))
