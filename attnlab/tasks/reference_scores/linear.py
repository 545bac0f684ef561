"""``tf-idf`` with logistic regression, and ``nb-svm``: linear classifiers over words and pairs of words.

Both read whole texts, split into words by the task. NB-SVM distinguishes two classes, 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

TFIDF = "logistic regression on TF-IDF of words and pairs of words, of whole texts; its C chosen on valid"
NB_SVM = "NB-SVM (Wang and Manning 2012) on words and pairs of words, of whole texts"
STRENGTHS = (1.0, 4.0, 16.0, 64.0)  # C of the logistic regression: the best on ``valid`` is taken


@dataclass(frozen=True)
class Texts:
    """Texts as word ids: text ``i`` is ``words[ends[i - 1]:ends[i]]`` and of class ``labels[i]``."""

    words: np.ndarray
    ends: np.ndarray
    labels: np.ndarray

    @cached_property
    def features(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of every word and every pair of adjacent words, and the index of the text of each."""
        words = self.words.astype(np.int64)
        text = np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))
        within = text[1:] == text[:-1]
        pairs = (words[:-1] + 1 << 32 | words[1:])[within]
        return np.concatenate([words, pairs]), np.concatenate([text, text[1:][within]])


def tfidf_accuracy(train: Texts, valid: Texts, test: Texts) -> float:
    """Return the test accuracy of logistic regression on TF-IDF features, with C chosen on ``valid``.

    A feature is (1 + log count) x inverse document frequency, and each text has unit norm. Features that occur only once in
    ``train`` are left out.
    """
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    columns, times = np.unique(train.features[0], return_counts=True)
    columns = columns[times > 1]
    scale = TfidfTransformer(sublinear_tf=True)
    inputs = scale.fit_transform(_counted(train, columns))
    held_out, last = (scale.transform(_counted(texts, columns)) for texts in (valid, test))
    fitted = [LogisticRegression(C=strength, max_iter=1_000).fit(inputs, train.labels) for strength in STRENGTHS]
    best = max(fitted, key=lambda model: model.score(held_out, valid.labels))
    return float(best.score(last, test.labels))


def nb_svm_accuracy(train: Texts, test: Texts, *, smoothing: float = 1.0, mixing: float = 0.25) -> float:
    """Return the test accuracy of NB-SVM (Wang and Manning 2012, "Baselines and bigrams") with the recommended settings.

    The presence of a feature (0 or 1) is scaled by its log-count ratio r (equation 1, alpha = ``smoothing``). The weights of
    a linear SVM with squared hinge loss and C = 1 are drawn towards their mean size (equation 4, beta = ``mixing``).
    """
    from sklearn.svm import LinearSVC

    columns = np.unique(train.features[0])
    inputs = _counted(train, columns).sign()
    ratio = log_count_ratio(inputs, train.labels, smoothing=smoothing)
    model = LinearSVC(C=1.0, tol=0.01, random_state=0).fit(inputs.multiply(ratio).tocsr(), train.labels)
    model.coef_ = (1 - mixing) * np.abs(model.coef_).mean() + mixing * model.coef_
    return float(model.score(_counted(test, columns).sign().multiply(ratio).tocsr(), test.labels))


def log_count_ratio(inputs: Any, labels: np.ndarray, *, smoothing: float) -> np.ndarray:
    """Return (features,) float64: log of (p / |p|_1) / (q / |q|_1), equation 1.

    p and q are the smoothed counts of each feature in class 1 and class 0.

    Args:
        inputs: sparse (n, features) of zeros and ones.
        labels: (n,) of 0 and 1.
    """
    shares = []
    for label in (1, 0):
        counts = smoothing + np.asarray(inputs[labels == label].sum(axis=0)).ravel()
        shares.append(counts / counts.sum())
    return np.log(shares[0] / shares[1])


def _counted(texts: Texts, columns: np.ndarray) -> Any:
    """Return sparse (n, columns): the counts of the features in ``columns`` in each text."""
    from scipy.sparse import csr_matrix

    features, rows = texts.features
    places = np.minimum(np.searchsorted(columns, features), len(columns) - 1)
    known = columns[places] == features
    ones = np.ones(int(known.sum()))
    return csr_matrix((ones, (rows[known], places[known])), shape=(len(texts.ends), len(columns)))
