"""A Keras model on hloom: the digits of scikit-learn, trained, saved and loaded again; the batch over several devices.

    pip install 'hloom[jax]' keras scikit-learn
    HLOOM_NUM_CPU_DEVICES=2 python examples/keras_digits.py

Keras calls jax, and jax finds hloom by its name: nothing of the model or of its training is written for hloom.
"""

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "hloom")

import jax
import keras
import numpy as np
from sklearn.datasets import load_digits


def model() -> keras.Model:
    """A small network of convolutions, with all that Keras keeps beside weights: statistics and random seeds."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(10),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    keras.utils.set_random_seed(0)
    devices = keras.distribution.list_devices()
    if len(devices) > 1:  # each device computes a part of every batch
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    train, test = slice(0, 1536), slice(1536, 1792)  # whole batches: jax splits arrays evenly over devices

    network = model()
    network.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    network.fit(images[train], labels[train], batch_size=64, epochs=options.epochs, verbose=2)
    _, accuracy = network.evaluate(images[test], labels[test], batch_size=64, verbose=0)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.keras"
        network.save(path)
        again = keras.saving.load_model(path)
    same = np.allclose(again.predict(images[test], verbose=0), network.predict(images[test], verbose=0), atol=1e-5)
    print(f"{jax.default_backend()}, {len(devices)} devices: {accuracy:.1%} of {len(labels[test])} digits are right")
    print(f"the saved model predicts {'the same' if same else 'something else'}")


if __name__ == "__main__":
    main()
