"""What users of other libraries write of optimizers: each mistake is named at the user's line, with a repair."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import optim
from hloom.errors import ArgumentError, ForeignAttributeError

pytestmark = pytest.mark.quick

PARAMETERS = {"w": hnp.ones((2, 3))}
STATE = optim.sgd(0.1, momentum=0.9).init(PARAMETERS)
# (call, error, what was found, repair)
MISTAKES = [
    (lambda: optim.adam(1e-3, betas=(0.9, 0.99)), "unexpected keyword argument 'betas'", "b1, b2"),
    (lambda: optim.adam(lr=1e-3), "adam(lr=0.001)", "learning_rate"),
    (lambda: optim.sgd(lr=1e-3, momentum=0.9), "sgd(lr=0.001", "learning_rate"),
    (lambda: optim.adam(1e-3, beta_1=0.9), "'beta_1'", "b1"),
    (lambda: optim.nadam(1e-3, beta2=0.9), "'beta2'", "b2"),
    (lambda: optim.lamb(1e-3, epsilon=0.1), "'epsilon'", "eps"),
    (lambda: optim.rmsprop(1e-3, rho=0.9), "'rho'", "decay"),
    (lambda: optim.adam(1e-3, weight_decay=0.1), "'weight_decay'", "optim.adamw"),
    (lambda: optim.adam(1e-3, amsgrad=True), "'amsgrad'", "optim.amsgrad"),
    (lambda: optim.adam(1e-3, clipnorm=1.0), "'clipnorm'", "optim.clip_by_global_norm"),
    (lambda: optim.adam(params=PARAMETERS), "params=", "optimizer.init(parameters)"),
    (lambda: optim.adam(PARAMETERS, 1e-3), "dict", "optimizer.init(parameters)"),
    (lambda: optim.adam(), "missing", "pass the missing arguments"),
    (lambda: optim.cosine_decay_schedule(1e-3, steps=100), "steps=100", "decay_steps"),
    (lambda: optim.adam("1e-3"), "str '1e-3'", "learning_rate=0.001"),
    (lambda: optim.sgd("high"), "str 'high'", "a number, such as learning_rate=1e-3"),
    (lambda: optim.sgd(1e-3, momentum="0.9"), "str '0.9'", "momentum=0.9"),
    (lambda: optim.adam(1e-3, (0.9, 0.99)), "tuple (0.9, 0.99)", "b1=0.9"),
    (lambda: optim.adam(None), "None", "a number"),
    (lambda: optim.adam(optim.sgd(1e-3)), "GradientTransformation", "a number"),
    (lambda: optim.clip_by_global_norm("1"), "str '1'", "max_norm=1.0"),
    (lambda: optim.multi_steps(optim.sgd(0.1), "4"), "str '4'", "every=4"),
    (lambda: optim.exponential_decay(0.1, "10", 0.9), "str '10'", "transition_steps=10"),
    (lambda: optim.constant_schedule("0.1"), "str '0.1'", "value=0.1"),
    (lambda: optim.ftrl("0.1"), "str '0.1'", "learning_rate=0.1"),
    (lambda: optim.chain([optim.clip(1.0), optim.sgd(0.1)]), "one list of 2", "optim.chain(first, second)"),
    (lambda: optim.adam(1e-3).update(PARAMETERS, STATE), "TraceState, the state of another optimizer", "init"),
    (lambda: optim.sgd(1e-3).update(PARAMETERS, STATE), "TraceState, the state of another optimizer", "init"),
    (lambda: optim.adamw(1e-3).update(PARAMETERS, STATE, PARAMETERS), "ChainState of 2", "init"),
]


@pytest.mark.parametrize("call,found,repair", MISTAKES, ids=[str(c.__code__.co_firstlineno) for c, _, _ in MISTAKES])
def test_mistakes(call, found, repair):
    with pytest.raises(ArgumentError) as caught:
        call()
    error = caught.value
    assert found in error.found and repair in error.repair, str(error)
    assert error.source.file == __file__ and error.source.line == call.__code__.co_firstlineno


ALL = {
    **{
        n: lambda make: make(0.1) for n in "adadelta adagrad adam adamax adamw amsgrad lamb lars lion nadam sgd".split()
    },
    **{n: lambda make: make(0.1) for n in "rmsprop ftrl adagrad_da proximal_adagrad".split()},
    "momentum": lambda _: optim.sgd(0.1, momentum=0.9),
    "centered": lambda _: optim.rmsprop(0.1, centered=True),
    "scheduled": lambda _: optim.sgd(optim.cosine_decay_schedule(0.1, 10)),
    "masked": lambda _: optim.masked(optim.adam(0.1), {"w": True}),
    "finite": lambda _: optim.apply_if_finite(optim.adam(0.1), 3),
    "several": lambda _: optim.multi_steps(optim.adam(0.1), 2),
    "partition": lambda _: optim.partition({"a": optim.adam(0.1)}, {"w": "a"}),
    "ema": lambda _: optim.ema(0.9),
}


@pytest.mark.parametrize("name", ALL)
def test_an_optimizer_takes_its_own_state_and_names_another(name):
    optimizer = ALL[name](getattr(optim, name, None))
    own = optimizer.init(PARAMETERS)
    _, after = optimizer.update(PARAMETERS, own, PARAMETERS)
    assert hl.tree.structure(after) == hl.tree.structure(own)
    for other in (optim.trace(0.5), optim.scale_by_stddev()):
        with pytest.raises(ArgumentError, match=r"(?s)state.*State.*init\(parameters\)"):
            optimizer.update(PARAMETERS, other.init(PARAMETERS), PARAMETERS)


def test_every_hyperparameter_is_checked():
    """Each argument of an optimizer or a schedule that has a number by default refuses a text."""
    count = 0
    for name in optim.__all__:
        function = getattr(optim, name)
        if not inspect.isfunction(function) or not (name in ALL or name.endswith(("_schedule", "_decay"))):
            continue
        parameters = inspect.signature(function).parameters.values()
        required = {p.name: 10 for p in parameters if p.default is p.empty}
        for p in parameters:
            if type(p.default) in (int, float) or p.name in ("learning_rate", "init_value", "momentum"):
                count += 1
                with pytest.raises(ArgumentError, match=rf"(?s)as {p.name}\n.*str 'one'"):
                    function(**{**required, p.name: "one"})
    assert count > 60


def test_numbers_of_every_kind_are_taken():
    for rate in (0.1, 1, np.float32(0.1), np.array(0.1), hnp.asarray(0.1), lambda count: 0.1):
        optimizer = optim.sgd(rate)
        optimizer.update(PARAMETERS, optimizer.init(PARAMETERS))
    step = hl.jit(lambda rate: optim.sgd(rate).update(PARAMETERS, optim.sgd(rate).init(PARAMETERS))[0])
    np.testing.assert_allclose(step(0.5)["w"], np.full((2, 3), -0.5))
    assert optim.sgd(0.1, None) and optim.exponential_decay(0.1, 10, 0.9, end_value=None)


@pytest.mark.parametrize("name", ["step", "zero_grad", "apply_gradients", "param_groups", "state_dict"])
def test_methods_of_other_libraries(name):
    optimizer = optim.adam(1e-3)
    assert not hasattr(optimizer, name)
    with pytest.raises(ForeignAttributeError, match=f"there is no attribute '{name}'") as caught:
        getattr(optimizer, name)
    assert caught.value.repair and caught.value.source.file == __file__
    with pytest.raises(AttributeError, match="other"):
        _ = optimizer.other
