"""Tests that records are data: one that cannot be read is named and left out, and no code runs because a record names it."""

import json
import re
from pathlib import Path

import pytest
from mlflow import MlflowClient

from attnlab.cli.main import main
from attnlab.study.run import run
from attnlab.tracking import record
from attnlab.tracking.client import connect
from attnlab.tracking.record import DamagedRecord, RunRecord, StudyRecord
from attnlab.tracking.runs import find_experiment, load_runs
from tests.support.stored_studies import store_study

COMMAND = {"command": "a {kind}", "values": {"kind": 1}, "env": {}, "files": {}}
OWN = {"task": {"name": "pydocs"}, "data": "", "train": {}, "evaluate": {}, "variant": {"name": "dense"}, "seed": 0}
RUN = {
    "attnlab.fingerprint": "0123abcd",
    "attnlab.cell": "dense",
    "attnlab.seed": "0",
    "attnlab.axes": '{"variant": "dense"}',
    "attnlab.config": json.dumps(COMMAND),
}
GOOD = [
    ("attnlab.fingerprint", "refused-0123"),
    ("attnlab.commit", "0123456789ab+dirty"),
    ("attnlab.folder", "work/0123abcd.89ab"),
    ("attnlab.failures", ""),
    ("attnlab.cell", "[dense, no_wo]"),
    ("attnlab.config", json.dumps(OWN)),
]
BAD = [
    *(("attnlab.fingerprint", text) for text in ("", "..", "../x", "/etc", "a/b", "a\0", "x" * 300, ".hidden", "a\n")),
    *(("attnlab.folder", text) for text in ("", "/etc", "../x", "work/../x", "work/", "work/a/b")),
    *(("attnlab.seed", text) for text in ("", "x", "-1", "9" * 30)),
    *(("attnlab.axes", text) for text in ("[]", "3", "{")),
    *(("attnlab.config", text) for text in ("", "[]", "{}", "null", '{"task": 3}', '{"command": []}', "[" * 5_000)),
    ("attnlab.commit", "x; rm -rf /"),
]
BAD_OF_STUDY = [
    ("attnlab.study", "../x"),
    ("attnlab.comparisons", "{}"),
    ("attnlab.futile.0a", "{"),
    ("attnlab.call.0000", "[]"),
]


@pytest.mark.parametrize(("tag", "text"), GOOD)
def test_a_record_fits_its_schema(tag: str, text: str) -> None:
    assert RunRecord.of_tags(RUN).seed == 0 and RunRecord.of_tags({**RUN, tag: text}).tags[tag] == text


@pytest.mark.parametrize(("tag", "text"), BAD)
def test_a_damaged_tag_of_a_run_is_named(tag: str, text: str) -> None:
    with pytest.raises(DamagedRecord) as damaged:
        RunRecord.of_tags({**RUN, tag: text})
    assert f" {tag} " in str(damaged.value) and "\n" not in str(damaged.value)


def test_a_missing_tag_is_named() -> None:
    with pytest.raises(DamagedRecord, match="attnlab.config is missing"):
        RunRecord.of_tags({tag: text for tag, text in RUN.items() if tag != "attnlab.config"})


@pytest.mark.parametrize(("tag", "text"), BAD_OF_STUDY)
def test_a_damaged_tag_of_a_study_is_named(tag: str, text: str) -> None:
    with pytest.raises(DamagedRecord, match=f" {tag} "):
        StudyRecord.of_tags({tag: text})


@pytest.mark.parametrize("name", ["étude-\udcff", "\\udcff", "\ud83d\ude00", "\\\udcff"])
def test_a_name_of_any_bytes_fits(name: str) -> None:
    call = {"command": f"attnlab run {name}.yaml", "file": f"{name}.yaml", "text": ["0a", 1]}
    StudyRecord.of_tags({"attnlab.text.0a.0": "", "attnlab.call.0000": json.dumps(call)})
    config = {**COMMAND, "files": {f"{name}.py": "0a"}, "env": {"A": name}}
    tags = {**RUN, "attnlab.config": json.dumps(config), "attnlab.axes": json.dumps({"kind": name})}
    assert RunRecord.of_tags(tags).axes == json.loads(tags["attnlab.axes"])


def test_a_record_is_read_as_data(root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The class that it names is not imported, and a damaged run is left out with one line."""
    monkeypatch.chdir(root.parent)
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    Path("train.py").write_text("print('{\"score\": 1}')\n", encoding="utf-8")
    Path("evil.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    program = {"command": "python train.py {how} {seed}", "grid": {"how": ["a", "b"]}, "baseline": {"how": "a"}}
    run({"study": "s", **program, "seeds": [0, 1], "metric": {"name": "score", "direction": "max"}}, root=root)
    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    first, *_ = client.search_runs([find_experiment(connect(root), "s").experiment_id])
    client.set_tag(first.info.run_id, "attnlab.axes", '{"how": "a", "task": "evil.py:Task"}')
    assert main(["report", "s"]) == 0 and not Path("ran").exists()
    client.set_tag(first.info.run_id, "attnlab.fingerprint", "../../outside")
    assert len(load_runs("s", root)) == 3 and caplog.text.count("is damaged") == 1


def test_a_name_that_is_not_utf8_is_escaped_in_the_table_of_runs(root: Path) -> None:
    """JSON holds it as a lone surrogate, which a column of texts cannot hold."""
    store_study(root, "s", {"dense": {0: 1.0}, "no_wo": {0: 1.2}})
    client, runs = connect(root), load_runs("s", root).set_index("cell")
    client.set_tag(str(runs["run_id"]["dense"]), "attnlab.axes", json.dumps({"variant": "\udcff", "\udcfe": 1}))
    row = load_runs("s", root).set_index("cell").loc["dense"]
    assert row["variant"] == "\\udcff" and row["\\udcfe"] == 1


def test_no_other_module_names_a_tag() -> None:
    tags = [re.escape(str(field.alias)) for kind in (RunRecord, StudyRecord) for field in kind.model_fields.values()]
    named = re.compile(rf"""["'`](?:{"|".join(tag for tag in tags if "." in tag)})["'`]""")
    package = Path(record.__file__).parents[1]
    others = [path for path in package.rglob("*.py") if path != Path(record.__file__)]
    assert len(others) > 300 and not [path.name for path in others if named.search(path.read_text(encoding="utf-8"))]
