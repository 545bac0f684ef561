"""The contract for every registered combination, and the output of `attnlab check`."""

import re
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.nn.attention import BACKENDS
from attnlab.planning.plan import plan
from attnlab.positions import Position
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.testing import CheckResult, check, check_variant
from attnlab.testing.checks import CHECKS, modes, visibility
from attnlab.testing.checks.backends import _relative_error
from attnlab.testing.checks.result import Failure
from attnlab.testing.checks.sizes import DRAWS
from attnlab.testing.checks.target import LONG_LENGTH, CheckTarget
from attnlab.testing.contract import STATUSES
from attnlab.variants import ROLES, AttentionConfig, Projections, Setting, Variant, merge_heads
from attnlab.variants.dense import Dense
from tests.mutants.base import ByHand
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples" / "my_variant"
BROKEN = f"{EXAMPLES / 'broken.py'}:Broken"
Out = pytest.CaptureFixture[str]
Record = Callable[[str, object], None]
CHEAP = [name for name in CHECKS if name != "compile"]
# Every check runs for each variant without a scheme and with `relative`. The checks that a scheme can break run for each
# variant with one scheme of each further kind, and for `dense` with every scheme: those of one kind differ in numbers alone,
# and a variant does not see a scheme that is added to its input. Other pairs run few checks, as do other backends than its
# first one, because the check "backends" compares them with it. Causality by value (a third of the time of all checks),
# precisions and modes, and sizes beyond the small ones run for each variant without a scheme, the last for each scheme with
# `dense`, too; all of the longest ones for `dense` alone. The exhaustive test runs every check for all.
SCHEMES, KINDS = ("none", "relative"), ("rotary", "alibi", "fire", "cope")
BY_VALUE, MODES = "causality by value", "precisions and modes"
FEW = ["shapes", "gradient coverage", "bf16"]
OF_SCHEMES = [*FEW, BY_VALUE, "causality by gradient", "padding", "bias placement", "memory", "backends", "rotation placement"]
OF_SCHEMES += ["hooks take effect", "key-value cache", "leading padding"]
LIKE_DENSE = ("einsum", "narrow", "no_wo", "wide")  # `dense` with other projections, which no scheme reads
NAMES = [name for name in VARIANTS.names() if VARIANTS.is_builtin(name)]  # not those of other tests


def checks_of(variant: str, position: str, role: str, backend: str) -> list[str]:
    """Return the checks of a combination that run each time."""
    if backend != VARIANTS.get(variant).backends[0] or (variant in LIKE_DENSE and position not in SCHEMES):
        return FEW
    if position not in SCHEMES or (variant in LIKE_DENSE and position != "none"):
        only = OF_SCHEMES if variant == "dense" or position in (*SCHEMES, *KINDS) else FEW
    else:  # compiling is slow, and the graph is the same in other roles
        only = list(CHECKS) if role == "causal" else CHEAP
    left_out = {BY_VALUE} if (position != "none" and variant != "dense") or variant in LIKE_DENSE else set()
    return [name for name in only if name not in left_out | ({MODES} if position != "none" else set())]


def check_fewer_sizes(monkeypatch: pytest.MonkeyPatch, draws: slice) -> None:
    """Check some of the drawn sizes, some borders of long sequences by value, and precisions at half of the longest length."""
    drawn = CheckTarget.drawn
    monkeypatch.setattr(CheckTarget, "drawn", lambda target: drawn(target)[draws])
    monkeypatch.setattr(visibility, "LONG_VALUES", {256: 2**21, LONG_LENGTH: 2**23, 512: 2**22, 1024: 2**22})
    monkeypatch.setattr(modes, "LONGEST", 512)


def combinations(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test for every variant, position scheme and device."""
    for name, values in (("position", POSITIONS.names()), ("variant", NAMES)):
        test = pytest.mark.parametrize(name, values)(test)
    return pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])(test)


@combinations
def test_every_combination_passes_or_is_refused(
    device: str, variant: str, position: str, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variant != "dense":  # one of the drawn sizes, and none with a scheme
        number = NAMES.index(variant) % DRAWS
        check_fewer_sizes(monkeypatch, slice(number, number + 1) if position == "none" else slice(0))
    for role, backend in product(ROLES, BACKENDS):
        only = checks_of(variant, position, role, backend)
        assert not failures(device, variant, position, role, backend, only, record_property), (role, backend)


@pytest.mark.exhaustive
@combinations
def test_every_combination_passes_every_check_or_is_refused(
    device: str, variant: str, position: str, record_property: Record
) -> None:
    for role, backend in product(ROLES, BACKENDS):
        assert not failures(device, variant, position, role, backend, list(CHECKS), record_property), (role, backend)


def failures(
    device: str, variant: str, position: str, role: str, backend: str, only: list[str], record_property: Record
) -> list[CheckResult]:
    """Check a combination, record the counts of its results, and return those that failed."""
    results = check(variant, position=position, backend=backend, device=device, roles=[role], only=only)
    counts = Counter(result.status for result in results)
    overall = "failed" if counts["failed"] else "passed" if counts["passed"] else "refused"
    listed = " ".join(f"{result.replace(' ', '_')} {n}" for result, n in counts.items() if overall != "refused")
    record_property("contract", f"{overall} {listed}".strip())
    assert all(result.status in STATUSES and result.detail for result in results)
    assert overall != "refused" or counts.total() == counts["refused"] == 1
    assert overall != "passed" or [result.check for result in results] == [name for name in CHECKS if name in only]
    return results.failed


@pytest.mark.parametrize("name", ["strided_sparse", "fixed_sparse"])
def test_checks_use_the_given_options(name: str) -> None:
    for stride in (2, 16):  # with 1, a block is one key, whose softmax gives its query no gradient
        options = {"stride": stride, **({"summary": 1} if name == "fixed_sparse" else {})}
        assert not [result for result in check(name, options=options, only=CHEAP) if result.status == "failed"]


def test_the_example_passes_every_check() -> None:
    for position, only in ((None, list(CHECKS)), ("relative", OF_SCHEMES)):
        results = check(f"{EXAMPLES / 'cosine.py'}:Cosine", position=position, only=only)
        assert not [result for result in results if result.status == "failed"]


def test_an_unsupported_combination_is_refused_with_its_reason() -> None:
    (result,) = check(Linear, position="alibi", roles=["bidirectional"])
    assert result.status == "refused" and "does not support a position scheme" in result.detail
    (result,) = check("dense", backend="xformers", device="cpu")
    assert result.status == "refused" and "CUDA" in result.detail
    first = check("dense", position="rotary", only=["shapes"])[0]
    assert (first.check, first.status) == ("role cross", "refused")


def test_flops_of_xformers_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.nn.attention.unsupported", lambda *args, **config: None)
    (result,) = check("strided_sparse", backend="xformers", only=["flops"])
    assert (result.check, result.status) == ("flops", "not declared") and "xformers" in result.detail


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "dens"}, "did you mean 'dense'"),
        ({"variant": "dense", "position": "rotry"}, "did you mean 'rotary'"),
        ({"variant": "dense", "backend": "sdp"}, "did you mean 'sdpa'"),
        ({"variant": "dense", "only": ["shape"]}, "did you mean 'shapes'"),
        ({"variant": "dense", "device": "gpu"}, "unknown device 'gpu'"),
        ({"variant": "dense", "options": {"stride": 4}}, "no option 'stride'"),
        ({"variant": "strided_sparse", "options": {"stride": 0}}, "stride of at least 1, got 0"),
        ({"variant": "strided_sparse", "options": {"stride": "four"}}, "stride: expected a whole number, got 'four'"),
        ({"variant": AttentionConfig}, "expected a subclass of attnlab.variants.Variant, got AttentionConfig"),
    ],
)
def test_invalid_arguments_raise_a_user_error(arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_variant(**arguments)


def test_results_are_reported_as_they_come() -> None:
    reported: list[CheckResult] = []
    assert check(Dense, only=["shapes", "seed"], report=reported.append) == reported
    assert [result.check for result in reported] == ["shapes", "seed"] and all(result.seconds > 0 for result in reported)


class Raises(Dense):
    """Raises in forward()."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        raise RuntimeError("not written yet")


class TakesXAlone(Dense):
    """Takes neither context nor mask."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


def test_a_variant_that_raises_fails_once_with_its_line() -> None:
    (result,) = check(Raises)
    assert (result.check, result.status) == ("shapes", "failed")
    assert "RuntimeError: not written yet (test_contract.py:" in result.detail and "Traceback" in result.traceback
    (result,) = check(TakesXAlone)
    assert "context=None, mask=None" in result.advice


class ShapedLikeQueries(Dense):
    """Writes its results into a tensor of the width of the queries, which a scheme may change."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        rotated, _ = self.rotate(q, k)
        return super().forward(x, context=context, mask=mask) + 0 * (torch.zeros_like(rotated) + v[:, :, :1]).sum()


def test_the_advice_on_a_scheme_that_widens_queries_names_the_width_of_values() -> None:
    (result,) = check(ShapedLikeQueries, only=["rotation placement"])
    assert result.status == "failed" and "raises RuntimeError" in result.detail and "v.shape[-1]" in result.advice


class Widens(Dense):
    """Returns twice the width."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask).repeat(1, 1, 2)


class ReturnsNan(Dense):
    """Returns NaN."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask) * float("nan")


@pytest.mark.parametrize(("variant", "detail"), [(Widens, "expected (1, 1, 21), got (1, 1, 42)"), (ReturnsNan, "is NaN")])
def test_after_a_failure_of_shapes_the_other_checks_are_left_out(variant: type[Variant], detail: str, capsys: Out) -> None:
    (result,) = check(variant)
    assert (result.check, result.status) == ("shapes", "failed") and detail in result.detail
    assert main.main(["check", f"tests.testing.test_contract:{variant.__name__}", "--device", "cpu"]) == 1
    assert "other checks" in capsys.readouterr().out


class TooLong(Position):
    """A user's scheme that returns one position too many."""

    hook = "embed"

    def embed(self, t: int) -> Tensor:
        return torch.zeros(t + 1, self.config.dim)


class Transposed(TooLong):
    """A bias of (keys - 1, queries)."""

    hook = "bias"

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        return torch.zeros(k.shape[-2] - 1, q.shape[-2])


class Fails(TooLong):
    """A scheme that raises."""

    def embed(self, t: int) -> Tensor:
        raise ValueError("no table")


@pytest.mark.parametrize(
    ("scheme", "detail"),
    [
        (TooLong, "TooLong, role causal, length 13: embed(): expected (13, 21), got (14, 21)"),
        (Transposed, "Transposed, role causal, length 13: bias(): expected (3, 3, 13, 13), got (12, 13)"),
        (Fails, "raises ValueError: no table (test_contract.py:"),
    ],
)
def test_a_wrong_position_scheme_fails_shapes_by_name(scheme: type[Position], detail: str) -> None:
    result = check(Dense, position=scheme)[-1]
    assert result.check == "shapes" and detail in result.detail


class Gated(Dense):
    """Correct, with a gate initialized to zero, at which the output does not depend on the input."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.gate = torch.nn.Parameter(torch.zeros(config.dim))

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask) * self.gate


def test_a_gate_at_zero_fails_no_check() -> None:
    assert not [result for result in check(Gated, only=CHEAP) if result.status == "failed"]


class Frozen(Dense):
    """Correct: with a fixed scale for each channel, which is not trained."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.scale = torch.nn.Parameter(0.5 + torch.rand(config.dim), requires_grad=False)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask) * self.scale


def test_a_parameter_that_is_not_trained_fails_no_check() -> None:
    gradients = ["gradient coverage", "gradcheck", "all padding", "backends", "training mode"]
    assert not [result for result in check(Frozen, only=gradients) if result.status == "failed"]


class NanInBatches(Dense):
    """Returns NaN in training with more than four rows."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        return y * float("nan") if self.training and len(x) > 4 else y


def test_nan_in_training_is_no_error_of_the_check() -> None:
    (result,) = check(NanInBatches, only=["causality by value"])
    assert result.status == "failed" and result.detail.endswith("is NaN")


class FewKeys(Variant):
    """Correct: each query attends to the four keys with the largest logits."""

    hooks = frozenset({"embed"})
    supports_memory = True

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.project = Projections(config.dim, config.dim, heads=config.heads)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        logits = q @ k.mT
        visible = torch.ones_like(logits, dtype=torch.bool)
        visible = visible.tril(k.shape[2] - q.shape[2]) if self.causal else visible
        visible = visible if mask is None else visible & mask[:, None, None]
        logits = logits.masked_fill(~visible, torch.finfo(logits.dtype).min)
        least = logits.topk(min(4, k.shape[2]), -1).values[..., -1:]
        weights = logits.masked_fill(logits < least, torch.finfo(logits.dtype).min).softmax(-1) * visible
        return merge_heads(F.dropout(weights, self.dropout, self.training) @ v)


def test_keys_that_content_selects_are_no_causal_mask() -> None:
    [result] = check(FewKeys, only=["full visibility"])
    assert result.status == "passed", result.detail


class CountsWithFewKeys(FewKeys):
    """Wrong: every second position counts twice, by numbers that bf16 rounds."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        number = torch.arange(x.shape[1]).to(x.dtype)
        return super().forward(x, context=context, mask=mask) * (1 + number % 2)[:, None]


def test_near_ties_of_a_selection_are_no_error_of_bf16() -> None:
    [right], [wrong] = (check(cls, only=["bf16"]) for cls in (FewKeys, CountsWithFewKeys))
    assert (right.status, wrong.status) == ("passed", "failed"), right.detail


class Linear(Variant):
    """Attention without logits, in linear time: Shen et al. 2021."""

    roles = frozenset({"bidirectional"})
    hooks = frozenset({"embed"})
    has_attention_dropout = False
    cost_exponent = 1.0

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.q, self.k, self.v = (torch.nn.Linear(config.dim, config.dim, bias=False) for _ in range(3))

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.q(x).softmax(-1), self.k(x), self.v(x)
        if mask is not None:
            k = k.masked_fill(~mask[..., None], torch.finfo(k.dtype).min)
        return q @ (k.softmax(1).mT @ v)


class LargerValues(Dense):
    """Values are 4 % larger with backend ``sdpa``."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        return y * 1.04 if self.backend == "sdpa" else y


@pytest.mark.parametrize(("variant", "passes"), [(Dense, True), (LargerValues, False)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_backend_in_half_precision_is_as_exact_as_the_reference(
    variant: type[Variant], passes: bool, dtype: torch.dtype
) -> None:
    """Backends of CUDA alone are compared in half precision; ``sdpa`` stands for them on a CPU."""
    target = CheckTarget(variant, {}, POSITIONS.get("cope"), scheme_name="cope").with_supported_shape(("causal",))
    if passes:
        assert 0 < _relative_error(target, "sdpa", "causal", dtype) < 0.1
    else:
        with pytest.raises(Failure, match="differs from reference"):
            _relative_error(target, "sdpa", "causal", dtype)


def test_linear_attention_passes_by_what_it_declares() -> None:
    results = {result.check: result for result in check(Linear)}
    assert not [result for result in results.values() if result.status == "failed"]
    assert results["dropout"].status == "not declared"
    assert "(declared 1)" in results["saved bytes"].detail


class KeepsAll(Dense):
    """Declares that it has no attention weights to drop."""

    has_attention_dropout = False


def test_dropout_without_weights_to_drop_is_refused_in_the_plan() -> None:
    base = {"task": "pydocs", "train": {"steps": 1}, "variant": "tests.testing.test_contract:KeepsAll"}
    study_plan = plan({"study": "drops", "base": base, "grid": {"model.attention_dropout": [0.0, 0.1]}})
    ((cell, _),) = study_plan.refused
    assert cell.refusal is not None
    assert "KeepsAll" in cell.refusal and "model.attention_dropout" in cell.refusal


class NeedsEvenHeads(ByHand):
    """Supports an even number of heads only."""

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        return "it pairs its heads" if setting.heads % 2 else super().unsupported(setting)


def test_the_first_supported_shape_is_used() -> None:
    results = {result.check: result for result in check(NeedsEvenHeads, only=CHEAP)}
    assert "2 heads" in results["shapes"].detail
    assert "1 head refused: it pairs its heads" in results["other shapes"].detail


def test_the_command_prints_a_table_and_exits_with_0(capsys: Out) -> None:
    assert main.main(["check", "dense", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["check", "result", "time", "measured"]
    assert {line.split("  ")[0] for line in lines[2:-2]} == set(CHECKS)
    assert re.match(r"dense \(no position scheme, backend reference, cpu\): \d+ passed, \d+ not declared, in ", lines[-1])


def test_the_command_prints_failing_checks_cases_and_advice(capsys: Out) -> None:
    assert main.main(["check", BROKEN, "--device", "cpu"]) == 1
    out = capsys.readouterr().out
    failed = [line.removeprefix("FAILED ") for line in out.splitlines() if line.startswith("FAILED")]
    assert failed == ["causality by value", "causality by gradient", "hooks take effect", "bias placement"]
    assert "causal, batch 1, length 2: changing input 1 changes output 0" in out
    assert "self.position.bias(q, k, scale=scale)" in out


def test_the_command_reports_a_refusal_and_an_unknown_name_in_one_line(capsys: Out) -> None:
    assert main.main(["check", "tests.testing.test_contract:Linear", "--position", "relative"]) == 2
    error = capsys.readouterr().err
    assert "not supported" in error and "'bias'" in error and error.count("\n") == 1
    assert main.main(["check", "examples/nothing.py:Here"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_every_variant_declares_a_cost_exponent_from_1_to_2() -> None:
    for name in VARIANTS.names():
        cls: type[Variant] = VARIANTS.get(name)
        assert 1 <= cls.cost_exponent <= 2, name


def test_the_command_takes_sizes_checks_and_imports(capsys: Out, tmp_path: Path) -> None:
    (tmp_path / "lab.py").write_text("from attnlab import register_variant\nfrom attnlab.variants.dense import Dense\n\n\n"
                                     "@register_variant('of_the_command')\nclass Mine(Dense):\n    pass\n")  # fmt: skip
    only = ["--only", "shapes", "--only", "seed"]
    arguments = ["of_the_command", "--imports", str(tmp_path / "lab.py"), "--heads", "5", "--dim", "35", *only]
    assert main.main(["check", *arguments, "--device", "cpu"]) == 0
    out = capsys.readouterr()
    assert [line.split()[0] for line in out.out.splitlines()[2:4]] == ["shapes", "seed"]
    assert "5 heads, width 35" in out.out and out.err == ""
    assert main.main(["check", "dense", "--heads", "5", "--dim", "21"]) == 2
    assert "not divisible by 5 heads" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "words"), [("rotary", "even"), ("learned", "std")])
def test_the_command_checks_position_schemes(target: str, words: str, capsys: Out) -> None:
    options = {"rotary": ["--heads", "3", "--dim", "21"], "learned": ["--options", "sdt=1"]}[target]
    assert main.main(["check", target, "--device", "cpu"]) == 0
    assert "parts" in capsys.readouterr().out
    assert main.main(["check", target, "--device", "cpu", *options]) == 2
    assert words in capsys.readouterr().err
    assert main.main(["check", "tests.mutants.positions:AlignedLeft"]) == 1
    assert "FAILED parts" in capsys.readouterr().out


def test_the_command_checks_tasks(capsys: Out) -> None:
    recall = f"{ROOT / 'examples' / 'my_task' / 'recall.py'}:Recall"
    assert main.main(["check", recall, "--options", "pairs=3", "--only", "chance level"]) == 0
    assert "recall at chance" in capsys.readouterr().out
    assert main.main(["check", "tests.mutants.tasks:NotShifted"]) == 1
    assert "FAILED targets" in capsys.readouterr().out
    assert main.main(["check", recall, "--heads", "2"]) == 2
    assert "--heads" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("dens", "did you mean 'dense'"),
        ("rotry", "did you mean 'rotary'"),
        ("attnlab.variants:AttentionConfig", "AttentionConfig"),
    ],
)
def test_the_command_names_the_nearest_of_all_kinds(target: str, words: str, capsys: Out) -> None:
    assert main.main(["check", target]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_progress_is_shown_on_a_terminal_only_and_removed(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    main.main(["check", "dense", "--device", "cpu", "--only", "shapes"])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    main.main(["check", "dense", "--device", "cpu", "--only", "shapes", "--only", "seed"])
    shown = capsys.readouterr().err
    assert "seed" in shown, "an earlier check may end before its name is drawn"
    assert shown.endswith("\x1b[2K\x1b[?25h"), "the line is erased, the cursor is back"
