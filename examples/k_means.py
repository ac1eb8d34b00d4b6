"""k-means clustering of handwritten digits, from several random starts.

The 1,797 digits (8 by 8 pixels) that scikit-learn bundles are put into ten clusters without their labels. Distances,
nearest centers and new centers are one jitted step. NumPy recomputes the inertia of the clusters, and scikit-learn's
KMeans is the reference. Run

    python examples/k_means.py [--starts 10] [--clusters 10]
"""

import argparse
import time

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

import hloom as hl
import hloom.numpy as hnp

STEPS = 100


@hl.jit
def step(points, centres):
    """New centres (k, d), the cluster of each point, and the inertia: the sum of squared distances to the centres.

    |p - c|^2 = |p|^2 - 2 p c + |c|^2, so that the distances of all pairs are one matrix product.
    """
    squares = hnp.sum(points * points, axis=1)
    distances = squares[:, None] - 2 * points @ centres.T + hnp.sum(centres * centres, axis=1)
    cluster = hnp.argmin(distances, axis=1)
    inertia = hnp.sum(hnp.min(distances, axis=1))
    members = hl.nn.one_hot(cluster, centres.shape[0])
    counts = hnp.sum(members, axis=0)
    moved = members.T @ points / hnp.maximum(counts, 1)[:, None]
    return hnp.where((counts > 0)[:, None], moved, centres), cluster, inertia


def load():
    """Pixels between 0 and 16, float32 (1797, 64), and labels."""
    digits = load_digits()
    return digits.data.astype(np.float32), digits.target


def start_centres(points, count, random):
    """k-means++: each next centre is drawn with a chance that grows with the squared distance to those before."""
    centres = [points[random.integers(len(points))]]
    nearest = np.full(len(points), np.inf)
    while len(centres) < count:
        nearest = np.minimum(nearest, np.sum((points - centres[-1]) ** 2, axis=1, dtype=np.float64))
        centres.append(points[random.choice(len(points), p=nearest / nearest.sum())])
    return np.stack(centres)


def cluster(starts=10, clusters=10, report=print):
    """Inertia of the best start, scikit-learn's, and the share of points whose cluster's commonest label is theirs."""
    points, labels = load()
    random = np.random.default_rng(0)
    on_device = hnp.asarray(points)
    best, best_inertia = None, np.inf
    started = time.perf_counter()
    for start in range(1, starts + 1):
        centres = hnp.asarray(start_centres(points, clusters, random))
        before, inertia, steps = np.inf, np.inf, 0
        while steps < STEPS and (steps < 2 or inertia < before * (1 - 1e-6)):
            before, steps = inertia, steps + 1
            centres, found, inertia = step(on_device, centres)
            inertia = float(inertia)
        report(f"start {start:2d}  inertia {inertia:10.0f}  {steps:3d} steps  {time.perf_counter() - started:.2f} s")
        if inertia < best_inertia:
            best, best_inertia = np.asarray(found), inertia
    checked = sum(
        float(np.sum((points[best == k] - points[best == k].mean(axis=0, dtype=np.float64)) ** 2))
        for k in np.unique(best)
    )
    theirs = float(KMeans(clusters, n_init=starts, random_state=0).fit(points).inertia_)
    purity = sum(np.bincount(labels[best == k]).max() for k in np.unique(best)) / len(labels)
    report(f"inertia {best_inertia:.0f} (NumPy, from the clusters: {checked:.0f}; scikit-learn: {theirs:.0f})")
    report(f"{purity:.1%} of the digits lie in a cluster of their own kind")
    return best_inertia, checked, theirs, purity


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--starts", type=int, default=10, help="random starts (default: 10)")
    parser.add_argument("--clusters", type=int, default=10, help="clusters (default: 10)")
    arguments = parser.parse_args()
    inertia, checked, theirs, purity = cluster(arguments.starts, arguments.clusters)
    assert abs(inertia - checked) <= 2e-3 * checked, "the inertia should be that of the clusters"
    assert inertia <= 1.01 * theirs, "the clusters should be as tight as scikit-learn's"
    assert arguments.clusters < 10 or purity > 0.7, "most digits should lie with their own kind"
