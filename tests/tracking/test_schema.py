"""Tests that the records of a stranger's store are data: checked before anything reads them, confined to the runs folder."""

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest
from mlflow import MlflowClient

from attnlab.cli.main import main
from attnlab.errors import UserError
from attnlab.extras.rerender import rerender
from attnlab.report.methods import load_study_info
from attnlab.study.run import run
from attnlab.tracking.artifacts import ReferenceScore
from attnlab.tracking.calls import Call, call_tags, read_calls
from attnlab.tracking.client import _warn_of_damage, connect
from attnlab.tracking.relocation import require_inside, require_of_run
from attnlab.tracking.runs import find_experiment, load_curves, load_runs
from attnlab.tracking.schema import is_time, misfit_of_run, misfit_of_study
from attnlab.tracking.transfer import read_study_record
from tests.support.stored_studies import store_study

OF_A_RUN = "run_uuid = (SELECT run_uuid FROM runs WHERE name = 'dense s0')"
COMMAND = {"command": "a {kind}", "values": {"kind": 1}, "env": {}, "files": {}}
OWN = {"task": {"name": "pydocs"}, "data": "", "train": {}, "evaluate": {}, "variant": {"name": "dense"}, "seed": 0}
RUN = {
    "attnlab.fingerprint": "0123abcd",
    "attnlab.cell": "dense",
    "attnlab.seed": "0",
    "attnlab.axes": '{"variant": "dense"}',
    "attnlab.config": json.dumps(COMMAND),
}
GOOD = {
    "attnlab.fingerprint": ["refused-0123", "a1.t00"],
    "attnlab.summary": ['{"loss": 1.5, "score": null}', '{"loss": Infinity}', "", f'{{"loss": {10**30}}}'],
    "attnlab.commit": ["", "0123456789ab", "0123456789ab+dirty"],
    "attnlab.folder": ["work/0123abcd", "work/0123abcd.89ab"],
    "attnlab.failures": ["", "2"],
    "attnlab.test": [
        '{"scores": "of a program"}',
        '{"scores": "of a program", "files": {"a.csv": "0a"}}',
        '{"task": "pydocs"}',
    ],
    "attnlab.cell": ["[dense, no_wo]", "{a}"],
    "attnlab.config": [json.dumps(OWN), json.dumps({**OWN, "of_another_version": 1})]
    + [json.dumps({**OWN, "train": {"epochs": 1, "steps": None, "optimizer": {"name": "muon"}, "betas": [0.9, 1], "old": {}}})],
}
BAD = {
    "attnlab.fingerprint": ["", "..", "../x", "/etc", "a/b", "a\0", "x" * 300, ".hidden", "a\n"],
    "attnlab.seed": ["", "x", "1.5", "-1", "1e9", "9" * 30, "nan"],
    "attnlab.axes": ["", "[]", "3", "{", '"x"', '{"x": Infinity}', '{"x": [1e999]}', f'{{"x": [{2**63}]}}'],
    "attnlab.config": ["", "[]", "{}", "null", '{"task": 3}', '{"command": []}', "[" * 5_000],
    "attnlab.state": ["", "done", "COMPLETED"],
    "attnlab.phase": ["", "other"],
    "attnlab.attempt": ["", "x", "-1"],
    "attnlab.trial": ["", "x"],
    "attnlab.params": ["[]", "x", f'{{"train.lr": {10**30}}}'],
    "attnlab.factors": ["[]", "x"],
    "attnlab.test": ["", "[]", "x", '{"files": []}', '{"files": "x"}'],
    "attnlab.summary": ["[]", "x", '{"loss": "x"}', '{"loss": "1e999"}', '{"loss": "NaN"}', '{"loss": true}', '{"a\\nb": "x"}'],
    "attnlab.data_notes": ["{}", "x", "[3]"],
    "attnlab.folder": ["", "/etc", "../x", "work/../x", "work/", "work/a/b"],
    "attnlab.commit": ["x; rm -rf /", "$(id)", "-f", "0123456789ab; id", "0123456789ab\nid"],
    "attnlab.current": ["maybe"],
}
BAD["attnlab.config"] += [
    json.dumps(config)
    for config in (
        *(
            {**COMMAND, key: value}
            for key, value in (("command", 5), ("command", "a 'b"), ("command", "a {kind!r}"), ("seed", "x"), ("seed", 10**30))
        ),
        {**COMMAND, "command": "a \ud800"},
        *({**COMMAND, key: value} for key, value in (("values", [1]), ("values", {"kind": [1]}), ("env", {"A": 5}))),
        *({**COMMAND, "files": {"a.py": 5}}, {**COMMAND, "other": 1}),
        *({**OWN, key: value} for key, value in (("task", "pydocs"), ("task", {}), ("train", 3), ("evaluate", []))),
        *(
            {**OWN, key: value}
            for key, value in (
                ("seed", "x"),
                ("seed", "0"),
                ("seed", 10**30),
                ("sources", ["a.py"]),
                ("sources", {"a.py": 5}),
                ("model", "x"),
            )
        ),
        *(
            {**OWN, "train": {name: value}}
            for name, value in (("epochs", {"a": 1}), ("steps", "3"), ("lr", True), ("precision", []))
        ),
        *({**OWN, section: {name: {}}} for section, name in (("evaluate", "test_limit"), ("model", "dim"))),
        *({**OWN, "init": value} for value in ("x", {"from": "a"})),
    )
]
QUESTION = {"metric": "loss", "direction": "min", "baseline": {"variant": "dense"}, "margin": None}
REFERENCE = asdict(ReferenceScore("gzip", "pydocs", "pydocs sha256:0a", 100, "bits_per_byte", 2.5, 0.1, "a compressor"))
GOOD_OF_STUDY = {
    "attnlab.questions": [
        json.dumps([{**QUESTION, **change}])
        for change in (
            *(
                {},
                {"margin": 0.1},
                {"margin": "5 % of steps"},
                {"baseline": None},
                {"baseline": [{"variant": "dense"}, {"a": 1}]},
            ),
            *({"control": {"variant": "none"}, "over": "train.steps", "moderate": False, "estimand": {"name": "median"}},),
            *({"task_axis": "task", "tasks": {"a": ["loss", "min"]}, "margin": {"a": None}}, {"of_another_version": 1}),
        )
    ],
    "attnlab.reference_score.0a": ["", json.dumps(REFERENCE), json.dumps({**REFERENCE, "limit": None})],
    "attnlab.looks": ["[]", "[3, 12, 1795707156763]"],
    "attnlab.judged": ["[]", "[[3, 1795707156763]]"],
    "attnlab.futile.0a": ['["a", [3, 3, 0.01, 1795707156763]]'],
}
BAD_OF_STUDY = {
    "attnlab.study": ["", "../x", "a b", "$(id)", "a\nid"],
    "attnlab.questions": [
        *("{}", "x", "[3]", "[{}]"),
        *(
            json.dumps([{**QUESTION, **change}])
            for change in (
                *({"metric": 5}, {"direction": "up"}, {"baseline": [["a", "b"]]}, {"control": "x"}, {"over": 3}),
                *({"margin": "x"}, {"margin": -1}, {"margin": float("inf")}, {"margin": {"a": 1.0}}),
                *({"estimand": "x"}, {"estimand": {"other": 1}}, {"task_axis": "task", "tasks": {"a": ["loss"]}}),
            )
        ),
    ],
    "attnlab.doubles": ["[]", '{"a": 3}'],
    "attnlab.threads": ["x", "-1"],
    "attnlab.reference_score.0a": [
        "[5]",
        "{}",
        json.dumps({**REFERENCE, "value": "x"}),
        json.dumps({**REFERENCE, "value": "NaN"}),
        json.dumps({**REFERENCE, "seconds": float("inf")}),
        json.dumps({**REFERENCE, "other": 1}),
    ],
    "attnlab.looks": ["{}", "[-1, 2]", "3", "[3]", "[3, 12]", "[2, 3, 4, 5]", "[2, 100000000]", '["3", 12, 5]', "[3.0, 12, 5]"],
    "attnlab.judged": ["{}", "[3]", "[[3, 1e15]]", '[["3", 1795707156763]]'],
    "attnlab.judged.0a": ["{}", '["a", [3]]'],
    "attnlab.futile.0a": ["[]", '["a", [1]]', '["a", [3, 3, NaN, 1]]'],
    "attnlab.call.0000": ["[]", "x", '{"other": 1}'],
}


def _cases(values: dict[str, list[str]]) -> list[Any]:
    return [pytest.param(tag, text, id=f"{tag}={text[:20]!r}") for tag, texts in values.items() for text in texts]


@pytest.mark.parametrize(("tag", "text"), _cases(GOOD))
def test_a_record_fits_its_schema(tag: str, text: str) -> None:
    assert misfit_of_run(RUN) is None and misfit_of_run({**RUN, tag: text}) is None


@pytest.mark.parametrize("name", ["étude-\udcff", "\\udcff", "\ud83d\ude00", "\\\udcff"])
def test_a_name_of_any_bytes_fits(name: str) -> None:
    call = {"command": f"attnlab run {name}.yaml", "file": f"{name}.yaml", "text": ["0a", 1]}
    assert misfit_of_study({"attnlab.study_file.0a.0": "", "attnlab.call.0000": json.dumps(call)}) is None
    config = {**COMMAND, "files": {f"{name}.py": "0a"}, "env": {"A": name}}
    assert misfit_of_run({**RUN, "attnlab.config": json.dumps(config), "attnlab.axes": json.dumps({"kind": name})}) is None


@pytest.mark.parametrize(("tag", "text"), _cases(BAD))
def test_a_damaged_tag_of_a_run_is_named(tag: str, text: str) -> None:
    misfit = misfit_of_run({**RUN, tag: text})
    assert misfit is not None and misfit[0] == tag and "\n" not in misfit[1]


@pytest.mark.parametrize("value", ["é", "0.1", None, True, [0.1], 0, -0.1, float("inf"), float("nan"), 10**400])
def test_a_swept_value_is_a_positive_number(value: Any) -> None:
    params = {"attnlab.params": json.dumps({"train.lr": value})}
    misfit = misfit_of_run({**RUN, **params, "attnlab.phase": "sweep"})
    assert misfit is not None and misfit[0] == "attnlab.params" and "\n" not in misfit[1]


@pytest.mark.parametrize(("phase", "value"), [("sweep", 1e-3), ("sweep", 1), ("search", "adamw"), ("search", 0)])
def test_values_of_a_search_are_of_any_kind(phase: str, value: Any) -> None:
    assert misfit_of_run({**RUN, "attnlab.params": json.dumps({"train.lr": value}), "attnlab.phase": phase}) is None


@pytest.mark.parametrize(("tag", "text"), _cases(GOOD_OF_STUDY))
def test_a_record_of_a_study_fits_its_schema(tag: str, text: str) -> None:
    assert misfit_of_study({tag: text}) is None


def test_a_call_without_its_study_file_is_named() -> None:
    tags = call_tags(Call("attnlab run a.yaml", "a.yaml", "study: a\n", time=1), number=0)
    assert misfit_of_study(tags) is None
    assert misfit_of_study({**tags, **{tag: "AAAA" for tag in tags if "call" not in tag}}) is not None
    misfit = misfit_of_study({tag: text for tag, text in tags.items() if "call" in tag})
    assert misfit is not None and misfit[0] == "attnlab.call."


@pytest.mark.parametrize(("time", "good"), [(1795707156763, True), (2**62, False), (-1, False), ("x", False), (b"x", False)])
def test_times_that_are_no_dates_are_told(time: object, good: bool) -> None:
    assert is_time(time) == good


DAMAGES: dict[str, tuple[list[object], str]] = {  # column -> values that it cannot have, and what has them
    "runs.name": ([b"\xff"], "name = 'dense s0'"),
    "runs.start_time": (["x", b"\xff", 2**62, -5], "name = 'dense s0'"),
    "runs.end_time": (["x"], "name = 'dense s0'"),
    "tags.key": ([b"\xff"], f"key = 'attnlab.seed' AND {OF_A_RUN}"),
    "tags.value": ([None, b"\xff"], f"key = 'attnlab.seed' AND {OF_A_RUN}"),
    "latest_metrics.key": ([b"\xff"], OF_A_RUN),
    "latest_metrics.value": (["x"], OF_A_RUN),
    "experiment_tags.key": ([b"\xff"], "key = 'attnlab.questions'"),
    "experiment_tags.value": ([None, b"\xff"], "key = 'attnlab.questions'"),
}


@pytest.mark.parametrize("column", DAMAGES)
def test_a_damaged_column_is_named_in_one_line(
    column: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column of SQLite holds values of any type."""
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    store_study(root, "s", {"dense": {0: 1.0, 1: 1.1}, "no_wo": {0: 1.2, 1: 1.4}})
    table, name = column.split(".")
    values, place = DAMAGES[column]
    for value in values:
        with closing(sqlite3.connect(root / "mlflow.db")) as database, database:
            before = database.execute(f"SELECT rowid, {name} FROM {table} WHERE {place}").fetchall()
            assert before
            database.execute(f"UPDATE {table} SET {name} = ? WHERE {place}", (value,))
        _warn_of_damage.cache_clear()
        code, error = main(["verdict", "s"]), capsys.readouterr().err
        assert code == (2 if table == "experiment_tags" else 0) and error.count("damaged") == 1, (value, error)
        with closing(sqlite3.connect(root / "mlflow.db")) as database, database:
            database.executemany(f"UPDATE {table} SET {name} = ? WHERE rowid = ?", [pair[::-1] for pair in before])
    assert main(["verdict", "s"]) == 0


def test_damaged_points_of_a_curve_are_left_out(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    store_study(root, "s", {"dense": {0: 1.0}})
    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    run_id = str(load_runs("s", root)["run_id"][0])
    for step in range(5):
        client.log_metric(run_id, "curve/loss", 1.0, step=step, timestamp=step)
    with closing(sqlite3.connect(root / "mlflow.db")) as database, database:
        for step, change in ((1, "key = x'ff2fff'"), (2, "value = 'x'"), (3, "step = x'ff'"), (4, "timestamp = x'ff'")):
            database.execute(f"UPDATE metrics SET {change} WHERE key = 'curve/loss' AND step = {step}")
    assert list(load_curves("s", root)["step"]) == [0]
    (run,) = read_study_record("s", root).runs
    assert [point[3] for point in run.points if point[0] == "curve/loss"] == [0] and caplog.text.count("damaged") == 1


@pytest.mark.parametrize(("tag", "text"), _cases(BAD_OF_STUDY))
def test_a_damaged_tag_of_a_study_is_named(tag: str, text: str) -> None:
    misfit = misfit_of_study({tag: text})
    assert misfit is not None and misfit[0] == tag


def test_artifacts_stay_in_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "artifacts/study/run/artifacts"
    inside.mkdir(parents=True)
    assert require_inside(inside.as_uri(), tmp_path) == require_inside(str(inside), tmp_path) == inside
    assert require_inside("mlflow-artifacts:/1/2", tmp_path) is None
    for location in ("http://elsewhere/x", "s3://bucket/x"):
        with pytest.raises(UserError, match="expected artifacts in the runs folder, got artifacts at"):
            require_inside(location, tmp_path)
    for location in ("file:///etc", "/etc", f"{inside.as_uri()}/../../../../..", str(tmp_path), cast("str", b"\xff")):
        with pytest.raises(UserError, match="expected artifacts in"):
            require_inside(location, tmp_path)
    (inside / "study.yaml").symlink_to("/etc/hostname")
    with pytest.raises(UserError, match="/etc/hostname"):
        require_inside(str(inside), tmp_path)


def test_a_server_names_only_folders_that_mlflow_makes(tmp_path: Path) -> None:
    run_id = "0a" * 16
    folder = tmp_path / "shared" / run_id / "artifacts"
    folder.mkdir(parents=True)
    assert require_of_run(folder.as_uri(), run_id) == require_of_run(str(folder), run_id) == folder
    for location in ("mlflow-artifacts:/1/2", "s3://bucket/x", "https://elsewhere/x"):
        assert require_of_run(location, run_id) is None
    for location, of in (("file:///etc", run_id), ("/etc", run_id), (f"{folder.as_uri()}/..", run_id), (str(folder), "shared")):
        with pytest.raises(UserError, match="expected the artifacts of the run"):
            require_of_run(location, of)
    (folder / "study.yaml").symlink_to("/etc/hostname")
    with pytest.raises(UserError, match="/etc/hostname"):
        require_of_run(str(folder), run_id)


def test_files_that_a_strangers_server_names_are_not_packed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{(root / 'mlflow.db').rename(tmp_path / 'elsewhere.db')}")
    monkeypatch.chdir(tmp_path)
    store_study(root, "s", {"dense": {0: 1.0, 1: 1.1}, "no_wo": {0: 1.2, 1: 1.4}})
    private = tmp_path / "private"
    private.mkdir()
    (private / "key").write_text("secret", encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "elsewhere.db")) as database, database:
        database.execute("UPDATE runs SET artifact_uri = ?", (private.as_uri(),))
    assert main(["bundle", "s"]) == 2 and str(private) in capsys.readouterr().err
    assert main(["verdict", "s"]) == 0
    with closing(sqlite3.connect(tmp_path / "elsewhere.db")) as database, database:
        database.execute("UPDATE experiments SET artifact_location = 'ab/../..' WHERE name = 's'")
        database.execute("DELETE FROM experiment_tags WHERE key LIKE 'attnlab.study_file.%' OR key LIKE 'attnlab.call.%'")
    assert main(["report", "s"]) == 2 and str(private) in capsys.readouterr().err
    assert [path.name for path in private.iterdir()] == ["key"]


@pytest.mark.parametrize("text", ["", "[]", "study: [", "study: s\nnone: 1\n"])
def test_a_recorded_study_file_that_cannot_be_used_is_named_by_its_study(text: str, root: Path) -> None:
    store_study(root, "s", {"dense": {0: 1.0}})
    for tag, content in call_tags(Call("attnlab run s.yaml", "s.yaml", text, time=2_000), number=0).items():
        connect(root).set_experiment_tag(find_experiment(connect(root), "s").experiment_id, tag, content)
    with pytest.raises(UserError) as refused:
        load_study_info(load_runs("s", root), root=root)
    assert "recorded study file of 's'" in str(refused.value) and "tmp" not in str(refused.value).replace(str(root), "")


def test_a_record_with_a_key_that_was_deleted_is_read(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``run.fuse`` trained the seeds of a cell as one model, with their number in a tag, until it was deleted."""
    monkeypatch.chdir(root.parent)
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    store_study(root, "s", {"dense": {0: 1.0, 1: 1.1}, "no_wo": {0: 1.2, 1: 1.4}})
    client, experiment = connect(root), find_experiment(connect(root), "s")
    call = read_calls(experiment.tags)[-1]
    text = f"{call.text}run: {{fuse: seeds, timeout: 1h}}\n"
    for tag, content in call_tags(replace(call, text=text), number=1).items():
        client.set_experiment_tag(experiment.experiment_id, tag, content)
    for run_id in load_runs("s", root)["run_id"]:
        client.set_tag(run_id, "attnlab.fused", "2")
    assert main(["report", "s"]) == 0 and "fuse: seeds" in Path("reports/s/README.md").read_text(encoding="utf-8")
    content = json.loads(Path("reports/s/report.json").read_text(encoding="utf-8"))
    fused = {"columns": [*content["columns"], "fused"], "runs": content["runs"] | {"fused": {"values": [2]}}}
    Path("reports/s/report.json").write_text(json.dumps(content | fused), encoding="utf-8")
    rerender(Path("reports/s"))
    assert main(["bundle", "s"]) == 0
    monkeypatch.setenv("ATTNLAB_RUNS", "merged")
    assert main(["merge", "s.zip"]) == 0 and len(load_runs("s")) == 4

    Path("s.yaml").write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert main(["plan", "s.yaml"]) == 2 and "unknown key 'fuse' in run" in capsys.readouterr().err


def test_a_strangers_record_is_read_as_data(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its class is not imported, its locations are not followed, and a damaged run is left out with a warning."""
    monkeypatch.chdir(root.parent)
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    Path("train.py").write_text("print('{\"score\": 1}')\n", encoding="utf-8")
    Path("evil.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    program = {"command": "python train.py {how} {seed}", "grid": {"how": ["a", "b"]}, "baseline": {"how": "a"}}
    run({"study": "s", **program, "seeds": [0, 1], "metric": {"name": "score", "direction": "max"}}, root=root)
    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("s")
    assert experiment is not None
    first, *_ = client.search_runs([experiment.experiment_id])

    client.set_tag(first.info.run_id, "attnlab.fingerprint", "../../outside")
    assert len(load_runs("s", root)) == 3
    client.set_tag(first.info.run_id, "attnlab.fingerprint", "0" * 16)
    client.set_tag(first.info.run_id, "attnlab.axes", '{"how": "a", "seed": "x", "name": "y"}')
    runs = load_runs("s", root)
    assert set(runs["seed"]) == {0, 1} and "y" not in set(runs["name"])
    client.set_tag(first.info.run_id, "attnlab.axes", '{"how": "a", "task": "evil.py:Task"}')
    for record in client.search_runs([experiment.experiment_id]):
        client.set_tag(record.info.run_id, "attnlab.search", '{"space": 5}')
    assert main(["report", "s"]) == 2 and "search" in capsys.readouterr().err
    for record in client.search_runs([experiment.experiment_id]):
        client.delete_tag(record.info.run_id, "attnlab.search")
    over = [{"metric": "score", "direction": "max", "baseline": {"how": "a"}, "margin": None, "over": "other"}]
    client.set_experiment_tag(experiment.experiment_id, "attnlab.questions", json.dumps(over))
    assert main(["report", "s"]) == 2 and "'other'" in capsys.readouterr().err
    client.set_experiment_tag(experiment.experiment_id, "attnlab.questions", "[]")
    assert main(["report", "s"]) == 2 and "has no question" in capsys.readouterr().err
    assert not Path("ran").exists()


def test_a_name_that_is_not_utf8_is_escaped_in_the_table_of_runs(root: Path) -> None:
    """JSON holds it as a lone surrogate, which a column of texts cannot hold."""
    store_study(root, "s", {"dense": {0: 1.0}, "no_wo": {0: 1.2}})
    with closing(sqlite3.connect(root / "mlflow.db")) as database, database:
        axes = json.dumps({"variant": "\udcff", "\udcfe": 1})
        database.execute(f"UPDATE tags SET value = ? WHERE key = 'attnlab.axes' AND {OF_A_RUN}", (axes,))
    row = load_runs("s", root).set_index("cell").loc["dense"]
    assert row["variant"] == "\\udcff" and row["\\udcfe"] == 1


@pytest.mark.parametrize("name", ["mlflow.db", "optuna.db", "owner_id", "artifacts/s/r/artifacts/items.npz"])
def test_a_named_pipe_in_a_runs_folder_is_refused(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Opening it would wait for a writer without end."""
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    if "artifacts" in name:
        with pytest.raises(UserError, match="named pipe"):
            require_inside(str(path.parent), root)
    else:
        assert main(["runs"]) == 2 and "named pipe" in capsys.readouterr().err
