"""A training loop that is saved, resumed and looked at, around a step of the user's.

    optimizer = optim.adam(1e-3)
    state = training.TrainState.of(model, optimizer, average=0.999)
    step = training.train_step(loss, optimizer)
    result = training.fit(state, step, batches, epochs=10, checkpoints="run", evaluate=accuracy)

`fit` needs no more than a step(state, batch) -> (state, metrics); `TrainState` and `train_step` make the usual one.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from hloom.ir.process import lazy as _lazy

if _TYPE_CHECKING:  # the names of _HOMES, for type checkers
    # fmt: off
    # isort: off
    from hloom.training import distortions, estimators, feature_columns
    from hloom.training.callbacks import Callback, EarlyStopping, Summaries
    from hloom.training.evaluation import evaluate
    from hloom.training.history import plot_curves
    from hloom.training.loop import Result, fit
    from hloom.training.running import Loop
    from hloom.training.state import TrainState, train_step
    # isort: on
    # fmt: on

# Where the public names are defined.
_HOMES = {
    "hloom.training.callbacks": "Callback EarlyStopping Summaries",
    "hloom.training.evaluation": "evaluate",
    "hloom.training.history": "plot_curves",
    "hloom.training.loop": "Result fit",
    "hloom.training.running": "Loop",
    "hloom.training.state": "TrainState train_step",
}
_MODULES = {name: f"hloom.training.{name}" for name in ("distortions", "estimators", "feature_columns")}
__getattr__ = _lazy.lazy_names(globals(), _HOMES, _MODULES)

__all__ = [*_MODULES, *" ".join(_HOMES.values()).split()]
__dir__ = __all__.copy
