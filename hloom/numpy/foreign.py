"""Names that arrays, layers and optimizers have in other libraries, and their replacements here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hloom.errors import ForeignAttributeError


class _Foreign:
    """A name that a class does not have: accessing it raises an error with the replacement.

    `hasattr` and `getattr` with a default still find nothing; the lookup of other attributes is not slowed down.
    """

    def __init__(self, name: str, repair: str):
        self.name, self.repair = name, repair

    def __get__(self, instance, owner):
        if instance is None:
            raise AttributeError(f"type object {owner.__name__!r} has no attribute {self.name!r}")
        what = f"{owner.__name__} {instance._shape!r}" if hasattr(instance, "_shape") else owner.__name__
        raise ForeignAttributeError(f"{self.name!r} of {what}", f"there is no attribute {self.name!r}", self.repair)


def answer(cls: type, names: Mapping[str, str]) -> None:
    """Registers names that a class does not have, with what to write instead: name -> repair."""
    for name, repair in names.items():
        if not hasattr(cls, name):
            setattr(cls, name, _Foreign(name, repair))


def without_foreign(instance, names: Iterable[str]) -> list[str]:
    """Names of attributes for `dir`, without those of other libraries."""
    places = [getattr(instance, "__dict__", {}), *map(vars, type(instance).__mro__)]
    found = {name: next((place[name] for place in places if name in place), None) for name in names}
    return [name for name, value in found.items() if not isinstance(value, _Foreign)]


_OUT_OF_PLACE = "arrays are immutable; write"
OF_ARRAYS = {
    # torch
    "numpy": "write np.asarray(x)",
    "to_numpy": "write np.asarray(x)",
    "cpu": "write hl.device_put(x, 'cpu:0')",
    "cuda": "write hl.device_put(x, 'cuda:0')",
    "to": "write x.astype(dtype), or hl.device_put(x, device)",
    "detach": "write lax.stop_gradient(x)",
    "backward": "write hl.grad(loss)(parameters): gradients are results of functions",
    "grad": "write hl.grad(loss)(parameters): gradients are results of functions",
    "grad_fn": "write hl.grad(loss)(parameters): gradients are results of functions",
    "requires_grad": "name the arguments to differentiate: hl.grad(loss, argnums=...)",
    "requires_grad_": "name the arguments to differentiate: hl.grad(loss, argnums=...)",
    "retain_grad": "write hl.grad(loss, argnums=...)",
    "permute": "write x.transpose(axes)",
    "unsqueeze": "write hnp.expand_dims(x, axis)",
    "expand": "write hnp.broadcast_to(x, shape)",
    "expand_as": "write hnp.broadcast_to(x, y.shape)",
    "view_as": "write x.reshape(y.shape)",
    "reshape_as": "write x.reshape(y.shape)",
    "type_as": "write x.astype(y.dtype)",
    "contiguous": "leave it out: arrays are contiguous",
    "is_contiguous": "leave it out: arrays are contiguous",
    "clone": "leave it out: arrays are immutable, or write x.copy()",
    "t": "write x.T",
    "dim": "write x.ndim",
    "numel": "write x.size",
    "element_size": "write x.itemsize",
    "get_device": "write x.device",
    "is_cuda": "write x.device",
    "float": "write x.astype('float32')",
    "double": "write x.astype('float64')",
    "half": "write x.astype('float16')",
    "bfloat16": "write x.astype('bfloat16')",
    "int": "write x.astype('int32')",
    "long": "write x.astype('int64')",
    "bool": "write x.astype(bool)",
    "type": "write x.astype(dtype), or x.dtype",
    "clamp": "write x.clip(low, high)",
    "mm": "write x @ y",
    "bmm": "write x @ y",
    "matmul": "write x @ y",
    "mv": "write x @ y",
    "cat": "write hnp.concatenate([x, y], axis)",
    "chunk": "write hnp.array_split(x, parts, axis)",
    "split": "write hnp.split(x, parts, axis)",
    "unbind": "write hnp.unstack(x, axis=0)",
    "gather": "write hnp.take_along_axis(x, indices, axis)",
    "index_select": "write hnp.take(x, indices, axis)",
    "masked_fill": "write hnp.where(mask, value, x)",
    "masked_select": "write x[mask]",
    "scatter": "write x.at[indices].set(values)",
    "scatter_add": "write x.at[indices].add(values)",
    "index_add": "write x.at[indices].add(values)",
    "topk": "write lax.top_k(x, k)",
    "norm": "write hnp.linalg.norm(x)",
    "softmax": "write nn.softmax(x, axis)",
    "log_softmax": "write nn.log_softmax(x, axis)",
    "relu": "write nn.relu(x)",
    "sigmoid": "write nn.sigmoid(x)",
    "logsumexp": "write nn.logsumexp(x, axis)",
    "eq": "write x == y",
    "pow": "write x ** y",
    "add": "write x + y",
    "sub": "write x - y",
    "mul": "write x * y",
    "div": "write x / y",
    "neg": "write -x",
    "logical_not": "write hnp.logical_not(x)",
    **{
        name: f"write hnp.{name}(x)"
        for name in (
            "abs exp log log2 log10 log1p expm1 sqrt sin cos tan tanh sinh cosh floor ceil square sign isnan isinf "
            "isfinite median quantile unique diff flip tile roll logical_and logical_or tril triu"
        ).split()
    },
    # in place
    **{
        name: f"{_OUT_OF_PLACE} x = {text}"
        for name, text in {
            "add_": "x + y", "sub_": "x - y", "mul_": "x * y", "div_": "x / y", "zero_": "hnp.zeros_like(x)",
            "fill_": "hnp.full_like(x, value)", "fill": "hnp.full_like(x, value)", "copy_": "y",
            "clamp_": "x.clip(low, high)", "normal_": "hl.random.normal(key, x.shape)",
            "uniform_": "hl.random.uniform(key, x.shape)", "masked_fill_": "hnp.where(mask, value, x)",
            "scatter_": "x.at[indices].set(values)", "index_add_": "x.at[indices].add(values)",
            "itemset": "x.at[index].set(value)", "put": "x.at[indices].set(values)",
            "resize": "hnp.resize(x, shape)", "assign": "y", "assign_add": "x + y", "assign_sub": "x - y",
        }.items()
    },
    # NumPy, TensorFlow, CuPy, pandas
    "flags": "leave it out: arrays are immutable; np.array(x) is one that may be written to",
    "setflags": "leave it out: arrays are immutable; np.array(x) is one that may be written to",
    "strides": "write np.asarray(x).strides",
    "data": "write np.asarray(x)",
    "base": "leave it out: arrays do not share memory",
    "ctypes": "write np.asarray(x).ctypes",
    "flat": "write x.ravel()",
    "tobytes": "write np.asarray(x).tobytes()",
    "tofile": "write np.asarray(x).tofile(path), or hnp.save(path, x)",
    "dump": "write hnp.save(path, x)",
    "data_ptr": "write x.unsafe_buffer_pointer()",
    "eval": "write np.asarray(x)",
    "get_shape": "write x.shape",
    "set_shape": "write x.reshape(shape)",
    "get": "write np.asarray(x)",
    "values": "write np.asarray(x)",
    "iloc": "write x[index]",
}  # fmt: skip

_KNOWN_LATER = "return it and convert the result; hl.debug.print('{}', x) shows it when the compiled function runs"
OF_TRACERS = dict.fromkeys("numpy to_numpy cpu tobytes tofile dump eval get values strides".split(), _KNOWN_LATER)

OF_LAYERS = {
    "parameters": "a module is the tree of its parameters: hl.tree.leaves(model); optimizer.init(model) takes it whole",
    "named_parameters": "write hl.tree.leaves_with_path(model)",
    "state_dict": "write hl.checkpoints.save(folder, model)",
    "load_state_dict": "write hl.checkpoints.restore(folder, like=model)",
    "save_weights": "write hl.checkpoints.save(folder, model)",
    "load_weights": "write hl.checkpoints.restore(folder, like=model)",
    "train": "a call is inference; for training write nn.apply(model, x, training=True, key=key)",
    "eval": "leave it out: a call is inference",
    "to": "write hl.device_put(model, device), or hl.tree.map(lambda x: x.astype(dtype), model)",
    "cuda": "write hl.device_put(model, 'cuda:0')",
    "cpu": "write hl.device_put(model, 'cpu:0')",
    "half": "write hl.tree.map(lambda x: x.astype('float16'), model)",
    "float": "write hl.tree.map(lambda x: x.astype('float32'), model)",
    "zero_grad": "leave it out: gradients are results of hl.grad, and nothing keeps them",
    "register_buffer": "declare a field in the class: `name: hl.Array`",
    "register_parameter": "declare a field in the class: `name: hl.Array`",
    "add_module": "declare a field in the class: `name: nn.Linear`",
    "init": "make the layer: nn.Linear(3, 4, key=hl.random.key(0)); it holds its parameters",
    "compile": "write hl.jit(function of the model), or hl.training.train_step(loss, optimizer)",
    "fit": "write hl.training.fit(state, step, batches)",
    "predict": "write model(x), in hl.jit where it is called often",
    "weights": "write hl.tree.leaves(model)",
    "trainable_variables": "write hl.tree.leaves(model)",
}

_STEP = "write updates, state = optimizer.update(gradients, state, parameters), then optim.apply_updates"
OF_OPTIMIZERS = {
    "step": _STEP,
    "apply_gradients": _STEP,
    "apply": _STEP,
    "minimize": f"gradients come from hl.grad(loss)(parameters); {_STEP}",
    "zero_grad": "leave it out: gradients are results of hl.grad, and nothing keeps them",
    "param_groups": "write optim.partition({'slow': ..., 'fast': ...}, labels)",
    "state_dict": "the state is a tree: hl.checkpoints.save(folder, state)",
    "load_state_dict": "the state is a tree: hl.checkpoints.restore(folder, like=state)",
    "target": "the parameters are your own; optimizer.init(parameters) makes the state",
    "lr": "write a schedule: optim.adam(optim.cosine_decay_schedule(1e-3, steps))",
    "learning_rate": "write a schedule: optim.adam(optim.cosine_decay_schedule(1e-3, steps))",
}
