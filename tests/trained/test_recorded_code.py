"""Tests of code that a record names: it is refused in one line, and never run, unless the user names it, too."""

import sys
from pathlib import Path

import pytest

import attnlab
from attnlab._util.code_digest import code_digest, module_digest
from attnlab.cli import main
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.study import run
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.tasks.pydocs import PyDocs
from attnlab.trained import model as trained
from attnlab.trained.attention_maps import record_attention_maps
from attnlab.training import weights
from tests.support.paths import ROOT
from tests.support.small_runs import tiny
from tests.support.studies import COSINE, STUDY, write

HOSTILE = "from pathlib import Path\nPath(__file__).with_name('it_was_run').touch()\n"


def foreign(folder: Path, *, code: str = HOSTILE + COSINE, **changes: object) -> Path:
    """Write the folder of a run of another user, whose variant is in a file, and return the folder."""
    path = write(folder, code, name="theirs.py")
    named = {"variant": f"{path}:Cosine", "sources": {str(path): code_digest(path)}, "position": "none"}
    config = tiny(**{**named, **changes})
    plain = config.replace({"variant": "no_wo", "task": tiny().task.model_dump(), "sources": {}})
    weights.save(build(plain, PyDocs(length=24, sampling="contiguous")), config, folder)
    return folder


def was_run(folder: Path) -> bool:
    return (folder / "it_was_run").exists()


def test_recorded_code_is_refused_with_the_file_and_run_if_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = foreign(tmp_path / "theirs")
    assert main.main(["generate", str(folder), "--prompt", "a", "--length", "2"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"--imports {folder}/theirs.py" in error and not was_run(folder)
    assert main.main(["generate", str(folder), "--prompt", "a", "--length", "2", "--imports", str(folder / "theirs.py")]) == 0
    assert was_run(folder)


def test_a_module_is_not_imported_unless_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages that contain it are not imported either."""
    package = tmp_path / "theirs_lab"
    write(package, HOSTILE, name="__init__.py")
    path = write(package, COSINE.replace("NAME", "other_cosine"), name="mine.py")
    monkeypatch.syspath_prepend(tmp_path)
    digest = module_digest("theirs_lab.mine", path)
    changes = {"variant": "theirs_lab.mine:Cosine", "sources": {}, "packages": {"theirs_lab.mine": digest}}
    folder = foreign(tmp_path / "theirs", **changes)
    with pytest.raises(UserError, match=r"theirs_lab\.mine"):
        trained.load_model(folder)
    assert not was_run(package)
    path.write_text(COSINE.replace("NAME", "other_cosine") + "x = 1\n")
    with pytest.raises(UserError, match="changed"):
        trained.load_model(folder, imports=["theirs_lab.mine"])
    assert not was_run(package)
    path.write_text(COSINE.replace("NAME", "other_cosine"))
    assert trained.load_model(folder, imports=["theirs_lab.mine"])("abc").shape == (1, 3, 256)


def test_code_is_loaded_as_it_was_trained_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment does not change it, a helper does."""
    here, there, others = tmp_path / "here", tmp_path / "there", set(sys.modules)
    code = "import helper\n" + COSINE.replace('@register_variant("NAME")\n', "")
    write(here, "POWER = 3\n", name="helper.py")
    write(here, code, name="mine.py")
    study = write(here, STUDY.replace("dense, no_wo, {name: strided_sparse, stride: 7}", "dense, mine.py:Cosine"))
    study.write_text(study.read_text().replace("[3, 5]", "[3]").replace("baseline: {variant: dense}", ""))
    assert run.run(study, root=here / "runs", display=ProgressDisplay(quiet=True), reference_scores=False).ok
    assert trained.load_model("s/Cosine/3", root=here / "runs")("abc").shape == (1, 3, 256), "this process has imported it"
    here.rename(there)
    root, mine = there / "runs", there / "mine.py"

    def forget() -> None:
        for name in [name for name in sys.modules if name.startswith("attnlab_user_") and name not in others]:
            del sys.modules[name]
        monkeypatch.setattr("attnlab._util.user_code._stamps", {})

    forget()
    with pytest.raises(UserError, match=r"--imports mine\.py"):
        trained.load_model("s/Cosine/3", root=root)
    loaded = trained.load_model("s/Cosine/3", root=root, imports=[mine])
    assert loaded("abc").shape == (1, 3, 256) and loaded.config.variant.name == f"{mine}:Cosine"  # type: ignore[union-attr]
    forget()
    write(there, f"# a comment\n{code}", name="mine.py")
    assert trained.load_model("s/Cosine/3", root=root, imports=[mine])("abc").shape == (1, 3, 256)
    forget()
    write(there, "POWER = 4\n", name="helper.py")
    with pytest.raises(UserError, match=r"helper\.py.*changed"):
        trained.load_model("s/Cosine/3", root=root, imports=[mine])
    recorded = {outcome.cell: outcome for outcome in record_attention_maps("s", length=5, root=root, imports=[mine])}
    assert recorded["Cosine"].failed and "changed" in recorded["Cosine"].outcome
    assert not recorded["dense"].failed, "the other cells continue"
    with pytest.raises(UserError, match="does not exist"):
        trained.load_model("s/Cosine/3", root=root, imports=[tmp_path / "mine.py"])


def test_the_file_of_a_component_is_checked_and_found_where_it_has_moved(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, (ROOT / "examples" / "my_component" / "head_scale.py").read_text().replace("@register", "# "), name="mine.py")
    entry = "{name: dense, with: [{name: mine.py:HeadScale, start: 0.5}]}"
    text = STUDY.replace("dense, no_wo, {name: strided_sparse, stride: 7}", entry).replace("[3, 5]", "[3]")
    study = write(here, text.replace("baseline: {variant: dense}\n", ""))
    options = {"display": ProgressDisplay(quiet=True), "reference_scores": False}
    first = run.run(study, root=here / "runs", **options)
    assert first.ok and [row.name for row in first.rows] == ["dense with HeadScale start=0.5 s3"]
    here.rename(there)
    folder, imports = next((there / "runs" / "work").iterdir()), [there / "mine.py"]
    assert run.run(there / study.name, root=there / "runs", **options).rows[0].reused
    loaded = trained.load_model(folder, imports=imports)
    assert loaded("abc").shape == (1, 3, 256)
    assert loaded.config.variant is not None and loaded.config.variant.components[0].name == f"{there}/mine.py:HeadScale"
    imports[0].write_text(imports[0].read_text().replace("self.gain * y", "self.gain + y"))
    with pytest.raises(UserError, match=r"mine\.py.*changed"):
        trained.load_model(folder, imports=imports)
    assert not run.run(there / study.name, root=there / "runs", **options).rows[0].reused


def test_a_plan_runs_helpers_in_worker_processes_and_counts_them(tmp_path: Path) -> None:
    write(tmp_path, "POWER = 3\n", name="helper.py")
    write(tmp_path, "import helper\n" + COSINE, name="mine.py")
    base = {"task": {"name": "pydocs", "length": 24}, "model": {"dim": 12, "depth": 1, "heads": 2}, "train": {"steps": 1}}
    study = {"study": "s", "base": base, "grid": {"variant": [f"{tmp_path}/mine.py:Cosine"]}}

    def fingerprint() -> str:
        return attnlab.plan(study).runs[0].fingerprint

    first = fingerprint()
    write(tmp_path, '"""Helpers."""\n\nPOWER = 3  # three\n', name="helper.py")
    assert fingerprint() == first
    write(tmp_path, "POWER = 4\n", name="helper.py")
    assert fingerprint() != first


def test_a_model_in_a_file_of_its_own_reaches_workers_and_counts(tmp_path: Path) -> None:
    model = "from attnlab import register_model\nfrom attnlab.models.classifier import Classifier\n\n\n"
    model += '@register_model("wide_model")\nclass WideModel(Classifier):\n    WIDTH = 3\n'
    write(tmp_path, model, name="model.py")
    write(tmp_path, "from tests.support.small_runs import Reviews\n\n\nclass Mine(Reviews):\n    pass\n", name="task.py")
    text = STUDY.replace("name: pydocs", "name: task.py:Mine").replace("study: s\n", "study: s\nimports: [model.py]\n")
    text = text.replace("model: {", "model: {name: wide_model, ")
    text = (
        text.replace(", no_wo, {name: strided_sparse, stride: 7}", "").replace("[3, 5]", "[3]").replace("steps: 5", "steps: 1")
    )
    study, root = write(tmp_path, text), tmp_path / "runs"
    result = run.run(study, root=root, display=ProgressDisplay(quiet=True), reference_scores=False)
    assert result.ok, result.rows[0].reason
    assert type(trained.load_model("s/dense/3", root=root).model).__name__ == "WideModel"
    write(tmp_path, model.replace("WIDTH = 3", "WIDTH = 4"), name="model.py")
    assert attnlab.plan(study).runs[0].key != result.plan.runs[0].key


@pytest.mark.parametrize(
    ("kind", "path"), [("task", "task"), ("variant", "variant"), ("component", "variant.with"), ("position", "position")]
)
def test_a_class_of_another_kind_is_not_called(kind: str, path: str, tmp_path: Path) -> None:
    """A constructor such as that of subprocess.Popen could do anything."""
    import subprocess  # noqa: F401 loaded: importing it runs nothing

    named = {"name": "subprocess:Popen", "args": ["touch", str(tmp_path / "it_was_run")]}
    folder = foreign(tmp_path / "theirs", variant="no_wo", sources={})
    config = RunConfig.from_json((folder / "config.json").read_text()).replace({path: named})
    weights.save(trained.load_model(folder).model, config, folder)
    with pytest.raises(UserError, match=f"{kind}.*Popen"):
        trained.load_model(folder)
    assert not (tmp_path / "it_was_run").exists()


def test_damage_is_found_before_code_is_run(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "theirs")
    contents = bytearray((folder / "model.safetensors").read_bytes())
    contents[-1] ^= 1
    (folder / "model.safetensors").write_bytes(contents)
    with pytest.raises(UserError, match="damaged"):
        trained.load_model(folder, imports=[folder / "theirs.py"])
    assert not was_run(folder)


def test_a_file_without_a_digest_is_refused(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "theirs", sources={})
    with pytest.raises(UserError, match=r"theirs\.py"):
        trained.load_model(folder, imports=[folder / "theirs.py"])
    assert not was_run(folder)
