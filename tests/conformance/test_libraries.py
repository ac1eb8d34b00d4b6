"""SciPy's and scikit-learn's Array-API paths take hloom arrays and give hloom arrays.

Both assign to elements of arrays that they made; `hl.config.item_assignment` lets them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

SCIPY = """
    import json
    import numpy as np
    import hloom as hl
    from scipy import cluster, differentiate, fft, integrate, ndimage, signal, special, stats

    x = np.random.default_rng(0).normal(size=(20, 3))
    functions = {
        "logsumexp": lambda a: special.logsumexp(a, axis=0),
        "expit": special.expit,
        "gammaln": lambda a: special.gammaln(a * a + 1),
        "softmax": lambda a: special.softmax(a, axis=1),
        "log_softmax": lambda a: special.log_softmax(a, axis=1),
        "betainc": lambda a: special.betainc(a * a + 1, a * a + 2, a * a / (1 + a * a)),
        "skew": stats.skew,
        "kurtosis": stats.kurtosis,
        "zscore": stats.zscore,
        "ttest_ind": lambda a: stats.ttest_ind(a[:10], a[10:]).pvalue,
        "gmean": lambda a: stats.gmean(a * a + 1),
        "fft": lambda a: fft.fft(a, axis=0),
        "whiten": cluster.vq.whiten,
        "vq": lambda a: cluster.vq.vq(a, a[:4])[1],
        "cumulative_trapezoid": lambda a: integrate.cumulative_trapezoid(a, axis=0),
        "detrend": lambda a: signal.detrend(a, axis=0),
        "gaussian_filter": lambda a: ndimage.gaussian_filter(a, 1.0),
        "derivative": lambda a: differentiate.derivative(lambda v: v * v, a).df,
    }
    wrong = []
    with hl.config(item_assignment=True):
        for name, function in functions.items():
            found, expected = function(hl.numpy.asarray(x)), function(x)
            if not isinstance(found, hl.Array) or not np.allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-12):
                wrong.append(name)
    print(json.dumps([len(functions), wrong]))
"""
SKLEARN = """
    import json
    import numpy as np
    import hloom as hl
    import sklearn
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import Ridge
    from sklearn.metrics import accuracy_score, mean_squared_error, r2_score
    from sklearn.metrics.pairwise import cosine_similarity, euclidean_distances, rbf_kernel
    from sklearn.mixture import GaussianMixture
    from sklearn.model_selection import train_test_split
    from sklearn.naive_bayes import GaussianNB
    from sklearn.preprocessing import (
        Binarizer, LabelEncoder, MaxAbsScaler, MinMaxScaler, Normalizer, PolynomialFeatures, StandardScaler,
    )

    x = np.random.default_rng(0).normal(size=(40, 3)).astype("float32")
    y = (x[:, 0] > 0).astype("int32")
    scalers = (Binarizer, MaxAbsScaler, MinMaxScaler, Normalizer, PolynomialFeatures, StandardScaler)
    functions = {c.__name__: lambda a, b, c=c: c().fit_transform(a) for c in scalers}
    functions |= {
        "PCA": lambda a, b: abs(PCA(2, svd_solver="full").fit_transform(a)),
        "Ridge": lambda a, b: Ridge(solver="svd").fit(a, a[:, 0]).coef_,
        "LDA": lambda a, b: LinearDiscriminantAnalysis().fit(a, b).predict(a),
        "GaussianNB": lambda a, b: GaussianNB().fit(a, b).predict(a),
        "GaussianMixture": lambda a, b: GaussianMixture(2, init_params="random", random_state=0).fit(a).means_,
        "mean_squared_error": lambda a, b: mean_squared_error(a[:, 0], a[:, 1]),
        "r2_score": lambda a, b: r2_score(a[:, 0], a[:, 1]),
        "accuracy_score": lambda a, b: accuracy_score(b, 1 - b),
        "euclidean_distances": lambda a, b: euclidean_distances(a),
        "rbf_kernel": lambda a, b: rbf_kernel(a),
        "cosine_similarity": lambda a, b: cosine_similarity(a),
        "train_test_split": lambda a, b: train_test_split(a, random_state=0)[0],
        "LabelEncoder": lambda a, b: LabelEncoder().fit_transform(b),
    }
    wrong = []
    with sklearn.config_context(array_api_dispatch=True), hl.config(item_assignment=True):
        ours = hl.numpy.asarray(x), hl.numpy.asarray(y)
        for name, function in functions.items():
            found, expected = function(*ours), function(x, y)
            kind = isinstance(found, (hl.Array, float))
            if not kind or not np.allclose(np.asarray(found), expected, rtol=1e-3, atol=1e-4):
                wrong.append(name)
    assert np.array_equal(np.asarray(ours[0]), x)  # nobody wrote into what they were given
    print(json.dumps([len(functions), wrong]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("library", "program"), [("scipy", SCIPY), ("sklearn", SKLEARN)])
def test_functions_of(library, program):
    pytest.importorskip(library)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        env={**os.environ, "SCIPY_ARRAY_API": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    count, wrong = json.loads(done.stdout.splitlines()[-1])
    assert count > 15 and not wrong, wrong
