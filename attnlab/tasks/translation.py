"""Translation of sentences: the common base of ``multi30k`` and ``translation``.

Both languages share one vocabulary of subwords, which is learned on ``train`` alone. A sentence ends with an end token; the
decoder reads a begin token and the target without its last token, and predicts the target (teacher forcing). A sentence of more
than ``length`` tokens is cut at its end and then has no end token; ``data_notes`` counts these. Training batches have pairs of
similar lengths, measured by the longer side, and each pair once per epoch.

The metrics are BLEU and chrF of decoded translations, computed by sacrebleu on text: subwords are joined, and the references
are the lines of the file, of which nothing is cut. Both are compared in the form that the vocabulary reads (``normalize``):
Unicode NFC, single spaces, and with ``lower`` lower case. ``loss`` is in nats per target token, without label smoothing.

A split of parallel text is prepared as four arrays, the tokens of each side and the ends of its sentences, and as the text of
each side, which scores of translations are computed from. The tokens do not contain the special ones. A character that does
not occur in ``train`` is [UNK], so that a sentence with it cannot be translated perfectly.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from attnlab._util.packages import version_of
from attnlab.errors import UserError
from attnlab.tasks import IGNORED, SPLITS, Batch, known_split, whole_number
from attnlab.tasks.base import each_nats, mean_nats
from attnlab.tasks.bucketing import BucketedTask
from attnlab.tasks.lines import split_lines
from attnlab.tasks.overlap import NOTABLE
from attnlab.tasks.subwords import learn
from attnlab.tasks.translation_scores import known_tokenizer, score_translations, signatures, spaces_note, tokenized_note

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from attnlab._util.metrics import Score
    from attnlab.config.run import RunConfig

logger = logging.getLogger(__name__)

FORMAT = 1  # of the vocabulary and the tokens, which identify the data
FILES = 3  # format of the prepared files
ORDER_SEED = 0  # of the order in which a limit selects pairs
SIDES = ("source", "target")
SPECIAL_TOKENS = ("[PAD]", "[BOS]", "[EOS]", "[UNK]")
PADDING, BEGIN, END, UNKNOWN = range(4)  # their numbers
CHUNK = 4096  # sentences that are encoded at a time: encodings are large


class TranslationTask(BucketedTask):
    """Translate sentences. A subclass defines ``contents``, ``count``, ``lines`` and ``data_name``.

    Args:
        vocabulary: the most subwords, including [PAD] = 0, [BOS] = 1, [EOS] = 2 and [UNK] = 3.
        length: tokens of a sentence that are read, with its end token.
        lower: learn, translate and score lower-cased text.
        label_smoothing: share of the targets' probability that the training loss spreads over the vocabulary.
        beam: hypotheses that decoding keeps; 1 is greedy.
        length_penalty: exponent of the length in the score of a hypothesis; for beams only.
        bleu_tokenizer: how sacrebleu finds the words of BLEU: 13a, intl, char, zh, ja-mecab or ko-mecab.
    """

    kind: Literal["encoder_decoder"] = "encoder_decoder"  # type: ignore[assignment]
    role: Literal["causal", "bidirectional"] = "causal"
    metric = "bleu"
    packages = ("tokenizers", "sacrebleu", "sklearn")
    kept = ("tokenizer_json", "beam", "length_penalty")
    direction: Literal["min", "max"] = "max"
    other_metrics = {"chrf": "max", "loss": "min"}
    item_metric = "loss"
    item = "sentence"
    valid_sample = None  # the BLEU of a few sentences is not an estimate of that of all

    def __init__(
        self,
        *,
        vocabulary: int,
        length: int,
        lower: bool,
        label_smoothing: float,
        beam: int,
        length_penalty: float,
        bleu_tokenizer: str,
    ) -> None:
        self.length = whole_number(length, name="length", least=2)
        self.vocabulary = whole_number(vocabulary, name="vocabulary", least=len(SPECIAL_TOKENS) + 1)
        self.lower = lower
        if not 0 <= label_smoothing < 1:
            raise UserError(f"label_smoothing: expected a number of at least 0 and less than 1, got {label_smoothing!r}")
        self.label_smoothing = label_smoothing
        self.beam = whole_number(beam, name="beam")
        if not 0 <= length_penalty < float("inf"):
            raise UserError(f"length_penalty: expected a number of at least 0, got {length_penalty!r}")
        self.length_penalty = length_penalty
        self.bleu_tokenizer = known_tokenizer(bleu_tokenizer)
        self._pairs: dict[str, tuple[Sentences, Sentences]] = {}

    @property
    def data_name(self) -> str:
        return "translation"

    # ------------------------------------------------------------ defined by a subclass

    def contents(self) -> str:
        """Return a checksum of the files and of everything that decides which of their lines belong to a split."""
        raise NotImplementedError

    def lines(self) -> dict[tuple[str, str], list[str]]:
        """Return the sentences of each (split, side)."""
        raise NotImplementedError

    def available(self) -> bool:
        """Return True when ``lines`` needs no download."""
        return True

    # ------------------------------------------------------------ data

    def identity(self) -> str:
        return f"{self.data_name} sha256:{self._digest()}"

    def _digest(self) -> str:
        """Return a checksum of everything that determines the prepared files, the vocabulary among them."""
        key = {
            "contents": self.contents(),
            "vocabulary": self.vocabulary,
            "lower": self.lower,
            "tokenizers": version_of("tokenizers"),
            "format": FORMAT,
        }
        return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()

    def data_key(self) -> dict[str, Any]:
        return {"digest": self._digest(), "files": FILES}

    def build_data(self, place: Path) -> None:
        lines = self.lines()
        train = [sentence for side in SIDES for sentence in lines["train", side]]
        logger.info("%s: learning the subwords of %s sentences", self.data_name, f"{len(train):,}")
        vocabulary = learn("bpe", train, vocabulary=self.vocabulary, special_tokens=SPECIAL_TOKENS, lower=self.lower)
        vocabulary.save(str(place / "vocabulary.json"))
        vocabulary.encode_special_tokens = True  # "[EOS]" in a sentence is text
        for (split, side), sentences in lines.items():
            write_side(place, f"{split}-{side}", sentences, vocabulary)

    def pairs(self, split: str) -> tuple[Sentences, Sentences]:
        """Return the source and target sentences of one split, memory-mapped."""
        if known_split(split) not in self._pairs:
            source, target = (load_side(self.prepared_folder, f"{split}-{side}") for side in SIDES)
            self._pairs[split] = source, target
        return self._pairs[split]

    def text(self, split: str, side: str) -> list[str]:
        """Return the sentences of one side of a split as text."""
        return load_text(self.prepared_folder, f"{known_split(split)}-{side}")

    def has_data(self) -> bool:
        return self.available() or super().has_data()

    def row_lengths(self, split: str) -> np.ndarray:
        return np.minimum(np.stack([side.lengths for side in self.pairs(split)], axis=1), self.length)

    def normalized(self, split: str, side: str) -> list[str]:
        """Return the sentences of one side of a split in the form in which texts are compared (``normalize``)."""
        return [self.normalize(sentence) for sentence in self.text(split, side)]

    def normalize(self, sentence: str) -> str:
        """Return a sentence in the form that the vocabulary reads: NFC, single spaces, and with ``lower`` lower case."""
        return self._vocabulary.normalizer.normalize_str(sentence)

    def data_notes(self) -> list[str]:
        """Return the signatures of the scores; and if the data are here, notes on references, cut sentences and shared ones."""
        notes = [f"scores of translations by sacrebleu: {self._signatures()}"]
        if self.available():
            references = self.normalized("test", "target")
            notes += [spaces_note(references, tokenizer=self.bleu_tokenizer), tokenized_note(references)]
            notes += [cut_note(self.pairs(split), self.length, split=split) for split in SPLITS]
            train, *texts = (self.normalized(split, "source") for split in SPLITS)
            notes += map(shared_note, SPLITS[1:], texts, [train] * 2)
        return [note for note in notes if note]

    def _signatures(self) -> str:
        return signatures(lower=self.lower, tokenizer=self.bleu_tokenizer)

    def unsupported(self, config: RunConfig) -> str | None:
        if config.evaluate.lengths:
            return "evaluate.lengths is for language models and classifiers: sentences have lengths of their own"
        return super().unsupported(config)

    # ------------------------------------------------------------ batches

    def evaluated_rows(self, split: str, limit: int | None) -> np.ndarray:
        """Return the numbers of the pairs that an evaluation reads, at random."""
        return np.random.default_rng(ORDER_SEED).permutation(self.count(split))[:limit]

    def batch(self, split: str, rows: np.ndarray) -> Batch:
        """Return these pairs of a split, each side padded to the longest of the batch."""
        source, target = self.pairs(split)
        tokens, real = source.padded(rows, length=self.length, fill=PADDING)
        targets, predicted = target.padded(rows, length=self.length, fill=IGNORED)
        first = np.full((len(rows), 1), BEGIN)
        inputs = np.where(predicted, np.concatenate([first, targets[:, :-1]], axis=1), PADDING)
        return Batch(
            torch.from_numpy(inputs),
            torch.from_numpy(targets),
            _mask(predicted),
            source=torch.from_numpy(tokens),
            source_mask=_mask(real),
            items=torch.from_numpy(rows.astype(np.int64)),
        )

    # ------------------------------------------------------------ loss and scores

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the training loss in nats per target token, with label smoothing.

        Args:
            logits: (b, t, vocabulary).
        """
        return mean_nats(logits, batch.targets, label_smoothing=self.label_smoothing)

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        """Return the sum and the count of the loss in nats per target token, without label smoothing."""
        sums, counts = self.item_scores(logits, batch)
        return {"loss": (sums.sum(), counts.sum())}

    def item_scores(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss of each pair as a sum (b,) and a count (b,): BLEU of a corpus is no mean over its sentences."""
        nats = each_nats(logits, batch.targets)
        return nats.double().sum(1), (batch.targets != IGNORED).sum(1)

    def generated_scores(
        self, generate: Callable[..., list[list[int]]], split: str, *, batch_size: int, limit: int | None
    ) -> dict[str, float]:
        """Return BLEU and chrF of the translations of a split, in the range 0 to 100."""
        translations: dict[int, str] = {}
        for batch in self.eval_batches(split, batch_size=batch_size, limit=limit):
            assert batch.items is not None
            rows = generate(batch, **self.decoding_options())
            translations |= zip(batch.items.tolist(), map(self.decode, rows), strict=True)
        numbers = sorted(translations)
        return self._scores([translations[number] for number in numbers], split, numbers)

    def _scores(self, translations: Sequence[str], split: str, numbers: Sequence[int]) -> dict[str, float]:
        """Return BLEU and chrF of translations of these sentences of a split."""
        references = self.normalized(split, "target")
        return score_translations(
            [self.normalize(translation) for translation in translations],
            [references[number] for number in numbers],
            lower=self.lower,
            tokenizer=self.bleu_tokenizer,
        )

    def decoding_options(self) -> dict[str, int | float]:
        return {
            "begin": BEGIN,
            "end": END,
            "max_length": self.length,
            "beam": self.beam,
            "length_penalty": self.length_penalty,
        }

    def run_notes(self) -> dict[str, str]:
        return {"sacrebleu": self._signatures()}

    # ------------------------------------------------------------ text

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a source sentence, with its end token."""
        return [*self._vocabulary.encode(text.strip(), add_special_tokens=False).ids, END]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        return self._vocabulary.decode(list(ids)).strip()

    @cached_property
    def tokenizer_json(self) -> str:
        """The vocabulary, as ``tokenizers`` writes it."""
        return (self.prepared_folder / "vocabulary.json").read_text(encoding="utf-8")

    @cached_property
    def _vocabulary(self) -> Tokenizer:
        from tokenizers import Tokenizer

        vocabulary = Tokenizer.from_str(self.tokenizer_json)
        vocabulary.encode_special_tokens = True
        return vocabulary


def _mask(real: np.ndarray) -> Tensor | None:
    return None if real.all() else torch.from_numpy(real)


@dataclass(frozen=True)
class Sentences:
    """The sentences of one side: number ``i`` is ``tokens[ends[i - 1]:ends[i]]``."""

    tokens: np.ndarray
    ends: np.ndarray

    @cached_property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], self.ends[:-1]])

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n,) tokens of each sentence with its end token."""
        return self.ends - self.starts + 1

    def padded(self, numbers: np.ndarray, *, length: int, fill: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sentences with their end tokens, cut to ``length``, in rows that are filled up with ``fill``.

        Returns:
            (b, t) int64 token ids, where t is the longest of the rows, and (b, t) bool, True at tokens.
        """
        lengths = np.minimum(self.lengths[numbers], length)
        rows = np.full((len(numbers), int(lengths.max())), fill, dtype=np.int64)
        for row, start, end, count in zip(rows, self.starts[numbers], self.ends[numbers], lengths, strict=True):
            row[: min(end - start, count)] = self.tokens[start : min(end, start + count)]
            if count > end - start:
                row[count - 1] = END
        return rows, np.arange(rows.shape[1]) < lengths[:, None]


def read_lines(text: str, *, place: str) -> list[str]:
    """Return the sentences of a text, one a line (``attnlab.tasks.lines``), without surrounding white space.

    Args:
        place: names the file in messages.

    Raises:
        UserError: a line is empty, or there is none.
    """
    lines = [line.strip() for line in split_lines(text)]
    for number, line in enumerate(lines or [""], start=1):
        if not line:
            raise UserError(f"{place}:{number}: expected one sentence a line, got an empty line")
    return lines


def write_side(place: Path, name: str, lines: Sequence[str], vocabulary: Tokenizer) -> None:
    """Write the text, the tokens and the ends of the sentences of one side of a split, under ``name``."""
    kind = np.uint16 if vocabulary.get_vocab_size() <= 1 << 16 else np.uint32
    rows: list[np.ndarray] = []
    for begin in range(0, len(lines), CHUNK):
        encodings = vocabulary.encode_batch_fast(list(lines[begin : begin + CHUNK]), add_special_tokens=False)
        rows += [np.asarray(encoding.ids, dtype=kind) for encoding in encodings]
    np.save(place / f"{name}-tokens.npy", np.concatenate(rows))
    np.save(place / f"{name}-ends.npy", np.cumsum([len(row) for row in rows]))
    (place / f"{name}.txt").write_bytes("\n".join(lines).encode())  # a file in text mode could change line ends


def load_side(place: Path, name: str) -> Sentences:
    """Return the sentences that ``write_side`` wrote, memory-mapped."""
    return Sentences(np.load(place / f"{name}-tokens.npy", mmap_mode="r"), np.load(place / f"{name}-ends.npy"))


def cut_note(sides: Sequence[Sentences], length: int, *, split: str) -> str:
    """Return a note on the sentences of a split that have more than ``length`` tokens; "" if there are none."""
    cut = [int((side.lengths > length).sum()) for side in sides]
    if not any(cut):
        return ""
    return f"{cut[0]:,} source and {cut[1]:,} target sentences of {split} are longer than {length} tokens and are cut"


def shared_note(split: str, sources: Sequence[str], train: Sequence[str]) -> str:
    """Return a note on the source sentences of a split that are also in ``train``; "" if they are few."""
    shared = len(sources) and sum(map(set(train).__contains__, sources))
    if shared < NOTABLE * len(sources):
        return ""
    share = f"{shared:,} of the {len(sources):,} source sentences of {split}"
    return f"{share} are also in train: a model may have memorized them"


def load_text(place: Path, name: str) -> list[str]:
    """Return the lines that ``write_side`` wrote."""
    return (place / f"{name}.txt").read_bytes().decode().split("\n")
