"""Writes docs/reference/coverage.md: which names of the Array API standard and of JAX's modules hloom has.

    python tests/conformance/coverage_page.py > docs/reference/coverage.md

JAX, a dev dependency, is asked for its public names; the standard's are listed here.
"""

from __future__ import annotations

import importlib
import sys

# JAX's module, hloom's. The order is that of the page.
MODULES = {
    name: "hloom" + name[3:]
    for name in (
        "jax jax.numpy jax.numpy.linalg jax.numpy.fft jax.lax jax.lax.linalg jax.nn jax.nn.initializers jax.random "
        "jax.scipy.fft jax.scipy.linalg jax.scipy.ndimage jax.scipy.signal jax.scipy.special jax.scipy.stats "
        "jax.scipy.integrate jax.scipy.interpolate jax.scipy.optimize jax.scipy.sparse.linalg jax.scipy.cluster.vq "
        "jax.tree jax.tree_util jax.ops jax.image jax.debug jax.dtypes jax.flatten_util jax.custom_derivatives"
    ).split()
}
# Modules inside of the modules, and what is no part of the interface of programs.
_SKIPPED = {"annotations", "TYPE_CHECKING"}

STANDARD = {
    "constants": "e inf nan newaxis pi",
    "creation": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril "
    "triu zeros zeros_like",
    "data types": "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128 astype "
    "can_cast finfo iinfo isdtype result_type",
    "element-wise": "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert "
    "bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor "
    "floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp "
    "logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow "
    "real reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc",
    "fft": "fft.fft fft.ifft fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfftn fft.irfftn fft.hfft fft.ihfft fft.fftfreq "
    "fft.rfftfreq fft.fftshift fft.ifftshift",
    "indexing": "take take_along_axis",
    "inspection": "__array_namespace_info__ __array_api_version__",
    "linear algebra": "matmul matrix_transpose tensordot vecdot linalg.cholesky linalg.cross linalg.det "
    "linalg.diagonal linalg.eigh linalg.eigvalsh linalg.inv linalg.matmul linalg.matrix_norm linalg.matrix_power "
    "linalg.matrix_rank linalg.matrix_transpose linalg.outer linalg.pinv linalg.qr linalg.slogdet linalg.solve "
    "linalg.svd linalg.svdvals linalg.tensordot linalg.trace linalg.vecdot linalg.vector_norm",
    "manipulation": "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll "
    "squeeze stack tile unstack",
    "searching": "argmax argmin count_nonzero nonzero searchsorted where",
    "sets": "unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort",
    "statistics": "cumulative_sum cumulative_prod max mean min prod std sum var",
    "utility": "all any diff",
}


def resolve(path: str):
    """The object of a dotted path, or None."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            try:
                value = getattr(value, part)
            except (AttributeError, ImportError):
                return None
        return value
    return None


def public_names(module: str) -> list[str]:
    """The functions, classes and constants that a module of JAX shows."""
    found = importlib.import_module(module)
    names = []
    for name in dir(found):
        value = getattr(found, name, None)
        # Names that end in _p are the primitives inside of JAX.
        if name.startswith("_") or name.endswith("_p") or name in _SKIPPED or isinstance(value, type(sys)):
            continue
        names.append(name)
    return names


def section(title: str, names: list[str], ours: str) -> list[str]:
    has = [n for n in names if resolve(f"{ours}.{n}") is not None or n == "newaxis"]
    missing = [n for n in names if n not in has]
    lines = [f"### {title}", "", f"{len(has)} of {len(names)}.", ""]
    if has:
        lines += ["Has: " + ", ".join(f"`{n}`" for n in has) + ".", ""]
    if missing:
        lines += ["Has not: " + ", ".join(f"`{n}`" for n in missing) + ".", ""]
    return lines


def page() -> str:
    import jax

    lines = [
        "# Coverage",
        "",
        "Which names of the Array API standard 2024.12 and of JAX hloom has. Written by",
        "`python tests/conformance/coverage_page.py > docs/reference/coverage.md`; a test holds it up to date.",
        "",
        "| names of | hloom has | of |",
        "| --- | --- | --- |",
    ]
    body = ["## The Array API standard 2024.12, in `hloom.numpy`", ""]
    total = [0, 0]
    for group, text in STANDARD.items():
        names = text.split()
        total[0] += sum(n == "newaxis" or resolve(f"hloom.numpy.{n}") is not None for n in names)
        total[1] += len(names)
        body += section(group[0].upper() + group[1:], names, "hloom.numpy")
    lines.append(f"| Array API 2024.12 | {total[0]} | {total[1]} |")
    body += [f"## JAX {jax.__version__}", ""]
    for module, ours in MODULES.items():
        names = public_names(module)
        count = sum(resolve(f"{ours}.{n}") is not None or n == "newaxis" for n in names)
        lines.append(f"| `{module}` | {count} | {len(names)} |")
        body += section(f"`{module}`", names, ours)
    return "\n".join([*lines, "", *body]).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
