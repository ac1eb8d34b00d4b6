"""Estimators pass scikit-learn's checks, and learn what they should."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn import cluster, datasets, linear_model
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import hloom as hl
from hloom.errors import ArgumentError
from hloom.training import estimators

fc = hl.training.feature_columns
ALL = [getattr(estimators, name)() for name in estimators.__all__]
QUICK = [estimators.KMeans(n_init=1), estimators.LinearClassifier(max_iter=20)]
quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@quiet
@pytest.mark.slow
@parametrize_with_checks(ALL)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@quiet
@pytest.mark.sample
@parametrize_with_checks(QUICK)
def test_scikit_learns_checks_of_two(estimator, check):
    check(estimator)


X, Y = datasets.load_iris(return_X_y=True)
D, T = datasets.load_diabetes(return_X_y=True)


@quiet
@pytest.mark.parametrize("kind", ("LinearClassifier", "DNNClassifier", "WideAndDeepClassifier"))
def test_classifiers(kind):
    names = np.array(["setosa", "versicolor", "virginica"])[Y]
    model = getattr(estimators, kind)(random_state=0, max_iter=30).fit(X, names)
    assert model.score(X, names) >= 0.95 and model.n_iter_ == len(model.loss_curve_) <= 30
    chances = model.predict_proba(X)
    assert chances.shape == (150, 3) and np.allclose(chances.sum(axis=1), 1)
    assert (model.classes_[model.decision_function(X).argmax(axis=1)] == model.predict(X)).all()
    again = clone(model).fit(X, names)
    np.testing.assert_array_equal(again.predict_proba(X), chances)


@quiet
@pytest.mark.parametrize("kind", ("LinearRegressor", "DNNRegressor", "WideAndDeepRegressor"))
def test_regressors(kind):
    model = getattr(estimators, kind)(random_state=0, max_iter=25).fit(D, T)
    best = linear_model.LinearRegression().fit(D, T).score(D, T)
    assert model.score(D, T) > best - 0.05


@quiet
def test_follow_the_leader_leaves_features_out():
    noise = np.random.default_rng(0).standard_normal((300, 20))
    target = 3 * noise[:, 0] - 2 * noise[:, 1]
    model = estimators.LinearRegressor(optimizer="ftrl", learning_rate=0.5, l1=30.0, random_state=0).fit(noise, target)
    weights = np.asarray(model.model_.kernel)[:, 0]
    assert (weights[2:] == 0).sum() >= 15 and (weights[:2] != 0).all()


def test_clusters_are_as_tight_as_scikit_learns():
    ours = estimators.KMeans(5, random_state=0).fit(X)
    theirs = cluster.KMeans(5, n_init=3, random_state=0).fit(X)
    assert ours.inertia_ <= 1.02 * theirs.inertia_
    assert ours.inertia_ == pytest.approx(-ours.score(X)) and (ours.labels_ == ours.predict(X)).all()
    assert ours.transform(X).shape == (150, 5) and ours.n_iter_ > 1


@quiet
def test_they_work_in_pipelines_and_searches():
    pipeline = make_pipeline(StandardScaler(), estimators.LinearClassifier(random_state=0, max_iter=30))
    assert cross_val_score(pipeline, X, Y, cv=3).mean() > 0.9
    search = GridSearchCV(estimators.KMeans(random_state=0), {"n_clusters": [2, 3]}, cv=2).fit(X)
    assert search.best_params_["n_clusters"] == 3


def test_mistakes_of_options():
    for model, words in (
        (estimators.LinearClassifier(optimizer="newton"), "'newton'"),
        (estimators.LinearRegressor(max_iter=0), "max_iter above 0"),
        (estimators.DNNClassifier(activation="step"), "one of relu"),
        (estimators.WideAndDeepClassifier(wide_columns=[fc.numeric_column("a")]), "pass both"),
        (estimators.KMeans(200), "n_samples=150"),
    ):
        with pytest.raises(ArgumentError, match=words):
            model.fit(X, Y)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        estimators.DNNClassifier(max_iter=2, random_state=0).fit(X, Y)


# --- feature columns ---

TABLE = {
    "age": np.array([20, 31, 44, 70], np.float32),
    "job": np.array(["nurse", "pilot", "clerk", ""]),
    "tags": np.array([["a", "b"], ["b", ""], ["c", "a"], ["", ""]]),
    "city": np.array([3, 7, 3, -1]),
}


def test_columns_are_encoded():
    age = fc.numeric_column("age", normalizer=lambda x: x / 10)
    buckets = fc.bucketized_column(fc.numeric_column("age"), (25, 44))
    job = fc.categorical_column_with_vocabulary_list("job", ("nurse", "pilot"), num_oov_buckets=1)
    strict = fc.categorical_column_with_vocabulary_list("job", ("nurse", "pilot"))
    tags = fc.categorical_column_with_hash_bucket("tags", 100)
    city = fc.categorical_column_with_identity("city", 8)
    found = fc.encode([age, buckets, job, tags, city], TABLE)
    np.testing.assert_allclose(found["age"], [[2], [3.1], [4.4], [7]], rtol=1e-6)
    assert found["age_bucketized"].tolist() == [[0], [1], [2], [2]]
    assert found["job"].tolist() == [[0], [1], [2], [-1]] and strict.ids(TABLE).tolist() == [[0], [1], [-1], [-1]]
    a, b = found["tags"][0]
    assert found["tags"].shape == (4, 2) and a != b and found["tags"][1].tolist() == [b, -1]
    assert found["tags"][2][1] == a and found["city"].tolist() == [[3], [7], [3], [-1]]
    crossed = fc.crossed_column((buckets, tags), 1000)
    ids = crossed.ids(TABLE)
    assert ids.shape == (4, 2) and (ids[3] == -1).all() and ids[1, 1] == -1 and len(set(ids[:2].ravel())) == 4
    by_name = fc.crossed_column(("job", "city"), 50).ids(TABLE)
    assert (by_name[:3] >= 0).all() and by_name[3, 0] == -1
    assert fc.categorical_column_with_hash_bucket("city", 9).ids({"city": np.array([3.0, 7.0])}).tolist() == (
        fc.categorical_column_with_hash_bucket("city", 9).ids({"city": np.array(["3", "7"], object)}).tolist()
    )


def test_hashes_are_the_same_in_every_version():
    column = fc.categorical_column_with_hash_bucket("w", 1000)
    assert column.ids({"w": np.array(["hello", "world", "42"])}).ravel().tolist() == HASHES
    crossed = fc.crossed_column(("w", "v"), 1000)
    assert crossed.ids({"w": np.array(["hello"]), "v": np.array(["world"])}).ravel().tolist() == CROSSED


HASHES, CROSSED = [595, 276, 491], [784]


def test_layers_of_columns():
    job = fc.categorical_column_with_vocabulary_list("job", ("nurse", "pilot", "clerk"))
    tags = fc.categorical_column_with_vocabulary_list("tags", ("a", "b", "c"))
    deep = [fc.numeric_column("age"), fc.embedding_column(tags, 4), fc.indicator_column(job)]
    layer = fc.DenseFeatures(deep, key=hl.random.key(0))
    batch = fc.encode(deep, TABLE)
    found = np.asarray(hl.jit(lambda m, b: m(b))(layer, batch))
    table = np.asarray(layer.tables["tags"])
    assert found.shape == (4, 1 + 4 + 3)
    np.testing.assert_allclose(found[:, 0], TABLE["age"])
    np.testing.assert_allclose(found[:2, 1:5], [(table[0] + table[1]) / 2, table[1]], rtol=1e-6)
    assert (found[3, 1:] == 0).all() and found[:3, 5:].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    wide = fc.LinearFeatures([job, tags, fc.numeric_column("age")], 1)
    wide = wide.replace(weights={"job": np.float32([[1], [2], [3]]), "tags": np.float32([[10], [20], [30]]),
                                 "age": np.float32([[100]])})  # fmt: skip
    batch = fc.encode([job, tags, fc.numeric_column("age")], TABLE)
    np.testing.assert_allclose(np.asarray(wide(batch))[:, 0], [2031, 3122, 4443, 7000])


def test_mistakes_of_columns():
    age, job = fc.numeric_column("age"), fc.categorical_column_with_hash_bucket("job", 5)
    for call, words in (
        (lambda: fc.encode([fc.numeric_column("agee")], TABLE), "the features are 'age', 'job'"),
        (lambda: fc.encode([fc.numeric_column("job")], TABLE), "use a categorical column"),
        (lambda: fc.encode([fc.numeric_column("tags")], TABLE), "declare the shape"),
        (lambda: fc.encode([age, job], {"age": np.ones(3), "job": np.array(["a"])}), "of one length"),
        (lambda: fc.bucketized_column(age, (3, 1)), "that increase"),
        (lambda: fc.categorical_column_with_vocabulary_list("job", ("a", "a")), "remove doubles"),
        (lambda: fc.encode([fc.categorical_column_with_identity("city", 5)], TABLE), "below 5"),
        (lambda: fc.categorical_column_with_hash_bucket("job", 0), "hash_bucket_size=0"),
        (lambda: fc.crossed_column(("job",), 10), "at least two"),
        (lambda: fc.embedding_column(age, 3), "bucketize numbers first"),
        (lambda: fc.DenseFeatures([job], key=hl.random.key(0)), "embedding_column"),
        (lambda: fc.LinearFeatures([], 1), "takes feature columns"),
    ):
        with pytest.raises(hl.errors.HloomError, match=words):
            call()


@quiet
def test_a_wide_and_deep_model_of_named_features():
    """Which of two groups pays more depends on a combination that neither feature shows alone."""
    source = np.random.default_rng(0)
    table = {"city": source.choice(["rome", "oslo"], 400), "plan": source.choice(["a", "b"], 400),
             "age": source.uniform(20, 60, 400)}  # fmt: skip
    labels = (table["city"] == "rome") ^ (table["plan"] == "a")
    city = fc.categorical_column_with_vocabulary_list("city", ("rome", "oslo"))
    plan = fc.categorical_column_with_vocabulary_list("plan", ("a", "b"))
    model = estimators.WideAndDeepClassifier(
        (8,), wide_columns=[city, plan, fc.crossed_column((city, plan), 100)],
        deep_columns=[fc.numeric_column("age", normalizer=_centred), fc.embedding_column(city, 2)],
        max_iter=30, random_state=0,
    )  # fmt: skip
    assert model.fit(table, labels).score(table, labels) == 1
    with pytest.raises(ArgumentError, match="features by name"):
        model.fit(X, Y)
    with pytest.raises(ArgumentError, match="the feature 'city'"):
        model.predict({"plan": table["plan"]})


def _centred(x):
    return (x - 40) / 10
