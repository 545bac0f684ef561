"""Files of scores are judged as the cells of a study with the same values are."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli.main import main
from attnlab.stats.paired import interval

LOSS = ("--metric", "loss", "--direction", "min")
BEFORE, AFTER = [2.31, 2.35, 2.28, 2.40, 2.33], [2.25, 2.30, 2.21, 2.35, 2.26]
Out = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, values: list[Any], key: str = "seed", separator: str = ",") -> str:
    rows = "".join(f"{i}{separator}{value}\n" for i, value in enumerate(values))
    Path(name).write_text(f"{key}{separator}loss\n{rows}", encoding="utf-8")
    return name


def test_the_difference_is_that_of_pairs(here: Path, capsys: Out) -> None:
    files = [write("before.csv", BEFORE), write("after.tsv", AFTER, separator="\t")]
    assert main(["compare", *files, *LOSS, "--json", "--exit-verdict"]) == 0
    baseline, row = json.loads(capsys.readouterr().out)["cells"]
    expected = interval([after - before for before, after in zip(BEFORE, AFTER, strict=True)])
    assert (baseline["cell"], row["cell"], row["verdict"]) == ("before", "after", "better")
    assert [row["difference"], row["low"], row["high"]] == pytest.approx([expected.mean, expected.low, expected.high])
    assert main(["compare", *files[::-1], *LOSS, "--exit-verdict"]) == 10, "the other way round, nothing is better"
    assert main(["compare", *files[::-1], *LOSS]) == 0


def test_rows_are_paired_by_several_columns(here: Path, capsys: Out) -> None:
    rows = [{"doc_id": i, "filter": name, "acc": i % 2} for i in range(9) for name in ("strict", "flexible")]
    for name in ("a.jsonl", "b.jsonl"):
        Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    words = ["compare", "a.jsonl", "b.jsonl", "--metric", "acc", "--direction", "max"]
    assert main(words) == 2
    assert "a.jsonl:2: expected each doc_id once" in capsys.readouterr().err
    assert main([*words, "--by", "doc_id,filter"]) == 0
    assert "paired by doc_id, filter" in capsys.readouterr().out


def test_samples_are_paired_by_item_in_any_order(here: Path, capsys: Out) -> None:
    rows = [{"doc_id": i, "doc": {"text": "x"}, "acc": i % 3 == 0} for i in range(30)]
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    Path("b.jsonl").write_text("".join(f"{json.dumps(row | {'acc': 1.0})}\n" for row in reversed(rows[:28])), encoding="utf-8")
    assert main(["compare", "a.jsonl", "b.jsonl", "--metric", "acc", "--direction", "max"]) == 0
    out = capsys.readouterr().out
    assert "note: b has 28 of 30 rows" in out
    line = next(line for line in out.splitlines() if line.startswith("b "))
    assert "0.6429" in line, "18 of 28 are wrong in the first file"


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("seed,los\n0,1\n", LOSS, "b.csv:2: expected 'loss' (did you mean 'los'?), got seed, los"),
        ("run,loss\n0,1\n", LOSS, "expected rows that all have one of seed, doc_id"),
        ("run,loss\n0,1\n", (*LOSS, "--by", "seed"), "b.csv:2: expected 'seed', got run, loss"),
        ("seed,loss\n0,1\n0,2\n", LOSS, "b.csv:3: expected each seed once, got 0 again"),
        ("seed,loss\n0,nan\n", LOSS, "b.csv:2: expected a finite number as 'loss', got 'nan'"),
        ("seed,loss\n0,1e300\n", LOSS, "b.csv:2: expected a finite number"),
        ("seed,loss\n0,1_0\n", LOSS, "b.csv:2: expected a finite number"),
        ("seed,loss\n0,\n", LOSS, "b.csv:2: expected a value of 'loss', got none"),
        ("seed,loss\n0,1,91\n", LOSS, "b.csv:2: expected 2 values, got more"),
        ("seed,loss,loss\n0,1,2\n", LOSS, "b.csv:1: expected different headings"),
        ("seed,loss\n0.0,1\n1.0,2\n", LOSS, "the same seed in both files; the first is '0' in a and '0.0' in b"),
        ("", LOSS, "the first is '0' in a and 'none' in b"),
        ("seed,loss\n0,1\n1,2\n", (*LOSS, "--margin", "-1"), "expected a margin above 0, got -1.0"),
        ("seed,loss\n0,1\n1,2\n", (*LOSS, "--margin", "inf"), "expected a margin above 0, got inf"),
        ("seed,loss\n0,1\n1,2\n", ("--metric", "state", "--direction", "min"), "expected another name than 'state'"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(here: Path, capsys: Out, content: str, words: Any, message: str) -> None:
    Path("b.csv").write_text(content, encoding="utf-8")
    assert main(["compare", write("a.csv", BEFORE), "b.csv", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_files_that_are_no_tables_are_named(here: Path, capsys: Out) -> None:
    number = b'{"seed": 1, "loss": 1' + b"0" * 400 + b"}\n"
    for name, content in (
        ("a.jsonl", b"[1]\n"),
        ("a.jsonl", b"{\n"),
        ("a.jsonl", number),
        ("a.csv", b"\xff\xfe\n0"),
        ("c", None),
    ):
        if content is not None:
            Path(name).write_bytes(content)
        assert main(["compare", name, write("b.csv", BEFORE), *LOSS]) == 2
        error = capsys.readouterr().err
        assert name in error and error.count("\n") == 1
    assert main(["compare", "b.csv", "b.csv", *LOSS]) == 2


def test_what_other_programs_write_is_read(here: Path, capsys: Out) -> None:
    rows = "".join(f"{i}, {value}\r\n" for i, value in enumerate(BEFORE))
    Path("a.csv").write_bytes(f"\ufeffseed, loss\r\n{rows}\r\n".encode())
    rows = "".join(f"{json.dumps({'seed': i, 'loss': value})}\n" for i, value in enumerate(AFTER))
    Path("b.NDJSON").write_bytes(f"\ufeff{rows}\n".encode())
    assert main(["compare", "a.csv", "b.NDJSON", *LOSS, "--exit-verdict"]) == 0
    files = [write("c.csv", [True, False, True, True, False]), write("d.csv", [True] * 5)]
    assert main(["compare", *files, "--metric", "loss", "--direction", "max"]) == 0
    assert "0.6000" in capsys.readouterr().out, "three of five are true"


def test_a_file_that_lost_rows_has_no_verdict(here: Path, capsys: Out) -> None:
    files = [write("a.csv", BEFORE), write("b.csv", AFTER[:2]), write("c.csv", AFTER)]
    assert main(["compare", *files, *LOSS, "--json", "--exit-verdict"]) == 10
    answer = json.loads(capsys.readouterr().out)
    verdicts = {row["cell"]: (row["verdict"], row["seeds"]) for row in answer["cells"]}
    assert verdicts["b"][0] != "better" and verdicts["c"] == ("better", 5)
    assert "b has 2 of 5 rows" in answer["notes"]


def test_all_files_are_paired_by_the_same_column(here: Path, capsys: Out) -> None:
    rows = [{"seed": 7 - i, "doc_id": i, "loss": loss} for i, loss in enumerate(BEFORE)]
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    rows = [{"doc_id": i, "loss": loss} for i, loss in enumerate(AFTER)]
    Path("b.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    assert main(["compare", "a.jsonl", "b.jsonl", *LOSS, "--json", "--exit-verdict"]) == 0
    assert "rows are paired by doc_id" in json.loads(capsys.readouterr().out)["notes"][0]
