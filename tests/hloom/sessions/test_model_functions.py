"""Estimators of a model function: training, evaluation, predictions, checkpoints, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import errors, metrics, nn, optim
from hloom.sessions import (
    Estimator,
    EstimatorSpec,
    ModeKeys,
    constant,
    from_dataset,
    get_variable,
    global_step,
    gradients,
    minimize,
    shuffle_batch,
    variable_scope,
)

pytestmark = pytest.mark.quick
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4)).astype(np.float32)
LABELS = np.argmax(X @ RNG.normal(size=(4, 3)), axis=1).astype(np.int32)


def classifier(features, labels, mode, params):
    with variable_scope("layer"):
        logits = features["x"] @ get_variable("w", [4, 3]) + get_variable("b", [3], initializer=0.0)
    predictions = {"class": hnp.argmax(logits, axis=1), "logits": logits}
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions)
    each = nn.losses.softmax_cross_entropy_with_integer_labels(logits, labels)
    train = minimize(optim.adam(params["rate"]), hnp.mean(each), global_step=global_step())
    total = get_variable("total", [], initializer=0.0, trainable=False, collections=["local_variables"])
    counted = total.assign_add(hnp.sum(predictions["class"] == labels).astype("float32"))
    right = {
        "accuracy": metrics.Accuracy.empty().update(logits, labels),
        "each": each,
        "share": hnp.mean(predictions["class"] == labels),
        "counted": (total, counted),
    }
    return EstimatorSpec(mode, predictions, hnp.mean(each), train, right)


def batches(size=20, repeat=False):
    def pairs():
        while True:
            for k in range(0, len(X), size):
                yield {"x": X[k : k + size]}, LABELS[k : k + size]
            if not repeat:
                return

    return pairs


def arrays():
    return {"x": X}, LABELS


def expected(estimator):
    logits = X @ estimator.get_variable_value("layer/w") + estimator.get_variable_value("layer/b")
    shifted = logits - logits.max(1, keepdims=True)
    each = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(X)), LABELS]
    return logits, each, np.mean(logits.argmax(1) == LABELS)


def test_training_evaluation_and_predictions():
    estimator = Estimator(classifier, params={"rate": 0.1})
    assert estimator.train(arrays, steps=2) is estimator
    before = estimator.evaluate(arrays)
    estimator.train(batches(repeat=True), steps=40)
    after = estimator.evaluate(batches())  # the last batch is smaller
    logits, each, accuracy = expected(estimator)
    assert (before["global_step"], after["global_step"]) == (2, 42) and after["loss"] < 0.6 * before["loss"]
    np.testing.assert_allclose(after["loss"], each.mean(), rtol=1e-4)
    np.testing.assert_allclose(after["each"], each.mean(), rtol=1e-4)
    for name in ("accuracy", "share"):
        np.testing.assert_allclose(after[name], accuracy, rtol=1e-5, err_msg=name)
    assert after["counted"] == round(accuracy * len(X))
    one = estimator.evaluate(batches(), steps=1)
    np.testing.assert_allclose(one["loss"], each[:20].mean(), rtol=1e-4)
    for found in (list(estimator.predict(batches())), list(estimator.predict(lambda: {"x": X}))):
        assert [one["class"] for one in found] == logits.argmax(1).tolist()
        np.testing.assert_allclose(np.stack([one["logits"] for one in found]), logits, rtol=1e-4, atol=1e-4)
    assert {"layer/w", "layer/b", "global_step"} <= set(estimator.get_variable_names())


def test_checkpoints_go_on_in_another_estimator(tmp_path):
    data = hl.data.arrays(({"x": X}, LABELS)).batch(30)
    Estimator(classifier, tmp_path, {"rate": 0.1}).train(lambda: data)
    other = Estimator(classifier, tmp_path, {"rate": 0.1}).train(lambda: data.repeat(), max_steps=5)
    assert other.evaluate(lambda: data)["global_step"] == 5 and hl.checkpoints.Manager(tmp_path).steps() == [3, 5]
    other.train(lambda: data, max_steps=5)
    kept = other.get_variable_value("layer/w")
    third = Estimator(classifier, tmp_path, {"rate": 0.1})
    np.testing.assert_array_equal(third.get_variable_value("layer/w"), kept)
    assert len(list(third.predict(lambda: data))) == 90


def test_queues_feed_a_model_function_of_fewer_parameters():
    def model(features, labels):
        w = get_variable("w", [4], initializer=0.0)
        loss = hnp.mean((features @ w - labels) ** 2)
        (gradient,) = gradients(loss, [w])
        return w, loss, w.assign_sub(0.1 * gradient)  # TensorFlow 1.0's short form

    def queue():
        example = from_dataset(hl.data.arrays({"x": X, "y": X @ np.arange(4, dtype=np.float32)}).repeat(20))
        return shuffle_batch([example["x"], example["y"]], 30, 200, 50, seed=0)

    def pair():
        x, y = queue()
        return x, y

    estimator = Estimator(model).train(pair)
    np.testing.assert_allclose(estimator.get_variable_value("w"), np.arange(4), atol=0.05)


@pytest.mark.parametrize(
    ("use", "found"),
    [
        (lambda e, d: e.evaluate(arrays), "it has no variables yet"),
        (lambda e, d: list(Estimator(classifier, d, {}).predict(arrays)), "has no checkpoint"),
        (lambda e, d: e.train(arrays), "arrays, which do not end"),
        (lambda e, d: e.train(lambda: {"x": X}, steps=1), "no labels"),
        (lambda e, d: Estimator(lambda features: None).train(arrays, steps=1), "NoneType"),
        (lambda e, d: Estimator(lambda features, other: None).train(arrays, steps=1), "the parameter 'other'"),
        (lambda e, d: Estimator(lambda mode: EstimatorSpec(mode)).train(arrays, steps=1), "it has no loss"),
        (lambda e, d: Estimator(uncounted, d).train(arrays, steps=1), "does not count the global step"),
        (lambda e, d: Estimator(uncounted).train(arrays, max_steps=1), "does not count the global step"),
        (
            lambda e, d: Estimator(other_variables).train(arrays, steps=1).evaluate(arrays),
            "nothing was saved of 'more'",
        ),
        (lambda e, d: e.train(arrays, steps=1).get_variable_value("v"), "'layer/w'"),
    ],
)
def test_mistakes(use, found, tmp_path):
    with pytest.raises(errors.ArgumentError, match=found):
        use(Estimator(classifier, params={"rate": 0.1}), tmp_path)


def uncounted(features, labels, mode):
    w = get_variable("w", [])
    return EstimatorSpec(mode, loss=w * 2, train_op=w.assign_add(1))


def other_variables(features, labels, mode):
    loss = get_variable("w", []) + (0 if mode == ModeKeys.TRAIN else get_variable("more", []))
    return EstimatorSpec(mode, loss=loss, train_op=global_step().assign_add(constant(1)))


def test_estimators_have_it_too():
    pytest.importorskip("sklearn")
    assert hl.training.estimators.Estimator is Estimator
