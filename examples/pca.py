"""Principal components of handwritten digits, by the eigenvectors of the covariance and by the SVD.

Run

    python examples/pca.py [--components 10]
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import hloom as hl
import hloom.numpy as hnp


@hl.jit(static_argnums=1)
def by_covariance(points, components):
    """(directions (components, features), variances), the largest variance first."""
    centred = points - hnp.mean(points, axis=0)
    values, vectors = hnp.linalg.eigh(centred.T @ centred / (points.shape[0] - 1))
    return vectors[:, ::-1][:, :components].T, values[::-1][:components]


@hl.jit(static_argnums=1)
def by_svd(points, components):
    """The same from the singular values of the centred data, without squaring them."""
    centred = points - hnp.mean(points, axis=0)
    _, singular, directions = hnp.linalg.svd(centred, full_matrices=False)
    return directions[:components], singular[:components] ** 2 / (points.shape[0] - 1)


@hl.jit
def reconstruction_error(points, directions):
    """The mean squared distance of the points to their projections."""
    centred = points - hnp.mean(points, axis=0)
    return hnp.mean(hnp.sum((centred - (centred @ directions.T) @ directions) ** 2, axis=1))


def analyse(components=10, report=print):
    """Returns the largest relative difference of variances, and of the error, to scikit-learn's PCA."""
    points = load_digits().data.astype(np.float32)
    theirs = PCA(components).fit(points)
    rebuilt = theirs.inverse_transform(theirs.transform(points))
    their_error = np.mean(np.sum((points - rebuilt) ** 2, axis=1))
    worst = []
    for name, function in (("covariance", by_covariance), ("svd", by_svd)):
        directions, variances = function(points, components)
        error = float(reconstruction_error(points, directions))
        worst.append(np.max(np.abs(np.asarray(variances) / theirs.explained_variance_ - 1)))
        worst.append(abs(error / their_error - 1))
        share = float(hnp.sum(variances)) / points.var(axis=0, ddof=1).sum()
        report(f"{name}: {components} components hold {share:.1%} of the variance; squared error {error:.2f}")
    return float(max(worst))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--components", type=int, default=10, help="principal components")
    difference = analyse(arguments.parse_args().components)
    print(f"largest relative difference to scikit-learn: {difference:.1e}")
    assert difference < 1e-3
