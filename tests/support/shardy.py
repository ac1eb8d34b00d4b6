"""Shardy, as jaxlib has it, as the reference of propagation: the same program, annotated, through its passes."""

from __future__ import annotations

from spmd_modules import copied

from hloom.compiler.pipeline import EXPORT, run_passes
from hloom.ir.module import Module
from hloom.ir.spmd.sharding import Sharding
from hloom.ir.stablehlo import stablehlo_text

PIPELINE = (
    "sdy-constant-or-scalar-splitter,symbol-dce,sdy-add-data-flow-edges,sdy-apply-sharding-constraints,"
    "sdy-user-priority-propagate,sdy-propagate-to-func-results,func.func(sdy-constant-or-scalar-merger),"
    "func.func(sdy-sink-data-flow-edges)"
)


def attribute(sharding: Sharding) -> str:
    """Shardy's text of a sharding over the mesh @mesh."""
    dims = []
    for d, axes in enumerate(sharding.dims):
        names = [f'"{name}"' for name in axes] + ["?"] * (d in sharding.open)
        dims.append(f"{{{', '.join(names)}}}")
    return f"<@mesh, [{', '.join(dims)}]>"


def _spec(sdy, array) -> str:
    """The text of `sharded_programs.text` for one of Shardy's shardings. A part of an axis is those of its atoms."""
    words = []
    for dim in array.dimension_shardings:
        names = []
        for axis in map(sdy.AxisRefAttr, sdy.DimensionShardingAttr(dim).axes):
            if axis.sub_axis_info is None:
                names.append(axis.name)
            else:
                part = sdy.SubAxisInfoAttr(axis.sub_axis_info)
                first, count = part.pre_size.bit_length() - 1, part.size.bit_length() - 1
                names += [f"{axis.name}.{k}" for k in range(first, first + count)]
        words.append("+".join(names) or "-")
    return " ".join(words)


def propagated(module: Module, mesh) -> list[tuple[str, list[set[str]] | None]]:
    """(name of the op, for each result the specs that it has in the copies of the op, or None) of each op of the main
    function. Shardy makes a copy of a constant, and of what is computed of constants, for each reader."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir, passmanager
    from jaxlib.mlir.dialects import sdy

    exported = run_passes(module, EXPORT["stablehlo"])
    axes = ", ".join(f'"{n}"={s}' for n, s in zip(mesh.names, mesh.sizes, strict=True))
    plain = copied(exported)  # whose text has no annotations: they are written below
    for instruction in plain.instructions():
        instruction.sharding = None
    text = stablehlo_text(plain)
    head, _, body = text.partition("{\n")
    text = f"{head}{{\n  sdy.mesh @mesh = <[{axes}]>\n{body}"
    with mlir.make_ir_context():
        program = ir.Module.parse(text)
        main = next(op for op in program.body.operations if op.operation.name == "func.func")
        given = []
        for parameter in module.entry.parameters:
            found = parameter.sharding
            given.append({"sdy.sharding": ir.Attribute.parse(f"#sdy.sharding{attribute(found)}")} if found else {})
        main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(g) for g in given])
        root = module.entry.root.sharding
        if root is not None:
            results = root if isinstance(root, tuple) else (root,)
            made = [{"sdy.sharding": ir.Attribute.parse(f"#sdy.sharding{attribute(r)}")} if r else {} for r in results]
            main.attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(m) for m in made])
        rows: list[tuple[str, list[set[str]] | None]] = []
        for op in _inside(main):
            op.attributes["test.number"] = ir.Attribute.parse(f"{len(rows)} : i64")
            rows.append((op.operation.name.split(".")[1].replace("_", "-"), None))
        passmanager.PassManager.parse(f"builtin.module({PIPELINE})").run(program.operation)
        main = next(op for op in program.body.operations if op.operation.name == "func.func")
        for op in _inside(main):
            attributes = op.operation.attributes
            if "test.number" not in attributes or not op.results:
                continue
            number = attributes["test.number"].value
            found = [" ".join("-" * ir.RankedTensorType(r.type).rank) for r in op.results]
            if "sdy.sharding" in attributes:
                per_value = sdy.TensorShardingPerValueAttr(attributes["sdy.sharding"])
                found = [_spec(sdy, sdy.TensorShardingAttr(s)) for s in per_value.shardings]
            name, known = rows[number]
            rows[number] = name, [{f} | k for f, k in zip(found, known or [set()] * len(found), strict=True)]
        return rows


def _inside(op):
    """The ops in a function, those in the regions of a loop or branch before it; ends of regions left out."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                name = inner.operation.name
                if name.split(".")[1] in ("while", "case", "if"):
                    yield from _inside(inner)
                if name not in ("stablehlo.return", "func.return"):
                    yield inner


def instructions(computation):
    """The instructions of a module in the order of `propagated`: values that are other values' elements left out."""
    for instruction in computation.instructions:
        if instruction.opcode in ("while", "conditional"):
            for callee in instruction.called():
                yield from instructions(callee)
        if instruction.opcode not in ("parameter", "tuple", "get-tuple-element"):
            yield instruction
