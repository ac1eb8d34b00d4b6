"""Estimators with scikit-learn's interface: linear models, networks, wide and deep ones, k-means.

    classifier = hl.training.estimators.DNNClassifier(hidden_layer_sizes=(64, 32)).fit(x, labels)
    classifier.score(x, labels)

They can be cloned, piped and searched over by scikit-learn (`pip install 'hloom[train]'`), and train by `fit`.
"""

import importlib.util as _util

from hloom.errors import ArgumentError as _ArgumentError

if _util.find_spec("sklearn") is None:
    raise _ArgumentError(
        "estimators have scikit-learn's interface", "scikit-learn is not installed", "pip install 'hloom[train]'"
    )

from hloom.training.estimators.kmeans import KMeans
from hloom.training.estimators.networks import DNNClassifier, DNNRegressor, LinearClassifier, LinearRegressor
from hloom.training.estimators.wide_and_deep import WideAndDeepClassifier, WideAndDeepRegressor

__all__ = [
    "DNNClassifier", "DNNRegressor", "KMeans", "LinearClassifier", "LinearRegressor", "WideAndDeepClassifier",
    "WideAndDeepRegressor",
]  # fmt: skip
__dir__ = __all__.copy
