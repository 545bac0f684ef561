"""``pixels``: 1,797 handwritten digits of 8 x 8 pixels, read pixel by pixel as a language.

Scikit-learn has the images (``load_digits``), so nothing is downloaded. They are the test set of E. Alpaydin and C. Kaynak,
"Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998. A pixel is a byte with one of 17 values;
half of all pixels are 0.

A model predicts each pixel from all before it, row by row, as Child et al. 2019 (arXiv:1904.10509, section 7.2) do with larger
images. Two neighbors in a column are 8 places apart: in ``strided_sparse`` with ``stride: 8``, half of the heads see the last
row, and the others every eighth pixel. The images are split 80/10/10 %, in an order drawn once for all studies.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch

from attnlab._util.rng import derive_seed
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.tasks import SPLITS, Batch, Task, known_split, reference_scores
from attnlab.tasks.reference_scores import Reference

IMAGES = {"train": 1_437, "valid": 180, "test": 180}
PIXELS = 64  # of an image
SYMBOLS = "0123456789abcdefg^"  # of the 17 values of a pixel, and of START
START = 17  # the token before the first pixel
SHA256 = "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3"  # of all pixels in scikit-learn's order
SPLIT_SEED = 0


class Pixels(Task):
    """Predict the next pixel of handwritten digits. Limits of evaluations count pixels of whole images."""

    kind, role = "language_model", "causal"
    metric, direction = "bits_per_byte", "min"
    length, vocabulary, unit, text_unit = PIXELS, len(SYMBOLS), "byte", "byte"
    valid_sample = None
    packages = ("sklearn",)

    def identity(self) -> str:
        return f"pixels sha256:{SHA256} split {SPLIT_SEED}"

    @cached_property
    def rows(self) -> dict[str, np.ndarray]:
        """Each split as (images, 1 + 64): ``START`` and the pixels of an image."""
        from sklearn.datasets import load_digits

        pixels = load_digits().data.astype(np.uint8)  # type: ignore[union-attr]
        if (found := hashlib.sha256(pixels.tobytes()).hexdigest()) != SHA256:
            raise UserError(f"pixels: expected scikit-learn's digits with sha256 {SHA256}, got {found}")
        rows = np.random.default_rng(SPLIT_SEED).permutation(np.insert(pixels, 0, START, axis=1))
        return dict(zip(SPLITS, np.split(rows, np.cumsum(list(IMAGES.values()))[:-1]), strict=True))

    def prepare(self) -> None:
        _ = self.rows

    def unsupported(self, config: RunConfig) -> str | None:
        if config.model.mem_len or config.evaluate.protocol != "segment":
            return "images are independent of each other: expected no memory, and the segment protocol"
        for name, limit in config.evaluate.limits.items():
            if limit is not None and limit < PIXELS:
                return f"evaluate.{name}: expected at least the {PIXELS} pixels of an image, got {limit}"
        return None

    def steps_per_epoch(self, batch_size: int) -> int:
        return max(1, IMAGES["train"] // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        rng = np.random.default_rng(derive_seed(seed, "order", step))
        return _batch(self.rows["train"][rng.integers(IMAGES["train"], size=batch_size)])

    def eval_batches(
        self, split: str, *, batch_size: int, limit: int | None = None, protocol: str = "segment", stride: int | None = None
    ) -> Iterator[Batch]:
        rows = self._evaluated(split, limit)
        return (_batch(rows[i : i + batch_size]) for i in range(0, len(rows), batch_size))

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int | None:
        return min(IMAGES[split], (limit or PIXELS * IMAGES[split]) // PIXELS) * PIXELS

    def split_size(self, split: str) -> int | None:
        return IMAGES[split] * PIXELS

    def _evaluated(self, split: str, limit: int | None) -> np.ndarray:
        return self.rows[known_split(split)][: limit and limit // PIXELS]

    def encode(self, text: str) -> list[int]:
        return [SYMBOLS.index(symbol) for symbol in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(SYMBOLS[token] for token in ids)

    def reference_scores(self) -> dict[str, Reference]:
        def xz(limit: int | None) -> float:
            return reference_scores.xz_bits_per_byte(self._evaluated("test", limit)[:, 1:].ravel())

        def ngram(limit: int | None) -> float:
            test = list(self._evaluated("test", limit))
            return reference_scores.ngram_bits_per_token(self.rows["train"].ravel(), test, vocabulary=self.vocabulary)

        n = reference_scores.longest_order(self.vocabulary)
        about = f"an interpolated {n}-gram model (modified Kneser-Ney) of train: each pixel from the {n - 1} before it"
        return {"xz": Reference(reference_scores.XZ, xz), "n-gram": Reference(about, ngram)}


def _batch(rows: np.ndarray) -> Batch:
    tokens = torch.from_numpy(rows.astype(np.int64))
    return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), fresh=True)
