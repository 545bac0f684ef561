"""Tests of resolving a cell: wrong names and options with places, refusals with reasons, the user's own files."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.planning.plan import plan
from attnlab.registry import VARIANTS
from tests.support.studies import COSINE, STUDY, misplanned, write

RECENCY = """
from attnlab.nn.layers import relative_distance
from attnlab.positions import Position


class Recency(Position):
    hook = "bias"

    def bias(self, q, k, *, scale):
        return -relative_distance(q.shape[-2], k.shape[-2], device=q.device).abs().log1p()
"""

MISTAKES = {
    "unknown variant": ("no_wo, ", "no_w, ", "9:20", "unknown variant 'no_w' (did you mean 'no_wo'?)"),
    "unknown position": (
        "learned",
        "learnt",
        "4:13",
        "unknown position scheme 'learnt' (did you mean 'learned'?)",
    ),
    "unknown task": ("name: pydocs", "name: pydoc", "3:16", "unknown task 'pydoc' (did you mean 'pydocs'?)"),
    "unknown backend": (
        "seeds:",
        "  backend: [sdpaa]\nseeds:",
        "10:13",
        "unknown backend 'sdpaa' (did you mean 'sdpa'?)",
    ),
    "unknown metric": (
        "seeds:",
        "metric: acuracy\nseeds:",
        "10:9",
        "unknown metric 'acuracy': expected bits_per_byte",
    ),
    "a variant's wrong option": (
        "stride: 7",
        "strid: 7",
        "9:50",
        "no option 'strid' (did you mean 'stride'?)",
    ),
    "a class of another kind": (
        "no_wo, ",
        "attnlab.tasks.pydocs:PyDocs, ",
        "9:20",
        "expected a subclass of attnlab.variants.base.Variant, got PyDocs",
    ),
    "a module without a name": ("no_wo, ", '":x", ', "9:20", "cannot import module '' (ValueError: Empty module name)"),
    "a module that is no package": ("no_wo, ", "a.b:C, ", "9:20", "(ModuleNotFoundError: No module named 'a')"),
    "a file's name that is too long": ("no_wo, ", f"{'x' * 300}.py:C, ", "9:20", "cannot be looked up"),
    "a file of an unknown user": ("no_wo, ", "~nobody_here/x.py:C, ", "9:20", "cannot be looked up"),
    "an option of nobody": (
        "dense,",
        "{name: dense, x: 1},",
        "9:27",
        "variant dense has no option 'x'; it takes no options",
    ),
    "a task's wrong option": (
        "length: 24",
        "lenght: 24",
        "3:24",
        "no option 'lenght' (did you mean 'length'?)",
    ),
    "an option's type": (
        "stride: 7",
        "stride: seven",
        "9:58",
        "stride: expected a whole number, got 'seven'",
    ),
    "a task option's type": (
        "length: 24",
        "length: '24'",
        "3:32",
        "length: expected a whole number, got '24'",
    ),
    "a task option's range": (
        "length: 24",
        "length: 0",
        "3:32",
        "length: expected a whole number of at least 1, got 0",
    ),
    "a task option's choice": (
        "length: 24",
        "sampling: randm",
        "3:34",
        "got 'randm' (did you mean 'random'?)",
    ),
    "an import that is not there": (
        "base:",
        "imports: [cosin.py]\nbase:",
        "2:11",
        "expected a file, but there is no 'cosin.py' (did",
    ),
    "a path variant that is not there": (
        "no_wo,",
        "./cosin.py:Cosine,",
        "9:20",
        "variant: expected a file, but there is no",
    ),
    "a class that is not there": (
        "no_wo,",
        "./cosine.py:Cosin,",
        "9:20",
        "no class 'Cosin' (did you mean 'Cosine'?)",
    ),
    "a module that is not there": ("no_wo,", "no.such:Thing,", "9:20", "cannot import module 'no.such'"),
    "a text that is not there": (
        "pydocs",
        "text, path: boo.txt",
        "3:28",
        "task.path: expected a file, but there is no 'boo.txt'",
    ),
    "a text that is a folder": ("pydocs", "text, path: .", "3:28", "task.path: expected a file, got '.': it is a folder"),
    "a text without a path": ("pydocs", "text", "3:9", "task text requires the option 'path'"),
    "an option as an axis": (
        "seeds:",
        "  task.lenght: [3]\nseeds:",
        "10:3",
        "no option 'lenght' (did you mean 'length'?)",
    ),
    "an option's type as an axis": (
        "seeds:",
        "  task.length: [24, x]\nseeds:",
        "10:21",
        "expected a whole number, got 'x'",
    ),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(kind: str, tmp_path: Path) -> None:
    write(tmp_path, COSINE.replace("NAME", f"cosine of {kind}"), name="cosine.py")
    write(tmp_path, "words " * 500, name="book.txt")
    old, new, place, words = MISTAKES[kind]
    assert STUDY.count(old) == 1, f"{old!r} must stand once in the study"
    text = misplanned(write(tmp_path, STUDY.replace(old, new)))
    assert text.startswith(f"s.yaml:{place}: "), text
    assert words in text, text


def test_a_task_that_cannot_say_what_its_data_are_is_one_line(tmp_path: Path) -> None:
    write(tmp_path, "from attnlab.tasks import Task\n\n\nclass Mine(Task):\n    length = 7\n", name="mine.py")
    text = misplanned(write(tmp_path, STUDY.replace("{name: pydocs, length: 24}", "'mine.py:Mine'")))
    assert text.startswith("s.yaml:3:9: task Mine: expected identity()") and text.endswith("NotImplementedError (mine.py:4)")


def test_an_assignment_that_names_nothing(tmp_path: Path) -> None:
    assert misplanned(write(tmp_path, STUDY), sets={"position": "rotry"}).startswith(
        "position=rotry: unknown position scheme 'rotry' (did you mean 'rotary'?)"
    )


def test_what_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    text = STUDY.replace("  position: learned\n", "").replace(
        "seeds:", "  position: [learned, relative]\n  model.mem_len: [0, 8]\nseeds:"
    )
    planned = plan(write(tmp_path, text.replace("length: 24", "length: 24, sampling: contiguous")))
    refused = {cell.name: cell.refusal for cell, _ in planned.refused}
    assert "one position two meanings" in str(refused["dense learned mem_len=8"])
    assert "strided_sparse stride=7 relative mem_len=0" not in refused
    assert "does not support memory" in str(refused["strided_sparse stride=7 learned mem_len=8"])
    assert set(refused).isdisjoint({"dense learned mem_len=0", "dense relative mem_len=8"})
    assert all(run.cell.refusal is None for run in planned.runs)
    assert planned.refused[0][0].parameters is None
    assert planned.refused[0][1].seed == 3


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ({"backend": "xformers", "model.dim": 16}, "requires a CUDA device"),
        ({"model.mem_len": 8, "position": "rotary"}, "sampling: contiguous"),
        ({"evaluate": {"protocol": "sliding", "stride": 25}}, "evaluate.stride from 1 to the length 24"),
        (
            {
                "model.mem_len": 8,
                "position": "rotary",
                "task.sampling": "contiguous",
                "evaluate": {"protocol": "sliding", "stride": 8},
            },
            "sliding windows overlap",
        ),
        ({"task": "imdb", "model.tie_embeddings": True}, "model.tie_embeddings requires a model that predicts tokens"),
        ({"model.dim": 10, "model.heads": 2, "position": "rotary"}, "even head width, got 5"),
        ({"position": {"name": "rotary", "fraction": 0.3}}, "even number of features, got 0.3"),
        ({"position": {"name": "t5", "buckets": 1}}, "at least 2 buckets, got 1"),
        ({"model.dim": 13}, "13 is not divisible by 2 heads"),
    ],
)
def test_the_first_reason_is_named(sets: dict[str, Any], words: str, tmp_path: Path) -> None:
    dense = plan(write(tmp_path, STUDY), sets=sets, only={"variant": "dense"}).cells[0]
    assert words in str(dense.refusal)


def test_tied_embeddings_are_for_language_models(tmp_path: Path) -> None:
    path = write(tmp_path, STUDY.replace("seeds:", "  model.tie_embeddings: [false, true]\nseeds:"))
    apart, tied = plan(path, only={"variant": "dense"}).cells
    assert apart.refusal is None and tied.refusal is None and apart.parameters and tied.parameters
    assert apart.parameters - tied.parameters == 256 * 12, "one matrix for both"


def test_heads_of_the_full_width_need_not_divide_it(tmp_path: Path) -> None:
    text = STUDY.replace("no_wo, {name: strided_sparse, stride: 7}", "wide")
    dense, wide = plan(write(tmp_path, text), sets={"model.dim": 13}).cells
    assert dense.refusal and wide.refusal is None and wide.parameters


@pytest.mark.parametrize(("dim", "precision", "multiple"), [(12, "fp32", 4), (8, "bf16", 8)])
def test_head_widths_without_an_xformers_kernel_are_refused(dim: int, precision: str, multiple: int, tmp_path: Path) -> None:
    sets = {"backend": "xformers", "model.dim": dim, "model.heads": 2, "train.precision": precision}
    dense = plan(write(tmp_path, STUDY), sets=sets, only={"variant": "dense"}).cells[0]
    assert f"head width that is a multiple of {multiple} in {precision}, got {dim // 2}" in str(dense.refusal)


def test_a_bias_that_does_not_come_in_pieces_is_refused_where_it_must(tmp_path: Path) -> None:
    write(tmp_path, RECENCY, name="recency.py")
    text = STUDY.replace("  position: learned\n", "")
    text = text.replace("seeds:", "  position: [relative, 'recency.py:Recency']\nseeds:")
    ((cell, _),) = plan(write(tmp_path, text)).refused
    assert cell.name == "strided_sparse stride=7 Recency"
    assert "recency.py:Recency: " in str(cell.refusal) and "heads, step and offset" in str(cell.refusal)


@pytest.mark.parametrize("door", ["import", "path"])
def test_a_variant_of_the_users_own(door: str, tmp_path: Path) -> None:
    write(tmp_path, COSINE.replace("NAME", f"cosine by {door}"), name="lab/cosine.py")
    ref = f"{{name: cosine by {door}, power: 3}}" if door == "import" else "{name: ../lab/cosine.py:Cosine, power: 3}"
    text = STUDY.replace("no_wo", ref).replace("  position: learned\n", "")
    if door == "import":
        text = text.replace("base:", "imports: [../lab/cosine.py]\nbase:")
    dense, cosine, _ = plan(write(tmp_path, text, name="mine/s.yaml")).cells
    assert cosine.refusal is None and cosine.config.position is not None
    assert cosine.config.position.name == "none"
    assert cosine.name == ("cosine by import power=3" if door == "import" else "Cosine power=3")
    assert list(cosine.config.sources) == [str((tmp_path / "lab/cosine.py").resolve())]
    assert dense.config.sources == {}  # editing the variant does not affect the baseline's runs
    assert VARIANTS.get(cosine.config.variant.name).__name__ == "Cosine"  # from any working directory  # type: ignore[union-attr]


def test_a_moved_project_keeps_its_fingerprints_an_edited_one_does_not(tmp_path: Path) -> None:
    def fingerprint(folder: str) -> str:
        text = STUDY.replace("no_wo", "cosine.py:Cosine")
        return plan(write(tmp_path, text, name=f"{folder}/s.yaml")).cells[1].config.fingerprint()

    source = COSINE.replace('@register_variant("NAME")\n', "")
    write(tmp_path, source, name="here/cosine.py")
    write(tmp_path, source + "# a comment\n", name="there/cosine.py")
    write(tmp_path, source + "edited = True\n", name="edited/cosine.py")
    assert fingerprint("here") == fingerprint("there") != fingerprint("edited")


def test_a_text_is_found_from_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "words " * 500, name="book.txt")
    path = write(tmp_path, STUDY.replace("name: pydocs", "name: text, path: ../book.txt"), name="a/s.yaml")
    monkeypatch.chdir(path.parent.parent.parent)
    config = plan(path).cells[0].config
    assert config.task.options["path"] == str((tmp_path / "book.txt").resolve())
    assert config.data.startswith("text sha256:")


def test_a_variant_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = COSINE.replace('@register_variant("NAME")\n', "")
    write(tmp_path, source, name="site/lab_of_mine/cosine.py")
    write(tmp_path, "", name="site/lab_of_mine/__init__.py")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    cell = plan(write(tmp_path, STUDY.replace("no_wo", "lab_of_mine.cosine:Cosine"))).cells[1]
    assert cell.name == "Cosine" and cell.refusal is None
    assert cell.config.sources == {}  # it is imported by its name, not as a file,
    assert list(cell.config.packages) == ["lab_of_mine.cosine"]  # but is still part of the fingerprint


@pytest.mark.parametrize("option", ["match", "position"])
def test_a_variant_has_no_option_that_a_study_uses_itself(option: str, tmp_path: Path) -> None:
    source = COSINE.replace("NAME", f"cosine with {option}").replace("power: int", f"{option}: int")
    write(tmp_path, source, name=f"cosine_{option}.py")
    text = STUDY.replace("no_wo", f"'cosine_{option}.py:Cosine'")
    assert f"expected no option {option!r}" in misplanned(write(tmp_path, text))
