"""Bundles carry the record of a study unchanged; merged, they give the verdicts of all seeds, and any difference is named."""

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from mlflow import MlflowClient

import attnlab
from attnlab.cli.main import main
from attnlab.errors import UserError
from attnlab.extras.sharing.bundle import MANIFEST, Bundle, read_bundle, write_archive, write_bundle
from attnlab.extras.sharing.merge import merge
from attnlab.study.looks import looks_in
from attnlab.study.run import run
from attnlab.tracking.client import connect
from attnlab.tracking.runs import find_experiment, load_curves, load_runs
from attnlab.tracking.tags import to_yaml
from attnlab.training import weights
from tests.study.test_looks import spec_of
from tests.study.test_study import QUIET, study

CONFIG = study(grid={"variant": ["dense", "narrow"], "position": ["learned"]}, baseline={"variant": "dense"}, margin=0.1)
OWN = '''from attnlab.variants.dense import Dense


class Own(Dense):
    """Of this test."""
'''

Person = Callable[..., Bundle]


@pytest.fixture(scope="module")
def trained() -> dict[tuple[str, ...], Path]:
    """Seeds and options of the study -> a folder in which it was run with them."""
    return {}


@pytest.fixture
def person(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    trained: dict[tuple[str, ...], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Person:
    """Return a function that runs the study in a folder of its own, or copies one in which it was run, and bundles it."""
    fake = partial(run, display=QUIET, train="tests.support.study_fakes:settling")
    monkeypatch.setattr("attnlab.study.run.run", fake)

    def runs(name: str, seeds: str, *words: str, config: dict[str, Any] = CONFIG) -> Bundle:
        folder, key = tmp_path / name, (seeds, *words)
        if is_run := config is CONFIG and key in trained:
            shutil.copytree(trained[key], folder, dirs_exist_ok=True)
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("ATTNLAB_RUNS", "runs")
        (folder / "small.yaml").write_text(to_yaml(config))
        if not is_run:
            assert main(["run", "small.yaml", "--no-check", "--seeds", seeds, *words]) in (0, 1)
        if config is CONFIG and not is_run:
            trained[key] = shutil.copytree(folder, tmp_path_factory.mktemp("trained") / "person")
        return write_bundle("small", f"{name}.zip")

    return runs


def scores(root: Path) -> dict[tuple[str, int], tuple[Any, ...]]:
    runs = load_runs("small", root)
    kept = runs[["cell", "seed", "fingerprint", "bits_per_byte", "state", "seconds", "commit", "train.lr"]]
    return {(row[0], row[1]): tuple(row[2:]) for row in kept.itertuples(index=False)}


def test_merged_seeds_are_those_of_one_study(person: Person, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundles = [person("anne", "0-2"), person("bob", "3-5")]
    files = [str(bundle.path.resolve()) for bundle in (read_bundle(tmp_path / f"{b.path.stem}/{b.path}") for b in bundles)]
    person("alone", "0-5")
    root = tmp_path / "merged"
    merged = merge(files, root=root)
    assert (merged.runs, merged.seeds, merged.repeated) == (12, [0, 1, 2, 3, 4, 5], [])
    of_each = scores(tmp_path / "anne/runs") | scores(tmp_path / "bob/runs")
    assert scores(root) == of_each, "times, states and commits are those of the persons"
    alone = {key: values[:2] for key, values in scores(tmp_path / "alone/runs").items()}
    assert {key: values[:2] for key, values in of_each.items()} == alone
    assert len(load_curves("small", root)) == len(load_curves("small", tmp_path / "alone/runs")) > 0
    assert [seeds for seeds, _ in looks_in(find_experiment(connect(root), "small").tags).study] == [3, 3], "the looks of both"
    capsys.readouterr()


def test_the_command_prints_digests_and_the_report_is_judged_anew(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, seeds in (("anne", "0-2"), ("bob", "3-5")):
        person(name, seeds)
        shutil.copy(f"{name}.zip", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", "merged")
    capsys.readouterr()
    digests = [read_bundle(f"{name}.zip").digest for name in ("anne", "bob")]
    for words, message in (
        (digests[::-1], "anne.zip: expected the digest"),
        (digests[:1], "one digest for each"),
        (["12"] * 2, "16"),
    ):
        assert main(["merge", "anne.zip", "bob.zip", "--sha256", ",".join(words)]) == 2
        assert message in capsys.readouterr().err
    assert main(["merge", "anne.zip", "bob.zip"]) == 0
    out = capsys.readouterr().out
    assert "small: 12 runs, seeds 0, 1, 2, 3, 4, 5" in out
    assert f"anne.zip: 6 runs, SHA-256 {digests[0]}" in out
    page = Path("runs/reports/small/README.md").read_text(encoding="utf-8")
    repeat = f"attnlab merge anne.zip bob.zip --sha256 {digests[0][:16]},{digests[1][:16]}"
    assert repeat in page
    assert [(looks.first, looks.further) for looks in [spec_of(tmp_path / "merged").looks]] == [(3, (6,))]
    monkeypatch.setenv("ATTNLAB_RUNS", "repeated")
    assert main(repeat.split()[1:]) == 0, "the command on the page"
    monkeypatch.setenv("ATTNLAB_RUNS", "merged")
    assert main(["merge", "anne.zip"]) == 2
    assert "expected no study 'small' in" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "bob/small.yaml"), "--seeds", "0-5"]) == 0
    assert len(load_runs("small", "merged")) == 12, "a merged study is continued as any other: nothing was trained again"


def test_a_run_in_two_bundles_is_taken_from_the_first_that_completed_it(person: Person, tmp_path: Path) -> None:
    first, second = person("anne", "0-1").path.resolve(), person("bob", "1-2").path.resolve()
    merged = merge([first, second], root=tmp_path / "merged")
    assert merged.seeds == [0, 1, 2] and merged.repeated == ["dense learned s1", "narrow learned s1"]
    taken, annes = scores(tmp_path / "merged"), scores(tmp_path / "anne/runs")
    assert [taken[key] for key in annes] == list(annes.values())


def test_bundles_of_other_questions_are_refused(person: Person, tmp_path: Path) -> None:
    anne = person("anne", "0-1").path.resolve()
    bob = person("bob", "2-3", config=CONFIG | {"margin": 0.2})
    with pytest.raises(UserError, match=r"asks another question than .*anne.zip: margin 0.2 instead of 0.1"):
        merge([anne, bob.path], root=tmp_path / "merged")
    write_archive(tmp_path / "other.zip", {"study": "other"}, read_bundle_files(anne))
    with pytest.raises(UserError, match=r"expected bundles of one study, got 'small' \(.*anne.zip\) and 'other'"):
        merge([anne, tmp_path / "other.zip"], root=tmp_path / "merged")
    assert not (tmp_path / "merged/mlflow.db").exists()


def test_models_travel_when_the_bundle_was_asked_to_carry_them(person: Person, tmp_path: Path) -> None:
    person("anne", "0-0")
    for n, folder in enumerate(load_runs("small", tmp_path / "anne/runs")["folder"]):
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in weights.FILES:
            Path(folder, name).write_bytes(f"{name} {n}".encode())
    assert not write_bundle("small", "bare.zip").models
    write_bundle("small", "whole.zip", with_weights=True)
    merge(["whole.zip"], root=tmp_path / "merged")
    for n, folder in enumerate(load_runs("small", tmp_path / "merged")["folder"]):
        assert [Path(folder, name).read_bytes().decode() for name in weights.FILES] == [f"{name} {n}" for name in weights.FILES]


def test_another_configuration_is_named(person: Person, tmp_path: Path) -> None:
    anne = person("anne", "0-1").path.resolve()
    bob = person("bob", "2-3", "--set", "train.lr=0.5")
    with pytest.raises(UserError, match=r"bob.zip: 'dense learned' is not the cell of .*: train.lr 0.5 instead of 0.0"):
        merge([anne, bob.path], root=tmp_path / "merged")


def test_bundles_of_machines_that_chose_differently_are_joined_when_asked(person: Person, tmp_path: Path) -> None:
    """As in an array of jobs of different sizes: pairs are made within a seed, so within a machine."""
    anne = person("anne", "0-1", "--set", "machine.threads=1").path.resolve()
    bob = person("bob", "2-3", "--set", "machine.threads=2").path.resolve()
    with pytest.raises(UserError, match=r"bob.zip: .* machine.threads 2 instead of 1 \(chosen by the machine"):
        merge([anne, bob], root=tmp_path / "merged")
    merged = merge([anne, bob], mixed_machines=True, root=tmp_path / "merged")
    assert (merged.runs, merged.seeds) == (8, [0, 1, 2, 3])
    assert scores(tmp_path / "merged") == scores(tmp_path / "anne/runs") | scores(tmp_path / "bob/runs")
    assert attnlab.verdicts("small", root=tmp_path / "merged")["seeds"].tolist() == [4, 4], "paired within each seed"
    again = person("carol", "1-4", "--set", "machine.threads=2").path.resolve()
    with pytest.raises(UserError, match=r"expected each seed in one bundle, got 1 in"):
        merge([anne, again], mixed_machines=True, root=tmp_path / "other")
    other = person("dora", "5-6", "--set", "machine.threads=2", "--set", "train.lr=0.5").path.resolve()
    with pytest.raises(UserError, match=r"train.lr 0.5 instead of 0.0"):
        merge([anne, other], mixed_machines=True, root=tmp_path / "other")


def test_code_of_own_variants_travels_and_must_agree(person: Person, tmp_path: Path) -> None:
    config = CONFIG | {"grid": {"variant": ["dense", "own.py:Own"]}}
    for name, code in (
        ("anne", OWN),
        ("bob", OWN.replace("Of this test", "Another comment")),
        ("eve", f"{OWN}\n    heads = 3\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.py").write_text(code)
    anne = person("anne", "0-1", config=config)
    with ZipFile(anne.path) as archive:
        (member,) = [name for name in archive.namelist() if name.startswith("code/")]
        assert member.endswith("/own.py") and archive.read(member).decode() == OWN
    first = anne.path.resolve()
    bob = person("bob", "2-3", config=config).path.resolve()
    assert merge([first, bob], root=tmp_path / "merged").seeds == [0, 1, 2, 3], "comments are no code"
    eve = person("eve", "2-3", config=config).path.resolve()
    with pytest.raises(UserError, match=r"eve.zip: 'Own' is not the cell of .*anne.zip: code \w{12} instead of \w{12}"):
        merge([first, eve], root=tmp_path / "again")
    (tmp_path / "eve/own.py").write_text(OWN)
    with pytest.raises(UserError, match=r"own.py has changed"):
        write_bundle("small", "changed.zip")
    (tmp_path / "eve/own.py").unlink()
    with pytest.raises(UserError, match=r"expected the file .*own.py, which the runs of small used"):
        write_bundle("small", "gone.zip")


PROGRAM = """import sys
print('{"score": %s}' % (int(sys.argv[2]) + len(sys.argv[1])))
"""


def _packed(path: Path) -> set[str]:
    with ZipFile(path) as archive:
        return {name for name in archive.namelist() if name.startswith(("code/", "data/"))}


def test_a_study_of_a_program_is_merged_with_its_code_and_data_only_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    config = {
        "study": "small",
        "command": "python p.py {size} {seed}",
        "grid": {"size": ["a", "bb"]},
        "baseline": {"size": "a"},
        "files": ["**/*.py", "credentials.json", "patients.csv"],
    }
    for name, seeds in (("anne", "0-1"), ("bob", "2-3")):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("ATTNLAB_RUNS", "runs")
        Path("p.py").write_text(PROGRAM, encoding="utf-8")
        Path("lib").mkdir()
        Path("lib/net.py").write_text("x = 1\n", encoding="utf-8")
        for private in ("credentials.json", "patients.csv"):
            Path(private).write_text("{}", encoding="utf-8")
        Path("s.yaml").write_text(to_yaml(config | {"metric": {"name": "score", "direction": "max"}}), encoding="utf-8")
        assert main(["run", "s.yaml", "--seeds", seeds, "--no-report"]) == 0
        paths.append(write_bundle("small").path.resolve())
    code = {"code/p.py", "code/lib/net.py"}
    assert _packed(paths[0]) == code, "no data"
    capsys.readouterr()
    assert main(["bundle", "small", "--data"]) == 0
    assert _packed(Path("small.zip")) == code | {"data/credentials.json", "data/patients.csv"}
    listed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert {*code, "data/credentials.json", "data/patients.csv", "study.json", "study.yaml"} <= {*listed}
    assert "4 x runs/.../run.json" in listed
    assert merge(paths, root=tmp_path / "merged").seeds == [0, 1, 2, 3]
    scores = load_runs("small", tmp_path / "merged").groupby("cell")["score"].apply(list).to_dict()
    assert scores == {"a": [1, 2, 3, 4], "bb": [2, 3, 4, 5]}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / "anne/runs"))
    with pytest.raises(UserError, match="files"):  # of the study, which are not here
        write_bundle("small")
    monkeypatch.chdir(tmp_path / "anne")
    Path("p.py").write_text(f"{PROGRAM}x = 1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"expected p.py as the runs of small used it, in the working directory"):
        write_bundle("small")
    with pytest.raises(UserError, match=r"expected p.py"):
        write_bundle("small", announce=lambda names: pytest.fail("nothing is listed"))


def read_bundle_files(path: Path) -> dict[str, bytes]:
    with ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != MANIFEST}


def _edited_score(files: dict[str, bytes]) -> dict[str, bytes]:
    name = next(name for name in files if name.endswith("run.json"))
    fields = json.loads(files[name])
    fields["points"] = []
    return files | {name: json.dumps(fields).encode()}


TAMPERED: list[tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = [
    (_edited_score, "was changed after it was written: runs/0000/run.json"),
    (lambda files: {name: files[name] for name in list(files)[:-1]}, "was changed after it was written: "),
    (lambda files: files | {"more.txt": b""}, "was changed after it was written: more.txt"),
    (lambda files: files | {"../more.txt": b""}, "expected relative paths of files, got '../more.txt'"),
]


def test_a_changed_bundle_is_refused(person: Person, tmp_path: Path) -> None:
    path = person("anne", "0-1").path
    with ZipFile(path) as archive:
        manifest = archive.read(MANIFEST)
    for tamper, message in TAMPERED:
        with ZipFile(tmp_path / "changed.zip", "w") as archive:
            for name, content in {MANIFEST: manifest, **tamper(read_bundle_files(path))}.items():
                archive.writestr(name, content)
        with pytest.raises(UserError, match=message):
            read_bundle(tmp_path / "changed.zip")
    write_archive(tmp_path / "named.zip", {"study": "../../other"}, read_bundle_files(path))
    with pytest.raises(UserError, match=r"expected the name of a study, got '../../other'"):
        read_bundle(tmp_path / "named.zip")


HOSTILE: dict[str, list[Any]] = {
    "name": [3, None],
    "status": ["RUNNING", "", 3, None],
    "start": ["x", -1.5, None, 1e300],
    "end": ["x", None],
    "tags": [[], None, {"attnlab.seed": 3}, {}],
    "params": [[], None, {"a\0b": "x"}, {"../a": "x"}, {"x": 3}],
    "points": [
        3,
        None,
        [[1]],
        [["a", "x", 0, 0]],
        [["a//b", "1", 0, 0]],
        [["", "1", 0, 0]],
        [["a", "1", -1, 0]],
        [["a", "1", 0, "x"]],
    ],
    "datasets": [3, [["a"]], [[1, 2, 3, 4]]],
    "more": [1],
}


def test_a_hostile_bundle_is_refused_before_anything_is_written(person: Person, tmp_path: Path) -> None:
    """Its digests are right: somebody made it so. Each refusal is one line, and the store has no trace of it."""
    files = read_bundle_files(person("anne", "0-1").path)
    name = next(name for name in files if name.endswith("run.json"))
    run_fields, tags = json.loads(files[name]), json.loads(files["study.json"])
    hostile = [{name: json.dumps({**run_fields, field: value})} for field, values in HOSTILE.items() for value in values]
    hostile += [{name: text} for text in ("", "[]", "3", "[" * 9_000)] + [
        {"study.json": text} for text in ("", "[]", '{"a": 3}')
    ]
    hostile += [
        {name: json.dumps({**run_fields, "tags": {**run_fields["tags"], tag: text}})}
        for tag, text in (
            ("attnlab.fingerprint", "../../x"),
            ("attnlab.config", "{}"),
            ("attnlab.axes", "[]"),
            ("a" * 300, "x"),
            ("mine", "a surrogate: \ud800"),
            ("mine", "a NUL: \0"),
            ("\ud800", "x"),
        )
    ]
    items = {name: json.dumps({**run_fields, "tags": {**run_fields["tags"], "attnlab.items": "yes"}})}
    hostile += [items, items | {name.replace("run.json", "files/items.npz"): "no array"}]
    hostile += [
        {"study.json": json.dumps({**tags, tag: text})}
        for tag, text in (
            ("attnlab.comparisons", "{}"),
            ("attnlab.call.0000", '{"command": "x", "file": "y", "text": ["z", 1]}'),
            ("attnlab.call.0000", "[]"),
            ("attnlab.judged", "[3]"),
            ("attnlab.study", "../x"),
            ("x" * 300, "y"),
            ("y", "x" * 30_000),
            ("y", "\udcff"),
        )
    ]
    for changes in hostile:
        write_archive(
            tmp_path / "h.zip", {"study": "small"}, files | {key: str(text).encode() for key, text in changes.items()}
        )
        with pytest.raises(UserError, match="h.zip") as refused:
            merge([tmp_path / "h.zip"], root=tmp_path / "merged")
        assert "\n" not in str(refused.value) and not (tmp_path / "merged").exists(), changes


def test_a_killed_merge_leaves_nothing_visible(person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, root = person("anne", "0-1").path.resolve(), tmp_path / "merged"
    with monkeypatch.context() as killed:
        killed.setattr("mlflow.MlflowClient.rename_experiment", lambda *_: os._exit(9))
        merging = multiprocessing.get_context("fork").Process(target=merge, args=([path],), kwargs={"root": root})
        merging.start()
        merging.join()
    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    assert merging.exitcode == 9 and len(client.search_experiments(filter_string="name LIKE '%incomplete%'")) == 1
    assert merge([path], root=root).seeds == [0, 1]
    assert not client.search_experiments(filter_string="name LIKE '%incomplete%'")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"text", "expected a bundle of `attnlab bundle`, which is complete"), (None, "No such file|does not exist")],
)
def test_a_file_that_is_no_bundle_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(UserError, match=rf"x.zip: .*({message})"):
        read_bundle(tmp_path / "x.zip")


def test_a_bomb_is_refused_by_its_listing(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "bomb.zip", "w", ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, "{}")
        archive.writestr("zeros", bytes(200 << 20))
    with pytest.raises(UserError, match="unpacks to 210 MB"):
        read_bundle(tmp_path / "bomb.zip")
