"""Tests of subword vocabularies: determinism, round trips, special tokens, and vocabularies that are too small."""

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.errors import UserError
from attnlab.tasks.subwords import KINDS, UNKNOWN, Kind, learn, load_or_learn

WORDS = ["low", "lower", "lowest", "new", "newer", "wide", "widest", "naïve"]
TEXTS = [" ".join(WORDS[i % 8 :] + WORDS[: i % 5]) + "." for i in range(40)]


def tied_texts() -> list[str]:
    """Return texts of random words, in which many pairs of characters are equally frequent."""
    rng = random.Random(0)
    words = ["".join(rng.choice("abcdefghijklmnopqrstuvwxyzäöü") for _ in range(rng.randint(1, 7))) for _ in range(900)]
    return [" ".join(rng.choice(words) for _ in range(20)) for _ in range(120)]


def vocabulary_digest(kind: Kind) -> str:
    return hashlib.sha256(learn(kind, tied_texts(), vocabulary=700).to_str().encode()).hexdigest()


@pytest.mark.parametrize("kind", KINDS)
def test_every_process_learns_the_same_vocabulary_with_any_number_of_threads(kind: Kind) -> None:
    code = f"from tests.tasks.test_subwords import vocabulary_digest; print(vocabulary_digest({kind!r}))"
    digests = set()
    for threads in ("1", "2"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        digests.add(done.stdout)
    assert digests == {vocabulary_digest(kind) + "\n"}


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first_and_are_never_part_of_text(kind: Kind) -> None:
    tokenizer = learn(kind, TEXTS, vocabulary=300, special_tokens=("[PAD]", "[CLS]"))
    assert [tokenizer.token_to_id(token) for token in ("[PAD]", "[CLS]")] == [0, 1]
    assert tokenizer.token_to_id(UNKNOWN) == (None if kind == "byte_bpe" else 2)
    assert tokenizer.encode("[CLS]lowest").ids[0] == 1
    assert tokenizer.decode([1, *tokenizer.encode("lowest").ids]) == "lowest"


def test_the_subwords_of_wordpiece_that_continue_a_word_are_no_special_tokens() -> None:
    tokenizer = learn("wordpiece", TEXTS, vocabulary=40)
    assert tokenizer.get_vocab_size() == 40 and len(tokenizer.get_added_tokens_decoder()) == 1
    assert tokenizer.encode("##w").tokens == [UNKNOWN, UNKNOWN, "w"]  # two marks that TEXTS lack
    assert "##w" in tokenizer.get_vocab() and "##." not in tokenizer.get_vocab()  # a mark is a word by itself


def test_frequent_pairs_become_tokens() -> None:
    tokenizer = learn("bpe", TEXTS, vocabulary=60)
    assert tokenizer.encode("newest lowest").tokens[0].startswith("▁new") and "▁lowest" in tokenizer.encode("lowest").tokens
    assert tokenizer.get_vocab_size() <= 60


@given(st.text())
def test_byte_bpe_restores_every_text(text: str) -> None:
    assert TOKENIZERS["byte_bpe"].decode(TOKENIZERS["byte_bpe"].encode(text).ids) == text


@given(st.lists(st.sampled_from([*WORDS, "(low", "new)", "wide,"]), max_size=9))
def test_bpe_restores_words_and_punctuation(words: list[str]) -> None:
    text = " ".join(words)
    tokenizer = TOKENIZERS["bpe"]
    assert tokenizer.decode(tokenizer.encode(f" {text.replace(' ', '  ')}\n").ids) == text


TOKENIZERS = {kind: learn(kind, [*TEXTS, "(), (new)"] * 2, vocabulary=300) for kind in ("bpe", "byte_bpe")}


@pytest.mark.parametrize("kind", KINDS)
def test_lower_case_holds_in_training_and_in_encoding(kind: Kind) -> None:
    tokenizer = learn(kind, [*TEXTS, "LOW"], vocabulary=300, lower=True)
    assert tokenizer.encode("LOWER").tokens == tokenizer.encode("lower").tokens
    assert UNKNOWN not in tokenizer.encode("LOWER").tokens


@pytest.mark.parametrize(
    ("kind", "least", "words"), [("bpe", 17, "characters"), ("byte_bpe", 258, "256 bytes"), ("wordpiece", 27, "characters")]
)
def test_a_vocabulary_smaller_than_the_alphabet_is_refused(kind: Kind, least: int, words: str) -> None:
    special = ("[PAD]", UNKNOWN)
    assert learn(kind, TEXTS, vocabulary=least, special_tokens=special).get_vocab_size() == least
    with pytest.raises(UserError, match=f"^vocabulary: expected at least {least}, .*{words}.* got {least - 1}") as caught:
        learn(kind, TEXTS, vocabulary=least - 1, special_tokens=special)
    assert "\n" not in str(caught.value)


def test_a_vocabulary_is_learned_once(folders: Path) -> None:
    calls: list[str] = []

    def texts() -> Iterator[str]:
        calls.append("learned")
        yield from TEXTS

    for digest in ("one", "one", "two"):
        tokenizer = load_or_learn("subwords-test", digest, lambda: learn("byte_bpe", texts(), vocabulary=300))
    assert len(calls) == 2 and tokenizer.to_str() == learn("byte_bpe", TEXTS, vocabulary=300).to_str()
