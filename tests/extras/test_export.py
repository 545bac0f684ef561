"""Exported runs have the curves, scores and settings of the study's record, read back with the tools' own readers."""

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnlab.cli.main import main
from attnlab.errors import UserError
from attnlab.extras.sharing.export import export
from attnlab.study.run import run
from attnlab.tracking.runs import load_curves, load_runs
from tests.study.test_study import QUIET, study

BLOCK = 32_768
CONFIG = study(grid={"variant": ["dense", "narrow"], "position": ["learned"]}, baseline={"variant": "dense"})


@pytest.fixture
def trained(root: Path) -> Path:
    run(CONFIG, root=root, display=QUIET, train="tests.support.study_fakes:settling")
    return root


def recorded(root: Path, name: str) -> tuple[dict[tuple[str, int], float], dict[str, float]]:
    """Return (metric, step) -> value of the curves of a run, and its scores."""
    curves = load_curves("small", root)
    points = {(p["metric"], p["step"]): p["value"] for p in curves.to_dict("records") if p["name"] == name}
    (row,) = (row for row in load_runs("small", root).to_dict("records") if row["name"] == name)
    return points, {"bits_per_byte": row["bits_per_byte"], "seed": row["seed"], "train.lr": row["train.lr"]}


def log_records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a file of W&B: after 7 bytes, the log format of LevelDB, in blocks of 32 KiB."""
    at, parts = 7, b""
    while at + 7 <= len(content):
        if BLOCK - at % BLOCK < 7:  # no room for a header
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_event_files_of_tensorboard(trained: Path, tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = export("small", "tensorboard", tmp_path / "events", root=trained)
    assert sorted(path.name for path in folder.iterdir()) == [f"{c} learned s{s}" for c in ("dense", "narrow") for s in (0, 1)]
    points, scores = recorded(trained, "narrow learned s1")
    events = event_accumulator.EventAccumulator(str(folder / "narrow learned s1"))
    events.Reload()
    read = {(tag, e.step): e.value for tag in events.Tags()["scalars"] for e in events.Scalars(tag) if "/" in tag}
    points = {name: value for name, value in points.items() if name in read or not name[0].startswith("system/")}
    assert points and read == pytest.approx(points)
    (score,) = events.Scalars("bits_per_byte")
    assert score.value == pytest.approx(scores["bits_per_byte"])


def test_offline_runs_of_wandb(trained: Path, tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    protocol = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    folder = export("small", "wandb", tmp_path / "offline", root=trained)
    wandb.teardown()  # its server process may still write, which a command waits for when it exits
    runs = {}
    for file in folder.glob("wandb/offline-run-*/*.wandb"):
        records = [protocol.Record.FromString(data) for data in log_records(file.read_bytes())]
        (name,) = {record.run.display_name for record in records if record.HasField("run")}
        runs[name] = records
    assert len(runs) == 4
    points, scores = recorded(trained, "narrow learned s1")
    logged = {}
    for record in runs["narrow learned s1"]:
        if record.HasField("history"):
            for item in record.history.item:
                name = item.key or "/".join(item.nested_key)
                if not name.startswith("_"):
                    logged[name, record.history.step.num] = float(item.value_json)
    assert points and logged == pytest.approx(points)
    text = str(runs["narrow learned s1"])
    assert '"bits_per_byte"' in text and f"{scores['bits_per_byte']}" in text, "the summary"


def test_what_cannot_be_exported_is_named(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("ATTNLAB_RUNS", str(trained))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    assert main(["export", "small", "--to", "wandb", "--out", str(tmp_path / "full")]) == 2
    assert "expected a new or empty folder" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 'attnlab\[export\]'"):
        export("small", "wandb", tmp_path / "new")
