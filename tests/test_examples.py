"""The variant of `examples/my_variant`, registered in each of the three ways, and the task of `examples/my_task`."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import attnlab
from attnlab._util.user_code import load_file
from attnlab.models.build import initialize
from attnlab.registry import VARIANTS
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.tasks import IGNORED
from attnlab.variants import AttentionConfig, Variant
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "my_variant"
SMALL = {
    "task.length": 17,
    "model.dim": 12,
    "model.depth": 1,
    "model.heads": 2,
    "train.steps": 2,
    "train.eval_every": 2,
    "train.batch_size": 3,
    "evaluate.valid_limit": 500,
    "evaluate.test_limit": 500,
    "machine.threads": 1,
}


@pytest.fixture
def quiet() -> ProgressDisplay:
    return ProgressDisplay(quiet=True)


def cosine(**options: int) -> Variant:
    torch.manual_seed(0)
    return load_file(EXAMPLE / "cosine.py").Cosine(AttentionConfig(dim=12, heads=3, role="causal"), **options)


def test_cosine_attention_matches_its_equations() -> None:
    variant, x = cosine(length=11).double(), torch.randn(2, 7, 12, dtype=torch.float64)
    q, k, v = variant.project(x, None)  # type: ignore[operator]
    q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    logits = torch.log2(torch.tensor(110.0, dtype=torch.float64)) * q @ k.mT
    weights = logits.masked_fill(torch.ones(7, 7).triu(1).bool(), float("-inf")).softmax(-1)
    expected = (weights @ v).transpose(1, 2).flatten(2) @ variant.out.weight.T  # type: ignore[union-attr,operator]
    torch.testing.assert_close(variant(x), expected)


def test_scaling_queries_changes_nothing_and_the_gain_learns() -> None:
    variant, x = cosine(), torch.randn(2, 5, 12)
    before = variant(x)
    with torch.no_grad():
        variant.project.weight[:12] *= 7.0  # type: ignore[union-attr,index]
    torch.testing.assert_close(variant(x), before)
    before.square().sum().backward()
    assert variant.gain.grad is not None and variant.gain.grad.abs().min() > 0  # type: ignore[union-attr]


def test_first_door_imports_names_the_file(tmp_path: Path, quiet: ProgressDisplay) -> None:
    result = attnlab.run(EXAMPLE / "my_study.yaml", sets={**SMALL, "seeds": [0]}, root=tmp_path, display=quiet)
    assert result.ok and len(result.rows) == 6
    runs = attnlab.load_runs("my-study", tmp_path)
    assert set(runs["state"]) == {"completed"}
    assert set(runs["variant"]) == {"dense", "cosine", "cosine length=8"}
    assert runs.groupby("variant")["parameters"].first().is_monotonic_decreasing  # two gains more than dense


def test_second_door_a_path_replaces_the_name(tmp_path: Path, quiet: ProgressDisplay) -> None:
    study = {"study": "by-path", "grid": {"variant": [f"{EXAMPLE / 'cosine.py'}:Cosine"]}}
    study["base"] = {"task": "pydocs", "train": {"steps": 2}}  # type: ignore[assignment]
    result = attnlab.run(study, sets=SMALL, root=tmp_path, display=quiet)
    assert result.ok and [row.name for row in result.rows] == ["Cosine s0"]


def test_third_door_an_installed_package_offers_it(tmp_path: Path) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    installed = tmp_path / "site" / "attnlab_cosine-0.1.0.dist-info"  # what pip would make of the example
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    points = project["entry-points"]["attnlab.variants"]
    lines = [f"{name} = {value}" for name, value in points.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[attnlab.variants]", *lines]))
    (tmp_path / "site" / "cosine.py").write_text((EXAMPLE / "cosine.py").read_text())
    settings = [f"{key}={value}" for key, value in SMALL.items()]
    words = ["variant={name: cosine, length: 9}", "task=pydocs", *settings]
    search_path = os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "attnlab", "train", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": search_path, "ATTNLAB_RUNS": str(tmp_path / "runs")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "cosine length=9" in done.stdout
    assert (tmp_path / "runs" / "reports" / "train" / "index.html").is_file()


@pytest.fixture
def data_example(tmp_path: Path) -> Path:
    """A copy of `examples/my_data` with the token files, in folders of the same depth."""
    folder = tmp_path / "examples" / "my_data"
    shutil.copytree(ROOT / "examples" / "my_data", folder)
    shutil.copytree(ROOT / "examples" / "my_reviews", folder, dirs_exist_ok=True)
    (tmp_path / "docs").mkdir()
    names = ("docs/diagnostics.md", "CONTRIBUTING.md", "GLOSSARY.md")
    texts = [str(shutil.copy(ROOT / name, tmp_path / name)) for name in names]
    load_file(folder / "make_tokens.py").main(texts, folder)
    return folder


@pytest.mark.parametrize(
    ("name", "metric", "words"),
    [("my_text", "bits_per_byte", []), ("my_tokens", "bits_per_byte", []), ("my_reviews", "accuracy", ["majority", "tf-idf"])],
)
def test_studies_of_own_files_run(name: str, metric: str, words: list[str], data_example: Path, quiet: ProgressDisplay) -> None:
    result = attnlab.run(data_example / f"{name}.yaml", sets={**SMALL, "seeds": [0]}, root=data_example / "runs", display=quiet)
    assert result.ok and {row.state for row in result.rows} == {"completed"}
    assert result.plan.metric == metric and not [note for note in result.plan.notes if "also in train" in note]
    assert any("240 rows in 2 classes" in note for note in result.plan.notes) == (name == "my_reviews")
    assert all(row.summary[metric] > 0 for row in result.rows)
    assert set(words) <= {score.name for score in result.reference_scores}


def test_a_study_of_own_parallel_text_runs(data_example: Path, quiet: ProgressDisplay) -> None:
    small = {key: value for key, value in SMALL.items() if key not in ("task.length", "train.steps")}
    sets = {**small, "train.epochs": 0.1, "seeds": [0], "evaluate.test_limit": 20}
    only = {"attention": "cross"}
    result = attnlab.run(data_example / "my_translation.yaml", sets=sets, only=only, root=data_example / "runs", display=quiet)
    assert result.ok and len(result.rows) == 1
    assert (result.plan.metric, result.plan.direction) == ("bleu", "max")
    assert all({"bleu", "chrf", "loss"} <= row.summary.keys() for row in result.rows)
    assert any("sacrebleu" in note and "tok:13a" in note for note in result.plan.notes)


def test_a_user_task_is_trained_and_scored(tmp_path: Path, quiet: ProgressDisplay) -> None:
    small = {key: value for key, value in SMALL.items() if key != "task.length"}
    study = EXAMPLE.parent / "my_task" / "my_study.yaml"
    result = attnlab.run(study, sets={**small, "seeds": [0]}, root=tmp_path, display=quiet)
    assert result.ok and len(result.rows) == 6
    assert result.plan.metric == "recall" and result.plan.direction == "max"
    assert all(0 <= row.summary["recall"] <= 1 for row in result.rows)


def test_targets_are_the_values_of_the_keys_in_the_inputs() -> None:
    task = load_file(EXAMPLE.parent / "my_task" / "recall.py").Recall(pairs=5)
    batch = task.train_batch(3, seed=7, batch_size=4)
    for row, wanted in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        values = dict(zip(row[0:10:2], row[1:10:2], strict=True))
        assert len(values) == 5 and len(row) == task.length
        assert wanted == [values[key] if i >= 10 and i % 2 == 0 else IGNORED for i, key in enumerate(row)]
        assert task.encode(task.decode(row)) == row
    logits = F.one_hot(batch.targets.clamp(min=0), task.vocabulary).float()
    assert task.score(logits, batch) == {"recall": (20, 20)}
    assert task.score(logits.roll(1, -1), batch) == {"recall": (0, 20)}
    whole = torch.cat([batch.inputs for batch in task.eval_batches("valid", batch_size=7, limit=20)])
    assert torch.equal(whole, next(task.eval_batches("valid", batch_size=20)).inputs)
    assert not torch.equal(whole, next(task.eval_batches("test", batch_size=20)).inputs)


@pytest.mark.parametrize("draws", [0, 1, 3])
def test_identical_variants_of_the_a_a_study_differ_in_their_initial_values_alone(draws: int) -> None:
    config, again = AttentionConfig(dim=12, heads=3, role="causal"), load_file(ROOT / "ablations" / "again.py").Again
    dense = initialize(lambda: VARIANTS.get("dense")(config), seed=5)
    other = initialize(lambda: again(config, draws=draws), seed=5)
    x = torch.randn(2, 7, 12)
    assert torch.equal(other(x), dense(x)) == (draws == 0)
    for (_, one), (name, two) in zip(dense.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(one, two) == (draws == 0), name
        assert torch.equal(one.sort()[0], two.sort()[0])
    other.load_state_dict(dense.state_dict())
    assert torch.equal(other(x), dense(x))
