"""Tests that every kind of malformed study gives one line: the place, the expected and actual value, the nearest name."""

from pathlib import Path

import pytest

from tests.support.studies import GOOD, misread, write

# Text of GOOD to replace, its replacement, the place of the error, and words that the message must contain.
MISTAKES = {
    "a section that is a list": (
        "train:\n    steps: 20\n    lr: 3e-4",
        "train: [1, 2]",
        "6:10",
        "base.train: expected a mapping",
    ),
    "too many threads": (
        "heads: 2}",
        "heads: 2}\n  machine: {threads: 99999}",
        "6:22",
        "expected a number of at most 10000, got",
    ),
    "the name of a variant as an axis": (
        "train.lr: [1e-3, 3e-4]",
        "variant.name: [no_wo]",
        "11:3",
        "got 'name': write the names",
    ),
    "reference scores as a word": ("margin: 0.005", "reference_scores: gzip", "17:19", "true, false or a list of names"),
    "seeds that are a number": (
        "seeds: [0, 1]",
        "seeds: 3",
        "15:8",
        "seeds: expected a list such as [0, 1], or a range such as 0-4, got 3",
    ),
    "a range among the seeds": ("seeds: [0, 1]", "seeds: ['0-3']", "15:9", "seeds[0]: expected a whole number, got '0-3'"),
    "a letter of another alphabet": ("  train:", "  tr\u0430in:", "6:3", "(did you mean 'train'?)"),
    "a list for the grid": (
        "  variant: [dense, no_wo, {name: strided_sparse, stride: 7}]\n  train.lr: [1e-3, 3e-4]",
        "  - x",
        "10:3",
        "grid: expected",
    ),
    "unknown key at the top": (
        "margin:",
        "margn:",
        "17:1",
        "'margn' (did you mean 'margin'?): expected one of",
    ),
    "a field of a run at the top": (
        "margin:",
        "machine: {threads: 1}\nmargin:",
        "17:1",
        "expected 'machine' under base: (or its values under grid:), got it at the top",
    ),
    "unknown section": ("  model:", "  modle:", "5:3", "'modle' (did you mean 'model'?)"),
    "unknown key in skip": ("because", "becuase", "14:5", "'becuase' in skip[0] (did you mean 'because'?)"),
    "no study": ("study: wo\n", "", "2:1", "expected the key 'study', got none"),
    "wrong type": ("depth: 1", "depth: two", "5:27", "model.depth: expected a whole number, got 'two'"),
    "true for a number": ("lr: 3e-4\ng", "final_lr: true\ng", "8:15", "train.final_lr: expected a number, got true"),
    "no for a bool": ("heads: 2", "tie_embeddings: no", "5:46", "model.tie_embeddings: expected true or false, got 'no'"),
    "null for a number": ("depth: 1", "depth: null", "5:27", "expected a whole number, got nothing (null)"),
    "infinite": ("lr: 3e-4\ng", "final_lr: .inf\ng", "8:15", "expected a finite number, got inf"),
    "too small, open": ("lr: 3e-4\ng", "layer_lr_decay: 0\ng", "8:21", "expected a number greater than 0, got 0"),
    "not one of the choices": (
        "heads: 2",
        "feed_forward: rleu",
        "5:44",
        "'relu', 'relu2' or 'swiglu', got 'rleu' (did you mean 'relu'?)",
    ),
    "bad warm-up": (
        "steps: 20",
        "warmup: 1.5",
        "7:13",
        "train.warmup: expected a number of steps (whole), or",
    ),
    "one beta": (
        "steps: 20",
        "betas: [0.9]",
        "7:12",
        "train.betas: expected a list of more than 1, got a list of 1",
    ),
    "a section that is a word": (
        "{dim: 32, depth: 1, heads: 2}",
        "big",
        "5:10",
        "expected a mapping of keys, got 'big'",
    ),
    "a task without a name": (
        "name: pydocs, ",
        "",
        "4:9",
        "expected the key 'name' in addition to the options, got a mapping",
    ),
    "duplicate key": ("    lr: 3e-4", "    steps: 30", "8:5", "got 'steps' again (first in line 7)"),
    "empty grid": (
        GOOD[GOOD.index("  variant") : GOOD.index("skip")],
        "",
        "9:1",
        "grid: expected at least one axis, such as",
    ),
    "empty axis": (
        "[1e-3, 3e-4]",
        "[]",
        "11:13",
        "grid.train.lr: expected at least one value in the list, got an empty",
    ),
    "an axis that is no list": ("[1e-3, 3e-4]", "1e-3", "11:13", "grid.train.lr: expected a list, got 0.001"),
    "an axis that names no field": (
        "  train.lr:",
        "  train.lrr:",
        "11:3",
        "'train.lrr' is not a field of a run (did you",
    ),
    "the seed as an axis": ("  train.lr:", "  seed:", "11:3", "expected 'seeds: [...]' at the top"),
    "a wrong value on an axis": (
        "[1e-3, 3e-4]",
        "[3e-4, fast]",
        "11:20",
        "train.lr: expected a number, got 'fast'",
    ),
    "a value twice": (
        "[1e-3, 3e-4]",
        "[1e-3, 0.001]",
        "11:20",
        "grid.train.lr: expected each value once, got 0.001",
    ),
    "skip without a reason": (
        "    because: seen before\n",
        "",
        "13:5",
        "expected the key 'because' in skip[0], got none",
    ),
    "a bad baseline value": (
        "{variant: dense}",
        "{variant: dens}",
        "16:21",
        "got 'dens' (did you mean 'dense'?)",
    ),
    "duplicate seeds": ("[0, 1]", "[0, 1, 0]", "15:15", "expected each seed once, got 0 again"),
    "no seeds": ("[0, 1]", "[]", "15:8", "expected at least one value in the list"),
    "a seed in the base": (
        "  task:",
        "  seed: 3\n  task:",
        "4:3",
        "expected 'seeds: [...]' at the top level",
    ),
    "what the plan fills in": ("  task:", "  data: x\n  task:", "4:3", "unknown key 'data' in base"),
    "both steps and epochs": (
        "    lr: 3e-4",
        "    epochs: 3",
        "8:13",
        "expected one of 'steps' and 'epochs', got both",
    ),
    "gradient_accumulation does not divide": (
        "lr: 3e-4\ng",
        "gradient_accumulation: 5\ng",
        "8:28",
        "a divisor of batch_size 32, got 5",
    ),
    "a score to stop at without evaluations": (
        "lr: 3e-4\ng",
        "stop_at: 0.99\ng",
        "8:14",
        "expected 'eval_every' or 'epochs' together with 'stop_at', got one evaluation",
    ),
    "sliding without a stride": (
        "grid:",
        "  evaluate: {protocol: sliding}\ngrid:",
        "9:24",
        "expected a 'stride'",
    ),
    "a backend": ("  train.lr:", "  backend: [auto, {}]\n  train.lr:", "11:19", "backend: expected a text, got an empty"),
    "match": ("no_wo, ", "{name: no_wo, match: size}, ", "10:41", "variant.match: expected 'params', 'flops' or"),
    "a bad study name": (
        "study: wo",
        "study: w/o",
        "2:8",
        "expected letters, digits, '_', '-' and '.' only, got 'w/o'",
    ),
    "a margin that is none": ("0.005", "0", "17:9", "margin: expected a number greater than 0, in the unit of the metric"),
    "bad syntax": ("[0, 1]", "[0, 1", "16:9", "not YAML: "),
    "a second colon": ("study: wo", "study: wo: x", "2:10", "not YAML: expected no second ':' here"),
    "tabs": ("    steps", "\tsteps", "7:1", "not YAML: expected spaces for indentation, got a tab"),
    "a tag": ("wo\n", "!py wo\n", "2:8", "got one with the tag '!py'"),
    "a merge key": ("  task:", "  <<: {a: 1}\n  task:", "4:3", "expected the name of a key, got '<<'"),
    "an unknown alias": ("wo\n", "*wo\n", "2:8", "not YAML: found undefined alias 'wo'"),
    "a tag that would make an object": (
        "study: wo",
        "study: !!python/object/apply:os.system [touch executed]",
        "2:8",
        "got one with the tag 'tag:yaml.org,2002:python/object/apply:os.system'",
    ),
    "a NUL": ("wo\n", '"w\\0o"\n', "2:8", "expected text without control characters, got 'w\\x00o'"),
    "a number of 5,000 digits": ("depth: 1", f"depth: {'9' * 5_000}", "5:27", "expected a whole number of 64 bits, got '999"),
    "brackets in brackets": ("wo\n", f"{'[' * 3_000}\n", "2:57", "at most 50 lists and mappings in one another"),
    "too many cells": (
        "  train.lr: [1e-3, 3e-4]",
        f"  train.lr: [1e-3, 3e-4]\n  model.dim: {list(range(8, 8_000, 8))}\n  train.steps: {list(range(1, 9))}",
        "9:1",
        "grid: expected a product of at most 10,000 cells, got 47,952",
    ),
    "MLflow's own name": ("study: wo", "study: Default", "2:8", "expected a name other than 'Default'"),
    "a name too long for a file": ("study: wo", f"study: {'w' * 300}", "2:8", "expected a text of at most 100 characters"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(kind: str, tmp_path: Path) -> None:
    old, new, place, words = MISTAKES[kind]
    assert GOOD.count(old) == 1, f"{old!r} must stand once in the good file"
    text = misread(write(tmp_path, GOOD.replace(old, new)))
    assert text.startswith(f"s.yaml:{place}: "), text
    assert words in text, text


def test_missing_variant_points_at_the_base(tmp_path: Path) -> None:
    text = misread(write(tmp_path, "study: a\nbase:\n  task: pydocs\n  train: {steps: 5}\n"))
    assert text == "s.yaml:3:3: expected the key 'variant' (or 'model.layers'), got none"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "s.yaml:1:1: expected a study (a mapping of keys), got an empty file"),
        (b"# nothing\n", "s.yaml:1:1: expected a study (a mapping of keys), got an empty file"),
        (b"\n- dense\n- no_wo\n", "s.yaml:2:1: expected a study (a mapping of keys), got a list of 2"),
        (b"study: x\nmetric: \xff\n", "s.yaml:2:9: expected text in UTF-8, got the byte 0xff"),
        (b"a: &x {b: *x}\n", "s.yaml:1:4: expected a value, got an alias of something that contains it"),
    ],
)
def test_a_file_that_is_no_study(data: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(data)
    assert misread(path) == expected


def test_aliases_of_aliases_do_not_multiply(tmp_path: Path) -> None:
    levels = [f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(30)]
    text = misread(write(tmp_path, "\n".join(["a0: &a0 [x]", *levels])))
    assert text.startswith("s.yaml:1:5: expected at most 20,000 values, got more")


def test_an_alias_and_the_same_anchor_again_are_plain_yaml(tmp_path: Path) -> None:
    text = GOOD.replace("lr: 3e-4\n", "lr: &x 3e-4\n").replace("[1e-3, 3e-4]", "[&x 1e-3, *x ]")
    assert "expected each value once, got 0.001 again" in misread(write(tmp_path, text))


def test_a_file_without_end_is_no_study() -> None:
    assert misread(Path("/dev/zero")).endswith("zero:1:1: expected a study, got a file of more than 131,072 bytes")


def test_a_study_file_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert misread(tmp_path / "t.yaml") == ("t.yaml: expected a study, but the file does not exist (did you mean 's.yaml'?)")
    assert "no folder" in misread(tmp_path / "nowhere" / "s.yaml")
    assert "cannot read a study: Is a directory" in misread(tmp_path)
