"""Write the files that the task `tokens` reads, with a byte-level BPE tokenizer that is trained on the first text.

    python examples/my_data/make_tokens.py docs/diagnostics.md CONTRIBUTING.md GLOSSARY.md

The three arguments are the texts of train, valid and test. The files are written next to this script: `train.npy`,
`valid.npy`, `test.npy`, `tokenizer.json`, and `token_bytes.txt`, with which bits per byte are exact.
"""

import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = Path(__file__).parent
VOCABULARY = 512


def train_tokenizer(text: str) -> Tokenizer:
    """Return a tokenizer whose tokens stand for bytes: any text can be encoded, and each token has a number of bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def main(files: list[str], folder: Path = FOLDER) -> None:
    """Write the token files of three texts into ``folder``."""
    splits = zip(("train", "valid", "test"), files, strict=True)
    texts = {split: Path(name).read_bytes().decode() for split, name in splits}  # text mode would change line ends
    tokenizer = train_tokenizer(texts["train"])
    tokenizer.save(str(folder / "tokenizer.json"))
    for split, text in texts.items():
        tokens = np.array(tokenizer.encode(text).ids, dtype="uint16")
        np.save(folder / f"{split}.npy", tokens)
        print(f"{split}: {len(text.encode()):,} bytes, {len(tokens):,} tokens")
    vocabulary = tokenizer.get_vocab()
    names = sorted(vocabulary, key=vocabulary.__getitem__)  # one character of a name stands for one byte
    (folder / "token_bytes.txt").write_text("".join(f"{len(name)}\n" for name in names), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
