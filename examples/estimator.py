"""M3G and pairwise InfoNCE as scikit-learn estimators, compared with linear CCA of k views on the built-in digits.

All methods learn 16 features from six views without labels. The test scores are the accuracy of a logistic regression
on the mean of the views and on a single view (averaged over the views), and R@1 between views.

    python examples/estimator.py --epochs 10
"""

import argparse
import warnings

import numpy as np
from scipy.linalg import block_diag, eigh
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from m3g.data import MultipleFeatures
from m3g.sklearn import MultiViewEmbedding


class LinearCCA:
    """CCA of k views (MAXVAR): leading solutions of C v = λ D v.

    C contains the covariances of all features, and D only those of features of the same view.
    """

    def __init__(self, n_components: int, ridge: float = 0.1):
        self.n_components, self.ridge = n_components, ridge

    def fit(self, views: list[np.ndarray]) -> "LinearCCA":
        self.means = [view.mean(0) for view in views]
        centred = [view - mean for view, mean in zip(views, self.means)]
        joined = np.hstack(centred)
        within = block_diag(*[v.T @ v / len(v) + self.ridge * np.eye(v.shape[1]) for v in centred])
        size = joined.shape[1]
        covariances = joined.T @ joined / len(joined) + self.ridge * np.eye(size)
        _, vectors = eigh(covariances, within, subset_by_index=[size - self.n_components, size - 1])
        self.maps = np.split(vectors, np.cumsum([v.shape[1] for v in views])[:-1])
        return self

    def transform_views(self, views: list[np.ndarray]) -> np.ndarray:
        return np.stack([(view - mean) @ weights for view, mean, weights in zip(views, self.means, self.maps)])


def unit(points: np.ndarray) -> np.ndarray:
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def evaluate(
    train: np.ndarray, labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray
) -> tuple[float, float, float]:
    """Return the accuracy on all views, the accuracy on one view, and R@1 of embeddings (k, n, d)."""
    train, test = unit(train), unit(test)
    probe = LogisticRegression(max_iter=500, C=100).fit(train.mean(0), labels)
    one = float(np.mean([probe.score(view, test_labels) for view in test]))
    k, n = test.shape[:2]
    pairs = [(l, m) for l in range(k) for m in range(k) if l != m]
    first = float(np.mean([((test[l] @ test[m].T).argmax(1) == np.arange(n)).mean() for l, m in pairs]))
    return probe.score(test.mean(0), test_labels), one, first


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10, help="passes over the rows")
    parser.add_argument("--components", type=int, default=16, help="features of the representation")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)

    data = MultipleFeatures()
    (train, _, labels), (test, _, test_labels) = data.arrays("train"), data.arrays("test")
    seen, new = ([view.numpy().astype(float) for view in views] for views in (train, test))
    models = {
        "linear CCA of 6 views": LinearCCA(args.components),
        "M3G": MultiViewEmbedding(args.components, epochs=args.epochs, random_state=0),
        "pairwise InfoNCE": MultiViewEmbedding(args.components, loss="infonce-pwe", epochs=args.epochs, random_state=0),
    }
    print(f"{'test rows, %':22} {'all views':>10} {'one view':>10} {'R@1':>12}")
    for name, model in models.items():
        model.fit(seen)
        scores = evaluate(model.transform_views(seen), labels.numpy(), model.transform_views(new), test_labels.numpy())
        print(f"{name:22} {100 * scores[0]:10.1f} {100 * scores[1]:10.1f} {100 * scores[2]:12.1f}", flush=True)


if __name__ == "__main__":
    main()
