"""Programs of one device with layouts over a mesh, for the tests of propagation and partition."""

from __future__ import annotations

import hloom as hl
import hloom.numpy as hnp
from hloom.ir.module import Module
from hloom.ir.spmd.sharding import DeviceMesh, Sharding

MESH = DeviceMesh(("data", "model"), (4, 8))


def sharding(spec, mesh: DeviceMesh = MESH, rank: int | None = None, open=()) -> Sharding:
    """The sharding of a text such as 'data - model', a word for each dimension; 'data+model' splits by both."""
    words = spec.split() if isinstance(spec, str) else spec
    dims = tuple(() if word == "-" else tuple(word.split("+")) for word in words)
    return Sharding(mesh, dims + ((),) * ((rank or 0) - len(dims)), open=tuple(open))


def text(found) -> str:
    """The spec of a sharding; axes of the atomic mesh that make up a whole axis as that axis."""
    if isinstance(found, tuple):
        return f"({', '.join(map(text, found))})"
    words = ["+".join(_whole_axes(axes, found.mesh)) or "-" for axes in found.dims]
    return " ".join(words) + (f" / {'+'.join(_whole_axes(found.unreduced, found.mesh))}" if found.unreduced else "")


def _whole_axes(axes, mesh: DeviceMesh) -> list[str]:
    found = list(axes)
    for name in dict.fromkeys(axis.split(".")[0] for axis in axes):
        atoms = [axis for axis in mesh.names if axis.split(".")[0] == name]
        for k in range(len(found)):
            if found[k : k + len(atoms)] == atoms:
                found[k : k + len(atoms)] = [name]
    return found


def traced(function, mesh: DeviceMesh = MESH, results=(), **arguments) -> Module:
    """The module of a function of named arguments, each (shape, spec or None, dtype); results: specs or None."""
    shapes = {
        name: hl.ShapeDtypeStruct(given[0], given[2] if len(given) > 2 else "f32") for name, given in arguments.items()
    }
    module = hl.make_module(function)(**shapes)
    specs = {name: given[1] for name, given in arguments.items() if len(given) > 1}
    for parameter in module.entry.parameters:
        spec = specs.get(parameter.hint)
        if spec is not None:
            parameter.sharding = sharding(spec, mesh, len(parameter.dims))
    outputs = module.entry.outputs()
    found = [None if s is None else sharding(s, mesh, len(o.dims)) for s, o in zip(results, outputs, strict=False)]
    if found:
        root = module.entry.root
        root.sharding = tuple(found) if root.opcode == "tuple" else found[0]
    module.partitions = mesh.size
    return module


# --- a transformer ------------------------------------------------------------------------------------------------


def layer_norm(x, gain, bias):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / hnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return scaled * gain + bias


def attention(x, query, key, value, out):
    """x[b, s, d]; weights [d, h, k] and [h, k, d]."""
    q, k, v = (hnp.einsum("bsd,dhk->bhsk", x, w) for w in (query, key, value))
    scores = hnp.einsum("bhsk,bhtk->bhst", q, k) / q.shape[-1] ** 0.5
    place = hnp.arange(x.shape[1])
    scores = hnp.where(place[:, None] >= place[None, :], scores, -1e9)
    weights = hnp.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return hnp.einsum("bhst,bhtk,hkd->bsd", weights, v, out)


def feed_forward(x, up, up_bias, down, down_bias):
    h = x @ up + up_bias
    h = h * 0.5 * (1 + hnp.tanh(0.7978845608 * (h + 0.044715 * h * h * h)))
    return h @ down + down_bias


def block(x, w):
    x = x + attention(layer_norm(x, w["g1"], w["b1"]), w["q"], w["k"], w["v"], w["o"])
    return x + feed_forward(layer_norm(x, w["g2"], w["b2"]), w["up"], w["ub"], w["down"], w["db"])


def block_weights(model: int, heads: int, hidden: int) -> dict:
    size = model // heads
    return {
        "q": ((model, heads, size), "- model -"), "k": ((model, heads, size), "- model -"),
        "v": ((model, heads, size), "- model -"), "o": ((heads, size, model), "model - -"),
        "up": ((model, hidden), "- model"), "ub": ((hidden,), "model"),
        "down": ((hidden, model), "model -"), "db": ((model,), "-"),
        "g1": ((model,), "-"), "b1": ((model,), "-"), "g2": ((model,), "-"), "b2": ((model,), "-"),
    }  # fmt: skip


def transformer_step(layers: int, mesh: DeviceMesh = MESH, model=512, heads=8, hidden=2048, vocabulary=1024) -> Module:
    """A training step (Adam) of a transformer, data x tensor parallel; weights of layer k are named q0, q1, ..."""
    weights = {f"{n}{k}": given for k in range(layers) for n, given in block_weights(model, heads, hidden).items()}
    weights |= {"table": ((vocabulary, model), "model -"), "head": ((model, vocabulary), "- model")}
    batch, length = 16, 128

    def loss(w, tokens, labels):
        x = w["table"][tokens]
        for k in range(layers):
            x = block(x, {n: w[f"{n}{k}"] for n in block_weights(model, heads, hidden)})
        logits = x @ w["head"]
        logits = logits - logits.max(-1, keepdims=True)
        log_sum = hnp.log(hnp.exp(logits).sum(-1))
        chosen = (logits * (labels[..., None] == hnp.arange(vocabulary))).sum(-1)
        return (log_sum - chosen).mean()

    def step(w, m, v, tokens, labels):
        value, gradients = hl.value_and_grad(loss)(w, tokens, labels)
        new_w, new_m, new_v = {}, {}, {}
        for name, g in gradients.items():
            new_m[name] = 0.9 * m[name] + 0.1 * g
            new_v[name] = 0.999 * v[name] + 0.001 * g * g
            new_w[name] = w[name] - 1e-3 * new_m[name] / (hnp.sqrt(new_v[name]) + 1e-8)
        return value, new_w, new_m, new_v

    shapes = {name: hl.ShapeDtypeStruct(shape, "f32") for name, (shape, _) in weights.items()}
    tokens = hl.ShapeDtypeStruct((batch, length), "s32")
    module = hl.make_module(step)(shapes, shapes, shapes, tokens, tokens)
    specs = [spec for _, (_, spec) in sorted(weights.items())] * 3 + ["data -"] * 2
    for parameter, spec in zip(module.entry.parameters, specs, strict=True):
        parameter.sharding = sharding(spec, mesh)
    module.partitions = mesh.size
    return module


# --- textbook programs --------------------------------------------------------------------------------------------


def _mlp(x, w1, b1, w2, b2):
    return hnp.maximum(x @ w1 + b1, 0) @ w2 + b2


def _cross_entropy(logits, labels):
    logits = logits - logits.max(-1, keepdims=True)
    chosen = hnp.where(labels[:, None] == hnp.arange(logits.shape[-1]), logits, 0).sum(-1)
    return (hnp.log(hnp.exp(logits).sum(-1)) - chosen).mean()


def _step(loss, names: str):
    """A gradient step: the loss and the new weights."""
    count = len(names.split())

    def step(*values):
        value, gradients = hl.value_and_grad(loss, argnums=tuple(range(count)))(*values)
        return value, *(w - 0.1 * g for w, g in zip(values, gradients, strict=False))

    return step


def _mlp_loss(w1, b1, w2, b2, x, labels):
    return _cross_entropy(_mlp(x, w1, b1, w2, b2), labels)


def _convolutions(k1, k2, w, x, labels):
    for k in (k1, k2):
        x = hl.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = hnp.maximum(x, 0)
        x = hl.lax.reduce_window(x, -hnp.inf, hl.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return _cross_entropy(x.reshape(x.shape[0], -1) @ w, labels)


def _layers(w, b, x):
    def layer(x, given):
        weights, bias = given
        return hnp.tanh(x @ weights + bias), None

    return (hl.lax.scan(layer, x, (w, b))[0] ** 2).mean()


def _norm(g, b, x):
    return (layer_norm(x, g, b) ** 2).sum()


def _embedding(table, tokens, labels):
    x = table[tokens]
    return ((x - labels) ** 2).mean()


def _attention(q, k, v, o, x):
    return (attention(x, q, k, v, o) ** 2).mean()


def _heat(u):
    def step(k, u):
        padded = hnp.pad(u, 1)
        return u + 0.1 * (padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2] - 4 * u)

    return hl.lax.fori_loop(0, 10, step, u)


def _k_means(points, centres):
    distances = ((points[:, None, :] - centres[None]) ** 2).sum(-1)
    nearest = (distances == distances.min(1, keepdims=True)).astype(points.dtype)
    return (nearest.T @ points) / nearest.sum(0)[:, None]


def _experts(gate, up, down, x):
    scores = hnp.exp(x @ gate)
    weights = scores / scores.sum(-1, keepdims=True)
    h = hnp.einsum("td,edh->eth", x, up)
    return hnp.einsum("eth,ehd,te->td", hnp.maximum(h, 0), down, weights)


def _ordered(x):
    return hnp.sort(x, axis=1), hnp.cumsum(x, axis=1), hl.lax.top_k(x, 4)[0], hnp.fft.fft(x).real, hnp.roll(x, 3, 0)


def _merged_heads(x, w, out):
    h = (x @ w).reshape(x.shape[0], x.shape[1], 8, 64).transpose(0, 2, 1, 3)
    return h.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[1], 512) @ out


_MLP = "w1 b1 w2 b2"


def _mlp_arguments(w1, b1, w2, b2, x, labels="data"):
    return {
        "w1": ((256, 1024), w1), "b1": ((1024,), b1), "w2": ((1024, 128), w2), "b2": ((128,), b2),
        "x": ((64, 256), x), "labels": ((64,), labels, "s32"),
    }  # fmt: skip


def _named(function, arguments: dict):
    """The function of positional arguments with their names, which become the parameters' hints."""
    names = ", ".join(arguments)
    scope = {"function": function}
    exec(f"def named({names}):\n    return function({names})", scope)
    return scope["named"]


_HEADS = {"q": ((128, 8, 16), "- model -"), "k": ((128, 8, 16), "- model -"), "v": ((128, 8, 16), "- model -")}
TEXTBOOK = {
    "mlp_data": (_step(_mlp_loss, _MLP), _mlp_arguments("- -", "-", "- -", "-", "data -")),
    "mlp_tensor": (_step(_mlp_loss, _MLP), _mlp_arguments("- model", "model", "model -", "-", "- -", "-")),
    "mlp_data_tensor": (_step(_mlp_loss, _MLP), _mlp_arguments("- model", "model", "model -", "-", "data -")),
    "mlp_fully_sharded": (_step(_mlp_loss, _MLP), _mlp_arguments("data -", "data", "data -", "data", "data -")),
    "mlp_free_weights": (_step(_mlp_loss, _MLP), _mlp_arguments(None, None, None, None, "data -")),
    "attention": (
        _step(_attention, "q k v o"), {**_HEADS, "o": ((8, 16, 128), "model - -"), "x": ((16, 64, 128), "data - -")},
    ),
    "attention_by_sequence": (
        _attention, {**dict.fromkeys("qkv", ((128, 8, 16), "- - -")), "o": ((8, 16, 128), "- - -"),
                     "x": ((16, 64, 128), "- model -")},
    ),
    "layer_norm": (_step(_norm, "g b"), {"g": ((512,), "-"), "b": ((512,), "-"), "x": ((64, 512), "data model")}),
    "embedding": (
        _step(_embedding, "table"),
        {"table": ((1024, 512), "model -"), "tokens": ((64, 16), "data -", "s32"), "labels": ((64, 16, 512), None)},
    ),
    "convolutions": (
        _step(_convolutions, "k1 k2 w"),
        {"k1": ((3, 3, 3, 16), "- - - -"), "k2": ((3, 3, 16, 32), "- - - -"), "w": ((2048, 10), "- -"),
         "x": ((32, 32, 32, 3), "data - - -"), "labels": ((32,), "data", "s32")},
    ),
    "convolutions_in_space": (
        _convolutions,
        {"k1": ((3, 3, 3, 16), "- - - -"), "k2": ((3, 3, 16, 32), "- - - -"), "w": ((2048, 10), "- -"),
         "x": ((32, 32, 32, 3), "- data - -"), "labels": ((32,), None, "s32")},
    ),
    "layers": (
        _step(_layers, "w b"),
        {"w": ((6, 256, 256), "- - model"), "b": ((6, 256), "- model"), "x": ((64, 256), "data -")},
    ),
    "heat": (_heat, {"u": ((512, 512), "data model")}),
    "k_means": (_k_means, {"points": ((4096, 16), "data -"), "centres": ((64, 16), "- -")}),
    "experts": (
        _experts,
        {"gate": ((128, 8), "- -"), "up": ((8, 128, 256), "model - -"), "down": ((8, 256, 128), "model - -"),
         "x": ((256, 128), "data -")},
    ),
    "ordered": (_ordered, {"x": ((64, 1024), "data model")}),
    "merged_heads": (
        _merged_heads, {"x": ((16, 128, 256), "data - -"), "w": ((256, 512), "- model"), "out": ((512, 256), None)},
    ),
}  # fmt: skip


def textbook(name: str, results=()) -> Module:
    function, arguments = TEXTBOOK[name]
    return traced(_named(function, arguments), results=results, **arguments)
