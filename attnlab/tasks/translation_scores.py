"""BLEU and chrF of translations, by sacrebleu.

Translations and references are plain text. sacrebleu tokenizes both in the same way, and its signature names everything that
the value of a score depends on.

References:
    Papineni, K. et al. (2002). BLEU: a method for automatic evaluation of machine translation. ACL.
    Popović, M. (2015). chrF: character n-gram F-score for automatic MT evaluation. WMT.
    Post, M. (2018). A call for clarity in reporting BLEU scores. WMT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF


def score_translations(translations: Sequence[str], references: Sequence[str], *, lower: bool) -> dict[str, float]:
    """Return the scores ``bleu`` and ``chrf`` of a corpus, from 0 to 100.

    Args:
        translations: of each sentence.
        references: one of each sentence.
        lower: ignore the case.
    """
    metrics = zip(("bleu", "chrf"), _metrics(lower), strict=True)
    return {name: metric.corpus_score(translations, [references]).score for name, metric in metrics}


def signatures(*, lower: bool) -> str:
    """Return sacrebleu's signatures of both scores."""
    names = zip(("BLEU", "chrF2"), _metrics(lower), strict=True)
    parts = []
    for name, metric in names:
        metric.corpus_score(["a"], [["a"]])  # a signature states the number of references
        parts.append(f"{name} {metric.get_signature()}")
    return ", ".join(parts)


def _metrics(lower: bool) -> tuple[BLEU, CHRF]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return BLEU(lowercase=lower), CHRF(lowercase=lower)
