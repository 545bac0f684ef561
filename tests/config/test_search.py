"""Tests of ``search``, ``confirm`` and ``run`` of a study file: valid ones, and every mistake as one line with its place."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.config.reader import read_study
from attnlab.config.search import Dimension, SearchConfig
from attnlab.config.yaml import parse_assignments
from attnlab.tracking.tags import to_yaml
from tests.support.studies import GOOD, SEARCH, misplanned, misread, write

LR = "train.lr: {low: 1e-4, high: 1e-2, log: true}"
BATCH = "train.batch_size: {low: 2, high: 6}"
CHOICES = "choices: [relu, gelu]"
# Text of SEARCH to replace, its replacement, the place of the error, and words that the message must contain.
MISTAKES = {
    "unknown key": ("  trials: 8", "  trails: 8", "11:3", "'trails' in search (did you mean 'trials'?): expected one of"),
    "an empty space": (f"    {LR}\n    {BATCH}\n    model.feed_forward: {{{CHOICES}}}\n", "", "12:3", "search.space: expected"),
    "unknown key of a dimension": (
        "low: 1e-4",
        "lwo: 1e-4",
        "13:16",
        "'lwo' in search.space.train.lr (did you mean 'low'?): expected one of low, high, log, step, choices",
    ),
    "a dimension that is a list": (
        "{low: 1e-4, high: 1e-2, log: true}",
        "[1e-4, 1e-2]",
        "13:15",
        "search.space.train.lr: expected {low: ..., high: ...} or {choices: [...]}, got a list of 2",
    ),
    "a range without an end": (", high: 1e-2, log: true", "", "13:15", "expected 'low' and 'high', or 'choices'"),
    "an infinite end": ("high: 1e-2", "high: .inf", "13:33", "expected a finite number, got inf"),
    "choices beside ends": (CHOICES, f"{CHOICES}, low: 1", "15:54", "expected 'choices' alone, got 'low'"),
    "one choice": ("[relu, gelu]", "[relu]", "15:35", "expected at least two choices, got 1"),
    "a path that names no field": ("train.lr:", "train.lrr:", "13:5", "'train.lrr' is not a field of a run (did you mean"),
    "a whole variant": ("train.lr:", "variant:", "13:5", "expected a path into 'variant', got 'variant' itself"),
    "the seed": ("train.lr:", "seed:", "13:5", "trained with search.seed"),
    "how valid is read": ("train.lr:", "evaluate.stride:", "13:5", "all must be evaluated in the same way"),
    "another length": ("train.lr:", "task.length:", "13:5", "same data"),
    "the backend": ("train.lr:", "backend:", "13:5", "expected no 'backend'"),
    "an axis of the grid": (
        "  variant: [dense, no_wo]",
        "  variant: [dense]\n  train.lr: [1e-3]",
        "14:5",
        "search.space: expected no 'train.lr': the axis 'train.lr' of the grid sets it",
    ),
    "no confirm": ("confirm:\n  seeds: [100, 101]\n", "", "10:1", "search: expected 'confirm'"),
    "the search's own seed": ("[100, 101]", "[100, 0]", "19:16", "expected fresh seeds, got 0, which is search.seed"),
    "seeds beside a search": ("baseline:", "seeds: [1]\nbaseline:", "20:1", "seeds: expected none in a study with 'search'"),
    "a sampler without a name": ("name: TPESampler, ", "", "16:12", "expected the key 'name' in addition to the options"),
    "a size without a unit": ("baseline:", "run: {memory_limit: 8}\nbaseline:", "20:21", "expected a size of at least 1MiB"),
    "a time of another unit": ("baseline:", "run: {timeout: 1:30}\nbaseline:", "20:16", "run.timeout: expected a time such as"),
    "an unknown limit": ("baseline:", "run: {time: 1}\nbaseline:", "20:7", "'time' in run (did you mean 'timeout'?)"),
}

# Values that do not fit their field are found when the plan applies them to a cell.
MISFITS = {
    "a choice that is none": ("[relu, gelu]", "[relu, glu]", "15:42", "got 'glu' (did you mean 'gelu'?)"),
    "an end out of range": (
        "low: 1e-4, high: 1e-2, log: true",
        "low: -1, high: 1.5",
        "13:21",
        "train.lr: expected a number greater than 0, got -1",
    ),
    "a fraction for a whole": ("high: 6", "high: 6.5", "14:29", "train.batch_size: expected a whole number, got 2.0"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(kind: str, tmp_path: Path) -> None:
    old, new, place, words = MISTAKES[kind]
    assert SEARCH.count(old) == 1, f"{old!r} must stand once in the good file"
    text = misread(write(tmp_path, SEARCH.replace(old, new)))
    assert text.startswith(f"s.yaml:{place}: "), text
    assert words in text, text


@pytest.mark.parametrize("kind", MISFITS)
def test_a_value_that_does_not_fit_its_field_has_its_place(kind: str, tmp_path: Path) -> None:
    old, new, place, words = MISFITS[kind]
    text = misplanned(write(tmp_path, SEARCH.replace(old, new)))
    assert text.startswith(f"s.yaml:{place}: ") and words in text, text


def test_an_option_that_the_grid_sets_is_not_searched_too(tmp_path: Path) -> None:
    text = SEARCH.replace("[dense, no_wo]", "[{name: strided_sparse, stride: 7}]")
    text = text.replace(LR, "variant.stride: {low: 2, high: 9}").replace("baseline: {variant: dense}\n", "")
    assert misread(write(tmp_path, text)) == (
        "s.yaml:13:5: search.space: expected no 'variant.stride': the axis 'variant' of the grid sets it"
    )
    plain = read_study(write(tmp_path, text.replace("{name: strided_sparse, stride: 7}", "strided_sparse")))
    assert plain.search is not None and "variant.stride" in plain.search.space


def test_confirm_without_a_search_points_to_seeds(tmp_path: Path) -> None:
    text = misread(write(tmp_path, GOOD.replace("margin: 0.005", "confirm: {seeds: [1]}")))
    assert text == "s.yaml:17:1: confirm: expected 'search' in a study with 'confirm', got none"


def test_a_good_search(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, SEARCH))
    assert study.search is not None
    assert study.reported_seeds == [100, 101] and (study.search.seed, study.search.parallel) == (0, 1)
    assert study.search.sampler.options == {"n_startup_trials": 3}
    labels = {path: dimension.label for path, dimension in study.search.space.items()}
    assert labels == {
        "train.lr": "0.0001 to 0.01, log",
        "train.batch_size": "2 to 6, whole",
        "model.feed_forward": "one of relu, gelu",
    }
    again = SearchConfig.model_validate_json(study.search.model_dump_json(exclude_none=True))
    assert again == study.search
    short = read_study(write(tmp_path, SEARCH.replace("  sampler:", "  # sampler:").replace("  pruner:", "  # pruner:")))
    assert short.search is not None
    assert (short.search.sampler.name, short.search.pruner.name) == ("TPESampler", "NopPruner")


def test_a_searched_study_given_as_a_dict_is_written_back_as_one() -> None:
    study = {"study": "d", "base": {"task": "pydocs", "variant": "dense", "train": {"steps": 5}}}
    study |= {"search": {"trials": 3, "space": {"train.lr": {"low": 1e-4, "high": 1e-2}}, "sampler": "RandomSampler"}}
    study |= {"confirm": {"seeds": [7]}, "run": {"timeout": "2m"}}
    first = read_study(study)
    written = first.model_dump(mode="json", exclude_defaults=True)
    assert read_study(written).model_dump() == first.model_dump() and "RandomSampler" in to_yaml(written)


@pytest.mark.parametrize(
    ("fields", "whole", "ends"),
    [
        ({"low": 2, "high": 6}, True, [2, 6]),
        ({"low": 2, "high": 6, "step": 2}, True, [2, 6]),
        ({"low": 2, "high": 6.0}, False, [2.0, 6.0]),
        ({"low": 0, "high": 1, "step": 0.5}, False, [0.0, 1.0]),
        ({"choices": [1, 2, 3]}, False, [1, 2, 3]),
    ],
)
def test_ends_are_what_is_sampled(fields: dict[str, Any], whole: bool, ends: list[Any]) -> None:
    dimension = Dimension.model_validate(fields)
    assert dimension.whole is whole
    assert [(type(end), end) for _, end in dimension.ends] == [(type(end), end) for end in ends]


@pytest.mark.parametrize(
    ("written", "memory", "timeout"),
    [
        ("{memory_limit: 8GiB, timeout: 90s}", 8 * 2**30, 90.0),
        ("{memory_limit: 512MiB, timeout: 30m}", 512 * 2**20, 1_800.0),
        ("{memory_limit: 1.5 GB, timeout: 1.5h}", 1_500_000_000, 5_400.0),
        ("{memory_limit: 4096KiB, timeout: 1d}", 2**22, 86_400.0),
        ("{memory_limit: 2TB, timeout: 2}", 2 * 10**12, 2.0),
        ("{memory_limit: 10_000_000, timeout: 0.5}", 10_000_000, 0.5),
        ("{memory_limit: null, timeout: null}", None, None),
        ("{}", None, None),
    ],
)
def test_limits_are_bytes_and_seconds(written: str, memory: int | None, timeout: float | None, tmp_path: Path) -> None:
    run = read_study(write(tmp_path, GOOD + f"run: {written}\n")).run
    assert (run.memory_limit, run.timeout) == (memory, timeout)


def test_assignments_reach_into_the_study(tmp_path: Path) -> None:
    path = write(tmp_path, SEARCH)
    words = ["run.timeout=60", "search.trials=4", "confirm.seeds=[7, 8]", "search.sampler=RandomSampler", "train.steps=50"]
    study = read_study(path, sets=parse_assignments(words))
    assert study.search is not None
    assert (study.run.timeout, study.search.trials, study.reported_seeds) == (60.0, 4, [7, 8])
    assert study.search.sampler.name == "RandomSampler" and study.sets == {"train.steps": 50}
    assert list(study.search.space) == ["train.lr", "train.batch_size", "model.feed_forward"]
    off = read_study(path, sets=parse_assignments(["search=null", "confirm=null", "seeds=[3]"]))
    assert off.search is None and off.reported_seeds == [3]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("search.trials=0", "search.trials=0: expected a number of at least 1, got 0"),
        ("search.trails=3", "search.trails=3: unknown key 'trails' in search (did you mean 'trials'?)"),
        ("confirm.seeds=[0]", "confirm.seeds=[0]: confirm.seeds: expected fresh seeds, got 0, which is search.seed"),
        ("search.seed=100", "s.yaml:19:11: confirm.seeds: expected fresh seeds, got 100"),
        ("seeds=[3]", "seeds=[3]: seeds: expected none in a study with 'search'"),
        ("run.timeout=soon", "run.timeout=soon: expected a time such as 90s, 30m or 2h"),
        ("train.lr=1e-3", "train.lr=0.001: the search sets this field in each trial"),
        ("confirm=null", "s.yaml:10:1: search: expected 'confirm' in a study with 'search', got none"),
    ],
)
def test_a_mistaken_assignment_names_itself(word: str, message: str, tmp_path: Path) -> None:
    text = misread(write(tmp_path, SEARCH), sets=parse_assignments([word]))
    assert text.startswith(message), text


def test_an_assignment_to_a_section_that_is_not_there_names_itself(tmp_path: Path) -> None:
    text = misread(write(tmp_path, GOOD), sets=parse_assignments(["search.trials=3"]))
    assert text == "search.trials=3: expected the key 'space' in search, got none"
