"""TensorFlow 1.0's estimator of a model function: digits, trained, evaluated and predicted by three programs.

python examples/tf1/model_function.py [--steps 300] [--folder digits_model]
"""

import argparse
import tempfile

import numpy as np
from sklearn.datasets import load_digits

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim
from hloom.nn.losses import softmax_cross_entropy_with_integer_labels
from hloom.sessions import Estimator, EstimatorSpec, ModeKeys, get_variable, global_step, minimize, variable_scope


def layer(x, size, scope):
    with variable_scope(scope, initializer=nn.initializers.truncated_normal(0.1)):
        return x @ get_variable("weights", [x.shape[1], size]) + get_variable("biases", [size], initializer=0.0)


def model_fn(features, labels, mode, params):
    hidden = nn.relu(layer(features["pixels"], params["hidden"], "hidden"))
    logits = layer(hidden, 10, "out")
    predictions = {"digit": hnp.argmax(logits, axis=1), "probability": hnp.max(nn.softmax(logits), axis=1)}
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions)
    loss = hnp.mean(softmax_cross_entropy_with_integer_labels(logits, labels))
    train = minimize(optim.adam(params["rate"]), loss, global_step=global_step())
    accuracy = hl.metrics.Accuracy.empty().update(logits, labels)
    return EstimatorSpec(mode, predictions, loss, train, {"accuracy": accuracy})


def main(folder, steps=300, report=print):
    """Returns what `evaluate` found, and the first ten predictions."""
    digits = load_digits()
    pixels, labels = (digits.images / 16).reshape(-1, 64).astype(np.float32), digits.target.astype(np.int32)
    train_set = hl.data.arrays(({"pixels": pixels[:1500]}, labels[:1500])).shuffle(1500, seed=0).repeat()
    test_set = hl.data.arrays(({"pixels": pixels[1500:]}, labels[1500:]))
    estimator = Estimator(model_fn, folder, params={"hidden": 64, "rate": 1e-3})
    estimator.train(lambda: train_set.batch(100), steps=steps)
    found = estimator.evaluate(lambda: test_set.batch(100))
    report(f"step {found['global_step']}: loss {found['loss']:.3f}, accuracy {found['accuracy']:.1%}")
    predicted = [one["digit"] for one in estimator.predict(lambda: {"pixels": pixels[1500:1510]})]
    report(f"predicted {[int(d) for d in predicted]}, labels {labels[1500:1510].tolist()}")
    return found, predicted


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument(
        "--folder", help="for checkpoints, from which a second run goes on (default: a temporary one)"
    )
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        main(given.folder or temporary, given.steps)
