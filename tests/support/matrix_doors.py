"""Awkward matrices through the doors of hloom: jitted, by kernels alone, eagerly, exported, under torch and jax."""

from __future__ import annotations

import importlib
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator

import awkward_matrices
import matrix_checks  # noqa: F401  declares the functions
import numpy as np
from matrix_cases import BOUND, FUNCTIONS, Case, faults, largest, operands_of

import hloom as hl
import hloom.lax
import hloom.numpy
import hloom.scipy.linalg

HLOOM = types.SimpleNamespace(np=hloom.numpy, lax=hloom.lax, sp=hloom.scipy)
Given = list[list[np.ndarray]]  # the operands of each function


def fitting(m: int, n: int, exported: bool = False) -> list[str]:
    """The functions that take matrices (m, n)."""
    return [
        name
        for name, f in FUNCTIONS.items()
        if (f.shapes == "any" or m == n or (f.shapes == "tall" and m > n)) and not (exported and f.on_host)
    ]


def program(names: Iterable[str], namespace=HLOOM) -> Callable[[Given], Given]:
    """One function that computes several: of the operands of each to the results of each."""

    def compute(given):
        found = [FUNCTIONS[name].call(namespace, *one) for name, one in zip(names, given, strict=True)]
        return [list(one) if isinstance(one, tuple) else [one] for one in found]

    return compute


def matrices(rng: np.random.Generator, dtype: str, m: int, n: int) -> dict[str, np.ndarray]:
    """One of each kind."""
    return {kind: awkward_matrices.matrix(kind, rng, dtype, m, n) for kind in awkward_matrices.KINDS}


def given_for(names: Iterable[str], a: np.ndarray) -> Given:
    return [operands_of(a, FUNCTIONS[name].operands) for name in names]


def _map(function: Callable, *values: Given) -> Given:
    return [[function(*one) for one in zip(*row, strict=True)] for row in zip(*values, strict=True)]


# --- doors: the results for each of several matrices of one shape and dtype -------------------------------------------


def jitted(names: list[str], many: list[Given]) -> list[Given]:
    run = hl.jit(program(names))
    return [run(given) for given in many]


def kernels(names: list[str], many: list[Given]) -> list[Given]:
    """The bits of exported programs."""
    with hl.config(library_calls=False):
        return jitted(names, many)


def batched(names: list[str], many: list[Given]) -> list[Given]:
    """All matrices as one batch: a bad one leaves the others as they are."""
    found = hl.jit(hl.vmap(program(names)))(_map(lambda *one: np.stack(one), *many))
    found = _map(np.asarray, found)
    return [_map(lambda one, k=k: one[k], found) for k in range(len(many))]


def batched_kernels(names: list[str], many: list[Given]) -> list[Given]:
    with hl.config(library_calls=False):
        return batched(names, many)


def eager(names: list[str], many: list[Given]) -> list[Given]:
    run = program(names)
    return [run(_map(hloom.numpy.asarray, given)) for given in many]


def exported(names: list[str], many: list[Given]) -> list[Given]:
    compute = program(names)
    compute.__name__ = "compute"
    with tempfile.TemporaryDirectory() as folder, hl.export(compute, many[0], folder=folder).load() as loaded:
        return [_map(np.array, loaded.compute(given)) for given in many]


DOORS = {f.__name__: f for f in (jitted, kernels, batched, batched_kernels, eager, exported)}


def through(door: str, dtype: str, m: int, n: int, seed: int, some: slice = slice(None)) -> Iterator[tuple[str, str]]:
    """For one matrix of each kind (or of some) and each function: (what, what is wrong with it, '' where nothing)."""
    names = fitting(m, n, door == "exported")
    made = matrices(np.random.default_rng(seed), dtype, m, n)
    chosen = list(made)[some]
    many = [given_for(names, made[kind]) for kind in chosen]
    for kind, found in zip(chosen, DOORS[door](names, many), strict=True):
        for name, results in zip(names, found, strict=True):
            wrong = faults(name, made[kind], [np.asarray(r) for r in results])
            yield f"{door} {dtype} {m}x{n} seed {seed} {kind}: {name}", "; ".join(wrong)


# --- bridges: a fault counts where the library by itself has none -----------------------------------------------------


def under_jax(dtype: str, m: int, n: int, seed: int) -> Iterator[tuple[str, str]]:
    """jax's functions on the platform hloom, which the environment has to offer, and on its own."""
    jax = importlib.import_module("jax")
    importlib.import_module("jax.scipy.linalg")
    names = [name for name in fitting(m, n) if name != "geqrf"]  # which jax keeps to itself
    made = matrices(np.random.default_rng(seed), dtype, m, n)
    run = jax.jit(program(names, types.SimpleNamespace(np=jax.numpy, lax=jax.lax, sp=jax.scipy)))
    devices = [jax.devices("hloom")[0], jax.devices("cpu")[0]]
    with jax.enable_x64(True):
        for kind, a in made.items():
            given = given_for(names, a)
            found = [_map(np.asarray, run(jax.device_put(given, device))) for device in devices]
            for name, ours, theirs in zip(names, *found, strict=True):
                wrong = faults(name, a, ours)
                wrong = [] if wrong and faults(name, a, theirs) else wrong
                yield f"jax {dtype} {m}x{n} seed {seed} {kind}: {name}", "; ".join(wrong)


def _torch_functions() -> dict[str, Callable]:
    torch = importlib.import_module("torch")
    linalg = torch.linalg
    return {
        "svdvals": linalg.svdvals,
        "svd": lambda a: linalg.svd(a, full_matrices=False),
        "svd full": linalg.svd,
        "pinv": lambda a: linalg.pinv(a, rtol=1e-3),
        "matrix_rank": lambda a: linalg.matrix_rank(a, rtol=1e-3),
        "cond": linalg.cond,
        "eigvalsh": linalg.eigvalsh,
        "eigh": linalg.eigh,
        "eigvals": linalg.eigvals,
        "eig": linalg.eig,
        "qr": linalg.qr,
        "qr complete": lambda a: linalg.qr(a, mode="complete"),
        "det": linalg.det,
        "slogdet": linalg.slogdet,
        "inv": lambda a: linalg.inv_ex(a)[0],
        "solve": lambda a, b: linalg.solve_ex(a, b)[0],
        "matrix_power": lambda a: linalg.matrix_power(a, 3),
    }


def under_torch(dtype: str, m: int, n: int, seed: int) -> Iterator[tuple[str, str]]:
    """torch's functions compiled by hloom, and by themselves."""
    torch = importlib.import_module("torch")
    functions = {name: f for name, f in _torch_functions().items() if name in fitting(m, n)}
    made = matrices(np.random.default_rng(seed), dtype, m, n)
    for name, function in functions.items():
        torch.compiler.reset()
        compiled = torch.compile(function, backend="hloom")
        for kind, a in made.items():
            given = [torch.from_numpy(x.copy()) for x in operands_of(a, FUNCTIONS[name].operands)]
            wrong = _torch_faults(name, a, compiled, given)
            wrong = [] if wrong and _torch_faults(name, a, function, given) else wrong
            yield f"torch {dtype} {m}x{n} seed {seed} {kind}: {name}", "; ".join(wrong)


def _torch_faults(name: str, a: np.ndarray, function: Callable, given: list) -> list[str]:
    torch = importlib.import_module("torch")
    try:
        found = function(*given)
    except torch.linalg.LinAlgError as error:
        return [f"{type(error).__name__}"]
    found = list(found) if isinstance(found, tuple) else [found]
    return faults(name, a, [f.resolve_conj().numpy() for f in found])


# --- gradients --------------------------------------------------------------------------------------------------------


def _gradients(case: Case) -> dict[str, tuple[Callable, np.ndarray, float]]:
    """Real scalars of a real matrix, with their gradients in closed form and the scale of their rounding errors, as far
    as they are defined and well conditioned there. For w, whose largest element is about 1."""
    linalg, found = hloom.numpy.linalg, {}
    u, s, vh = np.linalg.svd(case.w, full_matrices=False)
    n, rest = len(s), case.eps
    gaps = np.abs(np.diff(s, append=0)) / s[0] if case.norm else np.zeros(n)
    if gaps[:1].min(initial=1) > 1e-3 and case.norm:
        found["norm 2"] = (lambda a: linalg.norm(a, 2), np.outer(u[:, 0], vh[0]), rest / gaps[0])
    if gaps.min(initial=1) > 1e-3 and case.norm:
        weights = np.cos(1.0 + np.arange(n))
        apart = rest / gaps.min()
        found["singular values"] = (lambda a: (linalg.svdvals(a) * weights).sum(), (u * weights) @ vh, apart)
        found["nuclear norm"] = (lambda a: linalg.norm(a, "nuc"), u @ vh, apart)
    if case.least > 1e-3 * case.norm and case.norm:
        p = np.linalg.pinv(case.w)
        size = largest(p) ** 2 * case.norm / case.least
        found["pinv"] = (
            lambda a: (linalg.pinv(a) ** 2).sum() / 2,
            _pinv_gradient(case.w, p),
            rest * size * largest(p) * n,
        )
    if case.m == case.n:
        u, s, vh = np.linalg.svd(case.w)
        others = np.array([np.prod(np.delete(s, k)) for k in range(n)])
        adjugate = np.linalg.det(u) * np.linalg.det(vh) * (u * others) @ vh
        most = np.prod(s[:-1] + case.unit)
        found["det"] = (linalg.det, adjugate, rest * n * most)
        if case.least > 1e-3 * case.norm and case.norm:
            p = np.linalg.inv(case.w)
            found["slogdet"] = (lambda a: linalg.slogdet(a)[1], p.T, rest * largest(p) * case.norm / case.least)
            found["inv"] = (lambda a: linalg.inv(a).sum(), -np.outer(p.sum(0), p.sum(1)), rest * size * n * n)
        values, v = np.linalg.eigh((case.w + case.w.T) / 2)
        apart = np.diff(values).min(initial=1)
        if apart > 1e-3 and case.norm:
            weights = np.cos(1.0 + np.arange(n))
            value = lambda a: (linalg.eigvalsh((a + a.T) / 2) * weights).sum()  # noqa: E731
            found["eigenvalues"] = (value, (v * weights) @ v.T, rest / apart)
    return found


def _pinv_gradient(a: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Of half the sum of squares of P = A^+, for A of full rank, by the derivative of Golub and Pereyra with G = P."""
    g = p
    m, n = a.shape
    left, right = np.eye(m) - a @ p, np.eye(n) - p @ a
    return -p.T @ g @ p.T + (left @ g.T @ p @ p.T if m > n else 0) + (p.T @ p @ g.T @ right if n > m else 0)


def gradients(dtype: str, m: int, n: int, seed: int) -> Iterator[tuple[str, str]]:
    """Gradients of functions of real matrices, in closed form."""
    compiled: dict[str, Callable] = {}
    for kind, a in matrices(np.random.default_rng(seed), dtype, m, n).items():
        case = Case(a)
        if not case.finite:
            continue
        w = case.w.astype(dtype)
        for name, (function, wanted, scale) in _gradients(Case(w)).items():
            run = compiled.setdefault(name, hl.jit(hl.grad(function)))
            error = largest(np.asarray(run(w)) - wanted)
            ratio = error / scale if error else 0.0
            yield f"gradient {dtype} {m}x{n} seed {seed} {kind}: {name}", "" if ratio <= BOUND else f"{ratio:.3g}"
