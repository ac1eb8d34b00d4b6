"""Estimators with scikit-learn's interface: linear models, networks, wide and deep ones, k-means.

    classifier = hl.training.estimators.DNNClassifier(hidden_layer_sizes=(64, 32)).fit(x, labels)
    classifier.score(x, labels)

They can be cloned, piped and searched over by scikit-learn (`pip install 'hloom[train]'`), and train by `fit`.

`Estimator`, for user-defined model functions, is that of `hl.sessions`, which needs no scikit-learn.
"""

import importlib.util as _util

from hloom.errors import ArgumentError as _ArgumentError

if _util.find_spec("sklearn") is None:
    raise _ArgumentError(
        "estimators have scikit-learn's interface", "scikit-learn is not installed", "pip install 'hloom[train]'"
    )


# In addition to `__all__`, whose classes have scikit-learn's interface.
from hloom.sessions.estimator import Estimator as Estimator
from hloom.sessions.estimator import EstimatorSpec as EstimatorSpec
from hloom.sessions.estimator import ModeKeys as ModeKeys
from hloom.training.estimators.kmeans import KMeans
from hloom.training.estimators.networks import DNNClassifier, DNNRegressor, LinearClassifier, LinearRegressor
from hloom.training.estimators.wide_and_deep import WideAndDeepClassifier, WideAndDeepRegressor

__all__ = [
    "DNNClassifier", "DNNRegressor", "KMeans", "LinearClassifier", "LinearRegressor", "WideAndDeepClassifier",
    "WideAndDeepRegressor",
]  # fmt: skip
__dir__ = __all__.copy
