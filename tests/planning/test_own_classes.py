"""Mistakes in a user's own variant or position scheme: a refused cell or one line, with the user's file and line."""

from pathlib import Path

import pytest

from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.planning.plan import Plan, plan

LAB = '''"""A variant of one's own."""

import torch
from torch import nn

from attnlab import register_variant
from attnlab.positions import Position
from attnlab.variants import BACKENDS, Projections, Variant, merge_heads


class Mine(Variant):
    backends = BACKENDS

    def __init__(self, config, *, power: int = 2):
        super().__init__(config)
        CONSTRUCTOR
        self.project = Projections(config.dim, config.dim, heads=config.heads)

    def forward(self, x, *, context=None, mask=None):
        FORWARD
        q, k, v = self.project(x, context)
        return merge_heads(self.attend(q, k, v, mask))


class Scheme(Position):
    hook = "bias"

    def bias(self, q, k, *, scale):
        return torch.zeros(3, 5)
'''
STUDY = """\
study: s
base:
  task: {name: pydocs, length: 24}
  model: {dim: 12, depth: 1, heads: 3}
  train: {steps: 2, batch_size: 2}
grid:
  variant: [dense, VARIANT]
"""


def write(folder: Path, *, lab: str = LAB, study: str = STUDY, variant: str = "lab.py:Mine") -> Path:
    (folder / "lab.py").write_text(lab.replace("CONSTRUCTOR", "pass").replace("FORWARD", "pass"))
    (folder / "s.yaml").write_text(study.replace("VARIANT", variant))
    return folder / "s.yaml"


def line_of(folder: Path, text: str) -> int:
    return next(i for i, line in enumerate((folder / "lab.py").read_text().splitlines(), start=1) if text in line)


def refusals(planned: Plan) -> list[str | None]:
    return [cell.refusal for cell in planned.cells]


CONSTRUCTOR_MISTAKES = [
    ("raise ValueError(f'power {power} is too high')", "ValueError: power 2 is too high"),
    ("config.dmi", "AttributeError: 'AttentionConfig' object has no attribute 'dmi'"),
    ("nn.Linear(-1, config.dim)", "RuntimeError: "),
]
FORWARD_MISTAKES = [
    ("x @ x", "RuntimeError: "),
    ("return x, None", "Mine.forward: expected one tensor (b, t, dim), here (1, 24, 12), got a tuple"),
    ("return x[:, :1]", "got (1, 1, 12)"),  # it would broadcast
    ("return None", "got a NoneType"),
]


@pytest.mark.parametrize(("mistake", "reason"), CONSTRUCTOR_MISTAKES)
def test_an_error_of_a_constructor_refuses_its_cell_with_file_and_line(mistake: str, reason: str, tmp_path: Path) -> None:
    planned = plan(write(tmp_path, lab=LAB.replace("CONSTRUCTOR", mistake)))
    dense, mine = refusals(planned)
    assert dense is None and mine is not None and reason in mine
    assert f"(lab.py:{line_of(tmp_path, mistake)})" in mine and "\n" not in mine
    assert len(planned.runs) == 1


@pytest.mark.parametrize(("mistake", "reason"), FORWARD_MISTAKES)
def test_an_error_of_forward_refuses_its_cell_with_file_and_line(mistake: str, reason: str, tmp_path: Path) -> None:
    dense, mine = refusals(plan(write(tmp_path, lab=LAB.replace("FORWARD", mistake))))
    assert dense is None and mine is not None and reason in mine
    place = line_of(tmp_path, "class Mine") if "return" in mistake else line_of(tmp_path, mistake)
    assert f"(lab.py:{place})" in mine


def test_a_signature_of_forward_that_does_not_fit_is_refused_with_the_expected_one(tmp_path: Path) -> None:
    lab = LAB.replace("def forward(self, x, *, context=None, mask=None)", "def forward(self, x)")
    _, mine = refusals(plan(write(tmp_path, lab=lab)))
    assert mine is not None and "expected forward(self, x, *, context=None, mask=None), got forward(self, x)" in mine
    assert f"(lab.py:{line_of(tmp_path, 'class Mine')})" in mine


def test_an_error_of_a_position_scheme_names_its_line(tmp_path: Path) -> None:
    study = STUDY.replace("[dense, VARIANT]", "[dense]") + "  position: [rotary, 'lab.py:Scheme']\n"
    rotary, own = refusals(plan(write(tmp_path, study=study)))
    assert rotary is None and own is not None and f"(lab.py:{line_of(tmp_path, 'class Scheme')})" in own


def test_an_option_out_of_range_refuses_its_cell_only(tmp_path: Path) -> None:
    study = STUDY.replace("[dense, VARIANT]", "[{name: strided_sparse, stride: 0}, {name: strided_sparse, stride: 4}]")
    zero, four = refusals(plan(write(tmp_path, study=study)))
    assert zero is not None and "expected a stride of at least 1, got 0" in zero and four is None


def test_a_width_that_no_tensor_has_is_refused(tmp_path: Path) -> None:
    first, _ = refusals(plan(write(tmp_path), sets={"model.dim": 3 * 10**14}))
    assert first is not None and "overflow" in first


@pytest.mark.parametrize("matched", ["mine", "baseline"])
def test_a_constructor_that_raises_refuses_the_cell_that_is_matched(matched: str, tmp_path: Path) -> None:
    entries = {
        "mine": "[dense, {name: 'lab.py:Mine', match: params}]",
        "baseline": "[{name: no_wo, match: params}, 'lab.py:Mine']",
    }
    study = STUDY.replace("[dense, VARIANT]", entries[matched])
    study += f"baseline: {{variant: {'dense' if matched == 'mine' else 'Mine'}}}\n"
    refused = refusals(plan(write(tmp_path, lab=LAB.replace("CONSTRUCTOR", "raise ValueError('no')"), study=study)))
    assert refused[["mine", "baseline"].index(matched) ^ 1] is not None
    assert any("(lab.py:" in str(reason) for reason in refused)


def test_all_cells_refused_ends_a_run_with_2_and_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, lab=LAB.replace("CONSTRUCTOR", "raise ValueError('no')"))
    assert main.main(["run", str(path), "--only", "variant=Mine", "--no-reference-scores"]) == 2
    error = capsys.readouterr().err
    assert "ValueError: no (lab.py:" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("signature", "variant", "words"),
    [
        ("self, config, power=2", "{name: 'lab.py:Mine', power: 3}", "`def __init__(self, config, *, power=2)`"),
        ("self, config, power", "lab.py:Mine", "`def __init__(self, config, *, power)`"),
        ("self, config, **options", "{name: 'lab.py:Mine', power: 3}", "instead of **kwargs"),
    ],
)
def test_options_that_are_not_keyword_only(signature: str, variant: str, words: str, tmp_path: Path) -> None:
    lab = LAB.replace("self, config, *, power: int = 2", signature)
    with pytest.raises(UserError) as caught:
        plan(write(tmp_path, lab=lab, variant=variant))
    assert words in caught.value.message and caught.value.where.startswith("s.yaml:7:") or "s.yaml:7:" in caught.value.where


def test_a_class_without_the_decorator_is_named(tmp_path: Path) -> None:
    study = STUDY.replace("study: s\n", "study: s\nimports: [lab.py]\n")
    with pytest.raises(UserError) as caught:
        plan(write(tmp_path, study=study, variant="mine"))
    assert "@register_variant('mine')" in caught.value.message
    assert f"Mine (lab.py:{line_of(tmp_path, 'class Mine')})" in caught.value.message


def test_an_error_of_unsupported_refuses_its_cell(tmp_path: Path) -> None:
    lab = LAB.replace(
        "    backends = BACKENDS\n",
        "    backends = BACKENDS\n\n    @classmethod\n    def unsupported(cls, setting):\n        return setting.widht\n",
    )
    dense, mine = refusals(plan(write(tmp_path, lab=lab)))
    assert dense is None and mine is not None and f"(lab.py:{line_of(tmp_path, 'widht')})" in mine


GROUPS = """
    @classmethod
    def unsupported(cls, setting):
        if setting.heads % setting.options["power"]:
            return f"requires a power that divides {setting.heads} heads, got {setting.options['power']}"
        return super().unsupported(setting)
"""


def test_a_variant_refuses_by_its_options(tmp_path: Path) -> None:
    """The default of an option that the study does not set counts, too."""
    study = STUDY.replace(
        "[dense, VARIANT]", "['lab.py:Mine', {name: 'lab.py:Mine', power: 3}, {name: 'lab.py:Mine', power: 5}]"
    )
    lab = LAB.replace("    backends = BACKENDS\n", "    backends = BACKENDS\n" + GROUPS)
    default, fits, other = refusals(plan(write(tmp_path, lab=lab, study=study)))
    assert fits is None
    assert default is not None and "divides 3 heads, got 2" in default
    assert other is not None and "divides 3 heads, got 5" in other


def test_a_position_scheme_refuses_by_its_options(tmp_path: Path) -> None:
    own = """
    def __init__(self, config, *, reach: int = 8):
        super().__init__(config)

    @classmethod
    def unsupported(cls, config, *, options):
        reach = options["reach"]
        return f"reaches {reach} of {config.length}" if reach < config.length else super().unsupported(config, options=options)

    def bias(self, q, k, *, scale):
        return torch.zeros(q.shape[-2], k.shape[-2])
"""
    lab = LAB[: LAB.index("    def bias")].rstrip() + "\n" + own
    study = STUDY.replace("[dense, VARIANT]", "[dense]")
    study += "  position: ['lab.py:Scheme', {name: 'lab.py:Scheme', reach: 24}]\n"
    short, long = refusals(plan(write(tmp_path, lab=lab, study=study)))
    assert short is not None and "reaches 8 of 24" in short and long is None


@pytest.mark.parametrize("method", ["constructor", "identity", "steps_per_epoch"])
def test_an_error_of_a_task_is_one_line_with_its_place(method: str, tmp_path: Path) -> None:
    task = """from tests.support.small_runs import Reviews


class Mine(Reviews):
    def __init__(self, *, size: int = 3):
        super().__init__()

    def identity(self):
        return "mine"

    def steps_per_epoch(self, batch_size):
        return 3
"""
    old = {"constructor": "super().__init__()", "identity": 'return "mine"', "steps_per_epoch": "return 3"}[method]
    study = STUDY.replace("{name: pydocs, length: 24}", "'lab.py:Mine'").replace("[dense, VARIANT]", "[dense]")
    study = study.replace("steps: 2", "epochs: 2")
    with pytest.raises(UserError) as caught:
        plan(write(tmp_path, lab=task.replace(old, "raise ValueError('no data')"), study=study))
    assert "no data" in caught.value.message and f"(lab.py:{line_of(tmp_path, 'no data')})" in caught.value.message
    assert "s.yaml:3" in caught.value.where
