"""numexpr as a library of the benchmark: a workload's operators and functions as numexpr expressions."""

from __future__ import annotations

import numpy as np

LONGEST = 20_000  # characters of an expression; a value used twice is repeated, which multiplies along a chain


class NumExpr:
    """numexpr: one expression of element-wise functions, in blocks of a cache's size, on all threads.

    A workload runs here when its operators and functions are among numexpr's; others raise NotCovered.
    """

    parts = frozenset(("np", "nn"))

    def __init__(self, threads: int):
        import numexpr

        numexpr.set_num_threads(threads)
        self.numexpr = numexpr
        self.name, self.title = "numexpr", f"numexpr {numexpr.__version__}"
        self.np = self.nn = _ExpressionNames()

    def erf(self, x):
        raise NotCovered("erf")

    def prepare(self, array):
        return array

    def compiled(self, workload):
        evaluate = self.numexpr.evaluate
        expressions: list = []

        def run(*arrays):
            if not expressions:
                made = workload.bound(self)(
                    *(_Expression(f"x{k}", a.shape, {f"x{k}": a}) for k, a in enumerate(arrays))
                )
                leaves = list(made) if isinstance(made, (list, tuple)) else [made]
                if not all(isinstance(leaf, _Expression) for leaf in leaves):
                    raise NotCovered("a result that is not an expression")
                wide = np.float64 if any(a.dtype == np.float64 for a in arrays) else np.float32
                typed = [{n: wide(v) if isinstance(v, float) else v for n, v in leaf.arrays.items()} for leaf in leaves]
                expressions.append([(leaf.text, used) for leaf, used in zip(leaves, typed, strict=True)])
            return [evaluate(text, local_dict=used, global_dict={}) for text, used in expressions[0]]

        return run

    def arrays(self, result) -> list[np.ndarray]:
        return [np.asarray(x) for x in result]


class NotCovered(Exception):
    """A library lacks what a workload needs."""


class _Expression:
    """The text of a numexpr expression, its shape, and the arrays that it names."""

    __array_ufunc__ = None

    def __init__(self, text: str, shape, arrays: dict):
        self.text, self.shape, self.arrays = text, shape, arrays
        self.ndim = len(shape)

    @staticmethod
    def of(form: str, *operands) -> _Expression:
        texts, shapes = [], []
        arrays: dict = {}
        for operand in operands:
            if isinstance(operand, _Expression):
                texts.append(operand.text)
                shapes.append(operand.shape)
                arrays |= operand.arrays
            elif isinstance(operand, float):
                # A literal float is a double, which would promote float32: it is passed as a scalar instead.
                name = f"c{np.float64(operand).view(np.uint64)}"
                texts.append(name)
                arrays[name] = operand
            elif isinstance(operand, int):
                texts.append(f"({operand})")
            else:
                raise NotCovered(type(operand).__name__)
        text = form.format(*texts)
        if len(text) > LONGEST:
            raise NotCovered(f"an expression of {len(text)} letters")
        return _Expression(text, np.broadcast_shapes(*shapes), arrays)

    def __getitem__(self, places):
        (name, array), *others = self.arrays.items()
        given = places if isinstance(places, tuple) else (places,)
        if others or self.text != name or any(p is not None and p != slice(None) for p in given):
            raise NotCovered("indexing")
        view = array[places]
        label = f"{name}_{'_'.join('n' if p is None else 'a' for p in given)}"
        return _Expression(label, view.shape, {label: view})

    def __getattr__(self, name: str):
        raise NotCovered(name)

    def __neg__(self):
        return _Expression.of("(-{})", self)

    def __matmul__(self, other):
        raise NotCovered("matmul")

    def __bool__(self):
        raise NotCovered("truth of an array")


def _operators() -> None:
    def binary(form):
        return (lambda x, y: _Expression.of(form, x, y)), (lambda x, y: _Expression.of(form, y, x))

    for name, sign in {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**"}.items():
        plain, reflected = binary(f"({{}} {sign} {{}})")
        setattr(_Expression, f"__{name}__", plain)
        setattr(_Expression, f"__r{name}__", reflected)
    for name, sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "&", "or": "|"}.items():
        setattr(_Expression, f"__{name}__", binary(f"({{}} {sign} {{}})")[0])


_operators()


class _ExpressionNames:
    """NumPy's and jax.nn's names over numexpr's functions."""

    def __getattr__(self, name: str):
        raise NotCovered(name)

    def __init__(self):
        for name in "sqrt exp log sin cos tanh log1p abs where".split():
            form = f"{name}({', '.join(['{}'] * (3 if name == 'where' else 1))})"
            setattr(self, name, lambda *operands, form=form: _Expression.of(form, *operands))

    # numexpr's own versions promote float32 to double.
    def maximum(self, x, y):
        return _Expression.of("where({0} > {1}, {0}, {1})", x, y)

    def minimum(self, x, y):
        return _Expression.of("where({0} < {1}, {0}, {1})", x, y)

    def relu(self, x):
        return self.maximum(x, 0)

    def silu(self, x):
        return x / (1 + self.exp(-x))

    def gelu(self, x):
        return 0.5 * x * (1 + self.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))
