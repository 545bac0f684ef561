"""The variants of a study are checked at its own shapes, and a study with a wrong one of the user's does not start."""

from pathlib import Path

import pytest

import attnlab
from attnlab.cli import main
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.testing.study_contract import check_study, require_correct_variants, study_targets

VARIANTS = """
from attnlab.variants.dense import Dense


class Good(Dense):
    pass


class Leaks(Dense):
    supports_memory = False

    def forward(self, x, *, context=None, mask=None):
        y = super().forward(x, context=context, mask=mask)
        return y + 0.1 * x.mean(1, keepdim=True) if x.shape[1] == 40 else y
"""
LONG = """
from attnlab.components import Component


class Long(Component):
    def __init__(self, config):
        super().__init__(config)
        if config.length < 600:
            raise ValueError(f"expected at least 600 positions, got {config.length}")

    def head_outputs(self, y, *, x, v):
        return 2 * y
"""
STUDY = """
study: checked
base:
  task: {{name: pydocs, length: 40}}
  model: {{dim: 32, depth: 1, heads: 4}}
  train: {{steps: 1, batch_size: 2}}
grid:
  variant: [{variants}]
seeds: 0-1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNLAB_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(VARIANTS)
    return tmp_path


def write(folder: Path, *variants: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(STUDY.format(variants=", ".join(variants)))
    return path


def configs(path: Path) -> list[RunConfig]:
    return [cell.config for cell in plan(path).cells]


def test_each_variant_of_a_study_is_checked_once_at_its_shapes(folder: Path) -> None:
    targets = study_targets(configs(write(folder, "dense", '"mine.py:Good"', "{name: dense, with: [gate]}")))
    assert [target.own_code for target in targets] == [False, True, False]
    assert len({target.label for target in targets}) == 3 and "gate" in targets[2].label
    for target in (target.target for target in targets):
        assert (target.heads, target.dim, target.roles, target.scheme_name) == (4, 32, ("causal",), "learned")
        assert [drawn.sizes.length for drawn in target.drawn()] == [40]
    assert len(study_targets(configs(write(folder, "dense")) * 2)) == 1


def test_components_are_built_for_the_length_of_the_study(folder: Path) -> None:
    """A component that needs more positions than most checks have is accepted where the study has them."""
    (folder / "mine.py").write_text(LONG)
    path = write(folder, '{name: dense, with: ["mine.py:Long"]}')
    for length, memory in ((600, 0), (40, 560)):
        sets = {"task.length": length, "model.mem_len": memory, "position": "none"}
        planned = [cell.config for cell in plan(path, sets=sets).cells]
        assert require_correct_variants(planned) == 1


def test_a_mistake_at_the_shapes_of_the_study_alone_is_caught_and_named(folder: Path) -> None:
    targets = study_targets(configs(write(folder, '"mine.py:Leaks"')))
    [(_, [result])] = check_study(targets, only=["causality by value"])
    assert result.status == "failed" and "length 40" in result.detail and "the shapes of the study" in result.detail


def test_a_study_with_a_wrong_variant_of_the_users_does_not_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(folder, "dense", '"mine.py:Leaks"')
    with pytest.raises(UserError, match="causality by value") as error:
        require_correct_variants(configs(path))
    assert error.value.where is not None and error.value.where.startswith("Leaks")

    def started(*args: object, **options: object) -> None:
        assert options["check"] is False  # once is enough
        raise UserError("started")

    monkeypatch.setattr("attnlab.study.run.run", started)
    assert main.main(["run", str(path)]) == 2
    with pytest.raises(UserError, match="started"):
        main.main(["run", str(path), "--no-check", "--debug"])


def test_a_study_that_python_runs_is_checked_as_well(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*args: object) -> None:
        raise UserError("started")

    monkeypatch.setattr("attnlab.study.run.start_workers", started)
    path = write(folder, "dense", '"mine.py:Leaks"')
    with pytest.raises(UserError, match="causality by value"):
        attnlab.run(path)
    with pytest.raises(UserError, match="started"):
        attnlab.run(path, check=False)
    path = write(folder, "dense", '"mine.py:Good"')
    with pytest.raises(UserError, match="started"):
        attnlab.run(path)


def test_what_has_passed_is_checked_again_only_after_a_change_of_its_code(folder: Path) -> None:
    path = write(folder, '"mine.py:Good"', "no_wo")
    assert require_correct_variants(configs(path)) == 1  # attnlab's own are covered by its tests
    assert require_correct_variants(configs(path)) == 0
    (folder / "mine.py").write_text(
        VARIANTS.replace("class Good(Dense):\n    pass", "class Good(Dense):\n    supports_memory = False")
    )
    assert require_correct_variants(configs(path)) == 1


def test_the_command_checks_a_study(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(folder, "dense", '"mine.py:Leaks"'))
    assert main.main(["check", "--study", path, "--only", "causality by value", "--device", "cpu"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("dense, position learned") and "1 passed" in lines[0]
    assert "FAILED causality by value" in lines
    assert main.main(["check", "--study", path, "--heads", "2"]) == 2
    assert main.main(["check"]) == 2 and main.main(["check", "dense", "--study", path]) == 2


MODES = """
import torch
from torch.nn import functional as F
from attnlab.variants.dense import Dense


class InFloat32(Dense):
    def forward(self, x, *, context=None, mask=None):
        y = super().forward(x, context=context, mask=mask)
        return y + F.pad(x[:, 1:], (0, 0, 0, 1)) if x.dtype == torch.float32 and x.shape[1] > 30 else y


class InLaterBlocks(Dense):
    def __init__(self, config):
        super().__init__(config)
        self.layer = config.layer

    def forward(self, x, *, context=None, mask=None):
        y = super().forward(x, context=context, mask=mask)
        return y + F.pad(x[:, 1:], (0, 0, 0, 1)) if self.layer == 2 else y


class InLongSequences(Dense):
    def forward(self, x, *, context=None, mask=None):
        y = super().forward(x, context=context, mask=mask)
        return y + F.pad(x[:, 1:], (0, 0, 0, 1)) if x.shape[1] > 1100 else y
"""


@pytest.mark.parametrize("name", ["InFloat32", "InLaterBlocks"])
def test_a_leak_in_one_precision_or_one_block_stops_a_study(folder: Path, name: str) -> None:
    (folder / "mine.py").write_text(MODES)
    path = write(folder, f'"mine.py:{name}"')
    planned = [cell.config for cell in plan(path, sets={"model.depth": 4, "train.precision": "fp32"}).cells]
    with pytest.raises(UserError, match="precisions and modes"):
        require_correct_variants(planned)


def test_a_leak_at_the_length_of_a_study_alone_is_caught(folder: Path) -> None:
    (folder / "mine.py").write_text(MODES)
    sets = {"task.length": 1200, "train.precision": "fp32"}
    planned = [cell.config for cell in plan(write(folder, '"mine.py:InLongSequences"'), sets=sets).cells]
    [(_, [result])] = check_study(study_targets(planned), only=["precisions and modes"])
    assert result.status == "failed" and "length 1200" in result.detail


LATE = """
import torch
from torch.nn import functional as F
from attnlab.nn.layers import merge_heads
from attnlab.variants.dense import Dense


class Base(Dense):
    supports_memory = False

    def __init__(self, config):
        super().__init__(config)
        self.block, self.width = config.layer, config.dim // config.heads


class DetachesInLongSequences(Base):
    def forward(self, x, *, context=None, mask=None):
        q, k, v = self.project(x, context)
        k = torch.cat([k[:, :, :-100].detach(), k[:, :, -100:]], dim=2) if x.shape[1] >= 300 else k
        return self.out(merge_heads(self.attend(q, k, v, mask)))


class DropsNothingInLateBlocks(Base):
    def __init__(self, config):
        super().__init__(config)
        self.dropout = self.dropout if self.block < 3 else 0.0


class LeaksInOneBlock(Base):
    def forward(self, x, *, context=None, mask=None):
        y = super().forward(x, context=context, mask=mask)
        return y + F.pad(x[:, 1:], (0, 0, 0, 1)) if self.block == 2 and x.shape[1] > 100 else y


class CountsInWideLateBlocks(Base):
    calls = 0

    def forward(self, x, *, context=None, mask=None):
        self.calls += self.block >= 3 and self.width == 48
        return (1 + 0.01 * self.calls) * super().forward(x, context=context, mask=mask)
"""


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("DetachesInLongSequences", "gradcheck"),
        ("DropsNothingInLateBlocks", "dropout share"),
        ("LeaksInOneBlock", "precisions and modes"),
        ("CountsInWideLateBlocks", "no hidden state"),
    ],
)
def test_a_mistake_of_long_sequences_or_late_blocks_is_caught(folder: Path, name: str, check: str) -> None:
    (folder / "mine.py").write_text(LATE)
    sets = {"task.length": 310, "model.depth": 5, "model.dim": 96, "model.heads": 2, "train.precision": "fp32"}
    planned = [cell.config for cell in plan(write(folder, f'"mine.py:{name}"'), sets=sets).cells]
    [(_, [result])] = check_study(study_targets(planned), only=[check])
    assert result.status == "failed" and result.advice, result.detail
