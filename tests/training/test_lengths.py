"""Tests of evaluation at other lengths: scores, batches, and the reasons for lengths that are not supported."""

from pathlib import Path
from typing import Any

import pytest
import torch

from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.planning.plan import plan
from attnlab.positions.rotary import Rotary
from attnlab.registry import POSITIONS
from attnlab.tasks import Batch
from attnlab.tasks.pydocs import PyDocs
from attnlab.training import evaluate as evaluation
from attnlab.training.evaluate import evaluate
from attnlab.training.result import load_result
from attnlab.training.train import train
from tests.support.small_runs import recorded, tiny
from tests.support.studies import STUDY, write

CPU = torch.device("cpu")
REVIEWS = {"task": {"name": "tests.support.small_runs:Reviews"}, "position": "rotary", "model__dim": 12, "model__heads": 2}


class Short(Rotary):
    """A user's position scheme that does not state its maximum length."""

    def rotate(self, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if k.shape[-2] > 30:
            raise IndexError(f"no position {k.shape[-2]}\nhere")
        return super().rotate(q, k)


def scored(config: RunConfig, task: Any = None) -> tuple[dict[str, float], dict[str, str]]:
    """Evaluate an untrained model at the configured lengths; the cost is that of a trained one."""
    task = task or PyDocs(**config.task.options)
    return evaluation.evaluate_lengths(build(config, task), task, {"bits_per_byte": 7.0}, config=config, device=CPU)


def batches(config: RunConfig, monkeypatch: pytest.MonkeyPatch, **kwargs: Any) -> dict[int, list[Batch]]:
    """Return every scored batch by length."""
    seen: dict[int, list[Batch]] = {}
    score = PyDocs.score

    def watched(self: PyDocs, logits: torch.Tensor, batch: Batch) -> Any:
        seen.setdefault(self.length, []).append(batch)
        return score(self, logits, batch)

    monkeypatch.setattr(PyDocs, "score", watched)
    scored(config.replace(kwargs))
    return seen


def test_the_summary_has_a_score_at_each_length_and_the_trained_one_is_the_score(tmp_path: Path) -> None:
    config = tiny(evaluate__lengths=[12, 24, 48])
    result, _ = recorded(config, tmp_path)
    names = ["bits_per_byte_at/12", "bits_per_byte_at/24", "bits_per_byte_at/48"]
    assert [name for name in result.summary if "_at/" in name] == names and result.tags == {}
    scores = [result.summary[name] for name in names]
    assert scores[1] == result.summary["bits_per_byte"] and len(set(scores)) == 3
    again = load_result(tmp_path, config=config)
    assert again is not None and again[0].summary["bits_per_byte_at/48"] == scores[2]


def test_lengths_change_nothing_else() -> None:
    (with_them, curves), (without, others) = recorded(tiny(evaluate__lengths=[48])), recorded(tiny())
    assert curves == others
    assert {name: v for name, v in with_them.summary.items() if "_at/" not in name} == without.summary


@pytest.mark.parametrize("protocol", [{}, {"evaluate": {"protocol": "sliding", "stride": 5, "test_limit": 300}}])
def test_the_same_bytes_are_scored_at_every_length(protocol: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {**protocol, "evaluate.lengths": [7, 48, 120]}
    for scored_batches in batches(tiny(), monkeypatch, **changes).values():
        targets = torch.cat([batch.targets.flatten() for batch in scored_batches])
        assert int((targets >= 0).sum()) == 299
        counted = torch.bincount(targets[targets >= 0], minlength=256)
        assert torch.equal(counted, torch.bincount(torch.tensor(list(PyDocs().split("test")[1:300])), minlength=256))


def test_a_batch_never_holds_more_tokens_or_rows_than_a_normal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"evaluate.lengths": [7, 48, 95, 290], "evaluate.test_limit": 2_000}
    rows = {length: len(scored_batches[0].inputs) for length, scored_batches in batches(tiny(), monkeypatch, **changes).items()}
    assert rows == {7: 4, 48: 2, 95: 1, 290: 1}


def test_memory_is_carried_at_every_length() -> None:
    def scores(memory: int) -> dict[str, float]:
        config = tiny(variant="transformer_xl", position="relative", model__mem_len=memory, evaluate__lengths=[8, 48])
        return scored(config)[0]

    assert scores(0).keys() == scores(9).keys()
    assert all(scores(0)[name] != scores(9)[name] for name in scores(0))
    config = tiny(variant="transformer_xl", position="relative", model__mem_len=9)
    config = config.replace({"evaluate.batch_size": 2, "evaluate.lengths": [48]})
    task = PyDocs(length=48, sampling="contiguous")
    by_hand = evaluate(build(config, task), task, "test", config=config.replace({"evaluate.batch_size": 1}), device=CPU)
    assert scored(config)[0] == {"bits_per_byte_at/48": by_hand["bits_per_byte"]}


def test_a_review_is_cut_off_at_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    longest: list[int] = []
    monkeypatch.setattr(
        evaluation, "evaluate", lambda model, task, split, **_: longest.append(task.length) or {"accuracy": 0.5, "loss": 1.0}
    )
    config = tiny(**REVIEWS, evaluate__lengths=[5, 40])
    scores, _ = scored(config, evaluation._task(config, 13))
    assert longest == [5, 40] and scores["accuracy_at/40"] == 0.5 and scores["loss_at/5"] == 1.0
    monkeypatch.undo()
    summary = train(config.replace({"train.steps": 2})).summary
    assert 0 <= summary["accuracy_at/5"] <= 1 and 0 <= summary["accuracy_at/40"] <= 1


def test_a_length_need_not_fit_the_training_batch() -> None:
    config = tiny(train__batch_size=4_000)  # rows of 84 bytes each
    task = PyDocs(**config.task.options)
    assert task.unsupported(config) is None
    assert "too short for 4000 rows of 96" in str(PyDocs(length=96, sampling="contiguous").unsupported(config))
    assert evaluation.unsupported_length(config, task, 96) is None


@pytest.mark.parametrize("name", POSITIONS.names())
@pytest.mark.parametrize("pool", ["mean", "class"])
def test_every_scheme_extrapolates_if_it_declares_so(name: str, pool: str) -> None:
    task = "CausalReviews" if name in ("fire", "cope") else "Reviews"  # these refuse the role bidirectional
    changes = {"task": {"name": f"tests.support.small_runs:{task}"}, "position": name, "model__pool": pool}
    config = tiny(**{**REVIEWS, **changes, "evaluate__lengths": [5, 14]})
    scores, tags = scored(config, evaluation._task(config, 13))
    assert "accuracy_at/5" in scores
    if POSITIONS.get(name).extrapolates:
        assert "accuracy_at/14" in scores and not tags
    else:
        assert "accuracy_at/14" not in scores and tags == {"length.14": f"{name} positions: trained up to 13"}


@pytest.mark.parametrize("scaling", ["interpolation", "ntk", "yarn"])
def test_scaled_rotary_changes_only_lengths_beyond_the_trained_one(scaling: str) -> None:
    def scores(**options: Any) -> dict[str, float]:
        changes = {"position": {"name": "rotary", **options}, "evaluate__lengths": [12, 24, 48]}
        return scored(tiny(**changes, model__dim=24, model__heads=2))[0]

    plain, scaled = scores(), scores(scaling=scaling)
    assert {name for name in plain if plain[name] != scaled[name]} == {"bits_per_byte_at/48", "loss_at/48"} & plain.keys()
    assert "bits_per_byte_at/48" in plain


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"position": "learned"}, "learned positions: trained up to 24"),
        ({"position": "tests.training.test_lengths:Short"}, "IndexError: no position 48\\nhere"),
        (
            {"evaluate__protocol": "sliding", "evaluate__stride": 20, "evaluate__lengths": [12]},
            "the sliding protocol needs evaluate.stride from 1 to the length 12",
        ),
    ],
)
def test_an_unsupported_length_is_a_reason_and_does_not_fail_the_run(changes: dict[str, Any], reason: str) -> None:
    config = tiny(**{"evaluate__lengths": [48], **changes})
    result, (length,) = train(config), config.evaluate.lengths
    assert result.state == "completed" and result.summary["bits_per_byte"] < 9
    assert f"bits_per_byte_at/{length}" not in result.summary and result.tags == {f"length.{length}": reason}


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (MemoryError(), "out of memory: requested an unknown amount"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.20 GiB."), "out of memory: requested 1.20 GiB"),
        ({"bits_per_byte": float("nan")}, "bits_per_byte became nan"),
    ],
    ids=["host", "device", "nan"],
)
def test_one_length_that_fails_leaves_the_others(outcome: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(model: Any, task: Any, split: str, **_: Any) -> dict[str, float]:
        if task.length != 48:
            return {"bits_per_byte": 3.0}
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(evaluation, "evaluate", fake)
    scores, tags = scored(tiny(evaluate__lengths=[12, 48, 96]))
    assert scores == {"bits_per_byte_at/12": 3.0, "bits_per_byte_at/96": 3.0} and tags == {"length.48": reason}


def test_the_plan_names_cells_that_cannot_be_evaluated_at_a_length(tmp_path: Path) -> None:
    text = STUDY.replace("  machine:", "  evaluate: {lengths: [12, 48, 96]}\n  machine:")
    planned = plan(write(tmp_path, text.replace("position: learned", "position: rotary")))
    assert planned.notes == []
    planned = plan(write(tmp_path, text))
    assert any(all(word in note for word in ("'no_wo'", "length 48, 96", "up to 24")) for note in planned.notes)
    assert len(planned.notes) == 3 and all(cell.refusal is None for cell in planned.cells)
