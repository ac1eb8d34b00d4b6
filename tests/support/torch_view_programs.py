"""Random programs of views, changes in place and graph breaks, compiled and in torch's eager mode.

    python tests/support/torch_view_programs.py 1000        seeds 0 to 999; what differs is printed with its program

A program takes tensors, some of which share memory, and returns several. Compared are results, arguments, gradients,
and all of them again after each result has been changed in place: this shows which share memory.
"""

from __future__ import annotations

import random
import sys
import warnings

import torch

DTYPES = (torch.float64, torch.float64, torch.complex128, torch.int64)


def _views(rng: random.Random, name: str, v: torch.Tensor) -> str:
    """An expression of a view of a tensor."""
    found = ["{}.detach()", "{}.unsqueeze(0)", "{}.view_as({})", "{}[...]", "{}.unsqueeze(-1)"]
    if v.ndim:
        dim, n = rng.randrange(v.ndim), v.shape[0]
        found += [f"{{}}.transpose(0, {dim})", "{}.flatten()", "{}.expand(2, *{}.shape)", f"{{}}.movedim({dim}, 0)"]
        found += ["{}.view(-1)" if v.is_contiguous() else "{}.reshape(-1)"]
        if n:
            low = rng.randrange(n)
            found += [f"{{}}[{rng.randrange(n)}]", f"{{}}[{low}:]", f"{{}}[:{low + 1}]", "{}[..., ::2]"]
            found += [f"{{}}.narrow(0, {low}, 1)", "{}.unbind(0)[0]", "{}.split(1)[-1]", "{}.unfold(0, 1, 1)"]
            found += [f"{{}}.as_strided(({min(n, 2)},), (1,))", f"{{}}.chunk(2, {dim})[0]"]
            if n > 1:
                found += [f"{{}}.unfold(0, 2, {rng.choice((1, 2))})"]
    if v.ndim == 2:
        found += ["{}.t()", "{}.diagonal()", "{}.mT"]
    if v.is_complex():
        found += [
            "{}.conj()",
            "{}.conj()",
            "{}.real",
            "{}.imag",
            "{}.conj().imag",
            "torch.view_as_real({}.resolve_conj())",
        ]
        found += ["{}.mH"] if v.ndim == 2 else []
    if v.dtype == torch.float64 and not v.requires_grad and v.ndim:
        found += ["{}.view(torch.int64)"]
    return rng.choice(found).replace("{}", name)


def _new(rng: random.Random, name: str, other: str) -> str:
    forms = ("{} * 2", "{} + 1", "{}.clone()", "{} * {}", "torch.zeros_like({})", "{} + {}.sum()",
             "{}.t().contiguous()", "torch.ones_like({}) * {}", "{}.conj() * 2", "{}.new_empty({}.shape).copy_({})",
             "torch.empty_strided((2, 2), (4, 1), dtype={}.dtype).fill_(2)")  # fmt: skip
    text = rng.choice(forms)
    return (
        text.replace("{}", name, 1).replace("{}", rng.choice((name, other)))
        if text == "{} * {}"
        else text.replace("{}", name)
    )


def _change(rng: random.Random, name: str, other: str) -> str:
    return rng.choice(
        ("{}.add_(1)", "{}.mul_(3)", "{}[0] = 5", "{}.copy_(({}) * 2)", "{}.zero_()", "{}.fill_(2)", "{}.add_({})",
         "{}[..., 0] += 1", "{}.neg_()", "{}.masked_fill_({} == 5, 7)", "{}.t_()", "{}.squeeze_()",
         "{}.unsqueeze_(0)", "{}.index_fill_(0, torch.tensor([0]), 4)", "{}.conj_physical_()")
    ).replace("{}", name, 1).replace("{}", rng.choice((name, other)), 1).replace("{}", name)  # fmt: skip


def arguments_of(seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """(the arguments, the leaves that have gradients)."""
    rng = random.Random(seed)
    dtype = rng.choice(DTYPES)
    torch.manual_seed(seed)
    shape = rng.choice(((2, 2), (3, 2), (4,), (2, 3, 2)))
    if dtype == torch.int64:
        x = torch.randint(-4, 5, shape)
    else:
        x = torch.randn(shape, dtype=dtype)
    leaves = []
    if dtype != torch.int64 and rng.random() < 0.4:
        leaves, x = [x.requires_grad_()], x * 1
    found = [x]
    if rng.random() < 0.5:
        for _ in range(rng.randrange(1, 3)):
            scope = {"torch": torch, "x": rng.choice(found)}
            try:
                made = eval(_views(rng, "x", scope["x"]), scope)
                if made.dtype == dtype:
                    found.append(made)
            except RuntimeError:
                continue
    else:
        found.append((x.detach() * 3).clone())
    if rng.random() < 0.3:
        rng.shuffle(found)
    return found, leaves


def program_of(seed: int, steps: int = 8) -> tuple[str, object]:
    """The text of a program that eager mode runs, and its function."""
    rng = random.Random(seed + 10**6)
    arguments, _ = arguments_of(seed)
    names = [f"a{k}" for k in range(len(arguments))]
    lines: list[str] = []
    scope = {"torch": torch, **dict(zip(names, arguments, strict=True))}
    while len(lines) < steps:
        kind, name = rng.random(), rng.choice(names[-4:] if rng.random() < 0.6 else names)
        other = rng.choice(names)
        made = f"v{len(lines)}"
        if kind < 0.40:
            line = f"{made} = {_views(rng, name, scope[name])}"
        elif kind < 0.55:
            line = f"{made} = {_new(rng, name, other)}"
        elif kind < 0.88:
            line = _change(rng, name, other)
        else:
            line = "torch._dynamo.graph_break()"
        try:
            exec(line, scope)
        except (RuntimeError, IndexError, ValueError):
            # What eager refuses half-way may have changed arguments: begin again without this line.
            scope = {"torch": torch, **dict(zip(names, arguments_of(seed)[0], strict=False))}
            for done in lines:
                exec(done, scope)
            continue
        lines.append(line)
        if line.startswith(made):
            names.append(made)
    results = [n for n in names if rng.random() < 0.5] or names[-1:]
    text = f"def program({', '.join(n for n in names if n[0] == 'a')}):\n" + "".join(f"    {line}\n" for line in lines)
    text += f"    return {', '.join(results)},\n"
    scope = {"torch": torch}
    exec(compile(text, f"<program {seed}>", "exec"), scope)
    return text, scope["program"]


def outcome(function, seed: int) -> list:
    """What a program gives, and what it and its arguments are when each result has been changed in turn."""
    arguments, leaves = arguments_of(seed)
    results = list(function(*arguments))
    seen = [t.detach().clone() for t in (*results, *arguments)]
    layouts = [t.stride() if t.numel() > 1 else None for t in results]
    for number, result in enumerate(results):
        try:
            if number % 2:
                with torch.no_grad():
                    result.add_(number + 1)
            else:
                result.mul_(number + 2)
        except RuntimeError as error:
            seen.append(("refused", str(error)[:40]))
        seen += [t.detach().clone() for t in (*results, *arguments)]
    wanted = [t for t in (*results, *arguments) if t.requires_grad]
    if leaves and wanted:
        total = sum(
            (t.real.square().sum() + 2 * t.real.sum() + (t.imag.sum() * 3 if t.is_complex() else 0)) for t in wanted
        )
        seen.append(torch.autograd.grad(total, leaves, allow_unused=True)[0])
    return [[t.requires_grad for t in results], layouts, *seen]


def _same(a, b) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        a, b = (t.resolve_conj().resolve_neg() for t in (a, b))
        return torch.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)
    return type(a) is type(b) and a == b


def difference(seed: int, backend: str = "hloom") -> str | None:
    """What a program's outcome differs in; None where nothing does, or where eager mode refuses it."""
    text, function = program_of(seed)
    try:
        wanted = outcome(function, seed)
    except RuntimeError:
        return None
    torch._dynamo.reset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = outcome(torch.compile(function, backend=backend), seed)
    except Exception as error:
        return f"{text}{type(error).__name__}: {str(error)[:600]}"
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if not _same(a, b):
            return f"{text}part {k}: {a}\nwanted {b}"
    return None


if __name__ == "__main__":
    first, count = (int(sys.argv[2]) if len(sys.argv) > 2 else 0), int(sys.argv[1])
    backend = sys.argv[3] if len(sys.argv) > 3 else "hloom"
    bad = []
    for seed in range(first, first + count):
        if (text := difference(seed, backend)) is not None:
            bad.append(seed)
            print(f"--- seed {seed}\n{text}", flush=True)
    print(f"{count} programs, {len(bad)} differ: {bad}")
