"""Programs of the examples that use collectives by name, and gradients of the others (see `programs`)."""

from __future__ import annotations

from benchmarks.sharding.programs import PROGRAMS, Program, program

P = "ring", None


def _gradient(name: str, wrt: tuple[int, ...]):
    """The gradients of the sum of the squares of a program's result, laid out as the arguments are."""

    def make(jax) -> Program:
        function, shapes, specs, _ = PROGRAMS[name][1](jax)

        def loss(*given):
            return jax.numpy.sum(function(*given) ** 2)

        return jax.grad(loss, wrt), shapes, specs, [specs[k] for k in wrt]

    make.__name__ = f"{name}_gradients"
    return program(**PROGRAMS[name][0])(make)


@program(data=8)
def towers(jax):
    """Data-parallel gradients by hand: each device those of its share of the batch, and their mean."""
    mlp, spec = PROGRAMS["data_parallel_gradients"][1](jax)[0], jax.sharding.PartitionSpec

    def tower(w1, w2, x, y):
        return jax.lax.pmean(mlp(w1, w2, x, y), "data")

    shapes = [(256, 512), (512, 64), (128, 256), (128, 64)]
    split = jax.shard_map(
        tower, in_specs=(spec(), spec(), spec("data"), spec("data")), out_specs=spec(), check_vma=False
    )
    return (
        split,
        shapes,
        [(None, None), (None, None), ("data", None), ("data", None)],
        [(None, None), (None, None)],
    )


@program(ring=8)
def ring_attention(jax):
    np, spec = jax.numpy, jax.sharding.PartitionSpec

    def attend(q, k, v):
        size = jax.lax.axis_size("ring")
        around = [(n, (n + 1) % size) for n in range(size)]
        largest, total, result = np.full(q.shape[0], -1e30), np.zeros(q.shape[0]), np.zeros(q.shape)
        for step in range(size):
            scores = q @ k.T / 8.0
            new = np.maximum(largest, scores.max(1))
            weights, scale = np.exp(scores - new[:, None]), np.exp(largest - new)
            result = result * scale[:, None] + weights @ v
            total, largest = total * scale + weights.sum(1), new
            if step + 1 < size:
                k, v = jax.lax.ppermute((k, v), "ring", around)
        return result / total[:, None]

    run = jax.shard_map(attend, in_specs=spec("ring"), out_specs=spec("ring"), check_vma=False)
    return run, [(256, 64)] * 3, [P] * 3, [P]


@program(stage=8)
def pipeline(jax):
    """Sixteen micro-batches through a stage on each device."""
    np, spec, count = jax.numpy, jax.sharding.PartitionSpec, 16

    def run(weights, batches):
        stages, own = jax.lax.axis_size("stage"), jax.lax.axis_index("stage")
        onward = [(k, k + 1) for k in range(stages - 1)]
        received, results = np.zeros(batches.shape[1:]), []
        for number in range(count + stages - 1):
            y = np.where(own == 0, batches[min(number, count - 1)], received)
            for w in weights:
                y = np.tanh(y @ w)
            if number + 1 < count + stages - 1:
                received = jax.lax.ppermute(y, "stage", onward)
            if number >= stages - 1:
                results.append(y)
        return jax.lax.psum(np.where(own == stages - 1, np.stack(results), 0), "stage")

    split = jax.shard_map(run, in_specs=(spec("stage"), spec()), out_specs=spec(), check_vma=False)
    return (
        split,
        [(8, 64, 64), (count, 16, 64)],
        [("stage", None, None), (None, None, None)],
        [(None, None, None)],
    )


_gradient("tensor_parallel_mlp", (1, 2))
_gradient("ring_attention", (0, 1, 2))
_gradient("pipeline", (0,))
_gradient("heat_equation", (0,))
_gradient("embedding_split_by_vocabulary", (0,))
_gradient("mixture_of_experts", (1, 2))
_gradient("convolution_over_split_rows", (1,))
