"""``tf-idf`` with logistic regression, and ``nb-svm``: linear classifiers over the words and pairs of words of a text.

Both know two classes, 0 and 1, and read every text whole, in the words that the task has cut it into.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

TFIDF = "logistic regression on TF-IDF of words and pairs of words, of whole reviews; its C chosen on valid"
NB_SVM = "NB-SVM (Wang and Manning 2012) on words and pairs of words, of whole reviews"
STRENGTHS = (1.0, 4.0, 16.0, 64.0)  # C of the logistic regression: the best on ``valid`` is taken


@dataclass(frozen=True)
class Texts:
    """Texts of numbered words: number ``i`` is ``words[ends[i - 1]:ends[i]]`` and of class ``labels[i]``."""

    words: np.ndarray
    ends: np.ndarray
    labels: np.ndarray

    @cached_property
    def features(self) -> tuple[np.ndarray, np.ndarray]:
        """Every word and every pair of neighbours as a number, and the text it stands in."""
        words = self.words.astype(np.int64)
        text = np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))
        within = text[1:] == text[:-1]
        pairs = (words[:-1] + 1 << 32 | words[1:])[within]
        return np.concatenate([words, pairs]), np.concatenate([text, text[1:][within]])


def tfidf_accuracy(train: Texts, valid: Texts, test: Texts) -> float:
    """Logistic regression on 1 + log of the counts, times inverse document frequency, each text of length 1.

    What ``train`` has only once is left out.
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
    """NB-SVM: Wang and Manning 2012, "Baselines and bigrams", with the settings they recommend.

    Whether a feature occurs is scaled by its log-count ratio r (equation 1, alpha = ``smoothing``); the weights of a linear
    SVM with squared hinge loss and C = 1 are drawn towards their mean size (equation 4, beta = ``mixing``).
    """
    from sklearn.svm import LinearSVC

    columns = np.unique(train.features[0])
    inputs = _counted(train, columns).sign()
    ratio = log_count_ratio(inputs, train.labels, smoothing=smoothing)
    model = LinearSVC(C=1.0, tol=0.01, random_state=0).fit(inputs.multiply(ratio).tocsr(), train.labels)
    model.coef_ = (1 - mixing) * np.abs(model.coef_).mean() + mixing * model.coef_
    return float(model.score(_counted(test, columns).sign().multiply(ratio).tocsr(), test.labels))


def log_count_ratio(inputs: Any, labels: np.ndarray, *, smoothing: float) -> np.ndarray:
    """(features,): log of (p / |p|_1) / (q / |q|_1), p and q the smoothed counts of each feature in class 1 and class 0.

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
    """Sparse (n, columns): how often each text has each feature; features that are no column do not count."""
    from scipy.sparse import csr_matrix

    features, rows = texts.features
    places = np.minimum(np.searchsorted(columns, features), len(columns) - 1)
    known = columns[places] == features
    ones = np.ones(int(known.sum()))
    return csr_matrix((ones, (rows[known], places[known])), shape=(len(texts.ends), len(columns)))
