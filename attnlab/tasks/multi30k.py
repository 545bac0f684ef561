"""``multi30k``: descriptions of images in German, English and French (Elliott et al. 2016, Elliott et al. 2017).

The raw text of task 1: 29,000 sentences in ``train``, 1,014 in ``valid``, and in ``test`` the 1,000 sentences of
the test set of 2016. A sentence has 13 words on average.

References:
    Elliott, D., Frank, S., Sima'an, K., and Specia, L. (2016). Multi30K: multilingual English-German image descriptions. VL.
    Elliott, D., Frank, S., Barrault, L., Bougares, F., and Specia, L. (2017). Findings of the second shared task on multimodal
    machine translation and multilingual image description. WMT.
"""

from __future__ import annotations

import hashlib

from attnlab.errors import UserError, nearest
from attnlab.tasks import SPLITS, datasets, known_split
from attnlab.tasks.archives import MULTI30K, MULTI30K_PAIRS
from attnlab.tasks.translation import SIDES, TranslationTask, read_lines

LANGUAGES = ("de", "en", "fr")


class Multi30k(TranslationTask):
    """Translate descriptions of images.

    Args:
        source, target: de, en or fr.
        vocabulary: the most subwords, including [PAD] = 0, [BOS] = 1, [EOS] = 2 and [UNK] = 3.
        length: tokens of a sentence that are read, with its end token.
        lower: learn, translate and score lower-cased text.
        label_smoothing: share of the targets' probability that the training loss spreads over the vocabulary.
        beam: hypotheses that decoding keeps; 1 is greedy.
        length_penalty: exponent of the length in the score of a hypothesis; for beams only.
        bleu_tokenizer: how sacrebleu finds the words of BLEU: 13a, intl, char, zh, ja-mecab or ko-mecab.
    """

    def __init__(
        self,
        *,
        source: str = "de",
        target: str = "en",
        vocabulary: int = 8000,
        length: int = 64,
        lower: bool = True,
        label_smoothing: float = 0.0,
        beam: int = 1,
        length_penalty: float = 0.6,
        bleu_tokenizer: str = "13a",
    ) -> None:
        for name, language in (("source", source), ("target", target)):
            if language not in LANGUAGES:
                known = ", ".join(LANGUAGES)
                raise UserError(f"{name}: unknown language {language!r}{nearest(str(language), LANGUAGES)}; known: {known}")
        if source == target:
            raise UserError(f"target: expected another language than the source, got {target!r}")
        self.languages = {"source": source, "target": target}
        super().__init__(
            vocabulary=vocabulary,
            length=length,
            lower=lower,
            label_smoothing=label_smoothing,
            beam=beam,
            length_penalty=length_penalty,
            bleu_tokenizer=bleu_tokenizer,
        )

    @property
    def data_name(self) -> str:
        return "multi30k"

    def _sources(self) -> dict[tuple[str, str], datasets.Source]:
        return {(split, side): MULTI30K[split, self.languages[side]] for split in SPLITS for side in SIDES}

    def contents(self) -> str:
        digests = " ".join(source.contents for source in self._sources().values())
        return f"{'-'.join(self.languages.values())} {hashlib.sha256(digests.encode()).hexdigest()}"

    def count(self, split: str) -> int:
        return MULTI30K_PAIRS[known_split(split)]

    def available(self) -> bool:
        return all((datasets.folder() / source.file).exists() for source in self._sources().values())

    def lines(self) -> dict[tuple[str, str], list[str]]:
        return {key: read_lines(datasets.load(source).decode(), place=source.name) for key, source in self._sources().items()}
