"""The contract over everything registered, and how `attnlab check` tells of it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.nn.attention import BACKENDS
from attnlab.planning.plan import plan
from attnlab.positions import Position
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.testing.checks import CHECKS
from attnlab.testing.contract import RESULTS, Outcome, check
from attnlab.variants import ROLES, AttentionConfig, Variant
from attnlab.variants.dense import Dense
from tests.mutants.base import ByHand
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples" / "my_variant"
BROKEN = f"{EXAMPLES / 'broken.py'}:Broken"
Out = pytest.CaptureFixture[str]
Record = Callable[[str, object], None]
CHEAP = [name for name in CHECKS if name != "compile"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("position", POSITIONS.names())
@pytest.mark.parametrize("variant", VARIANTS.names())
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_combination_passes_or_is_refused(
    device: str, variant: str, position: str, role: str, backend: str, record_property: Record
) -> None:
    only = list(CHECKS) if role == "causal" else CHEAP  # compiling is slow, and no other for another role
    outcomes = check(variant, position=position, backend=backend, device=device, roles=[role], only=only)
    counts = Counter(each.result for each in outcomes)
    cell = "failed" if counts["failed"] else "passed" if counts["passed"] else "refused"
    listed = " ".join(f"{result.replace(' ', '_')} {n}" for result, n in counts.items() if cell != "refused")
    record_property("contract", f"{cell} {listed}".strip())
    assert not [each for each in outcomes if each.result == "failed"]
    assert all(each.result in RESULTS and each.measured for each in outcomes), "each says what was seen, or why not"
    assert cell == "passed" or counts.total() == counts["refused"] == 1
    if cell == "passed":
        assert [each.check for each in outcomes] == only


@pytest.mark.parametrize("name", ["dense", "strided_sparse", "fixed_sparse"])
def test_options_are_checked_with_what_was_given(name: str) -> None:
    for stride in (2, 4, 16):  # at 1 a block is one key, and its queries have nothing to learn
        options = {"stride": stride, **({"summary": 1} if name == "fixed_sparse" else {})} if name != "dense" else {}
        assert not [each for each in check(name, options=options, only=CHEAP) if each.result == "failed"]


def test_the_example_keeps_the_contract() -> None:
    for position in (None, "rotary", "relative"):
        outcomes = check(f"{EXAMPLES / 'cosine.py'}:Cosine", position=position)
        assert not [each for each in outcomes if each.result == "failed"]


def test_a_combination_that_cannot_be_had_is_refused_with_its_reason() -> None:
    (outcome,) = check(Linear, position="alibi", roles=["bidirectional"])
    assert outcome.result == "refused" and "does not support a position scheme" in outcome.measured
    (outcome,) = check("dense", backend="xformers", device="cpu")
    assert outcome.result == "refused" and "CUDA" in outcome.measured
    first = check("dense", position="rotary", only=["shapes"])[0]
    assert (first.check, first.result) == ("role cross", "refused")


def test_arithmetic_of_xformers_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.nn.attention.unsupported", lambda *args, **config: None)
    (outcome,) = check("strided_sparse", backend="xformers", only=["arithmetic"])
    assert outcome.result == "not declared" and "counts no arithmetic of xformers" in outcome.measured


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
def test_a_mistake_in_what_is_asked_is_one_line(arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(**arguments)


def test_outcomes_are_told_as_they_come() -> None:
    told: list[Outcome] = []
    assert check(Dense, only=["shapes", "seed"], report=told.append) == told
    assert [each.check for each in told] == ["shapes", "seed"] and all(each.seconds > 0 for each in told)


class Raises(Dense):
    """Cannot be called."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        raise RuntimeError("not written yet")


class TakesXAlone(Dense):
    """Knows neither source nor mask."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


def test_what_cannot_be_called_fails_once_with_its_line() -> None:
    (outcome,) = check(Raises)
    assert (outcome.check, outcome.result) == ("shapes", "failed")
    assert "RuntimeError: not written yet (test_check.py:" in outcome.measured and "Traceback" in outcome.trace
    (outcome,) = check(TakesXAlone)
    assert "source=None, mask=None" in outcome.advice


class Widens(Dense):
    """Returns another width."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask).repeat(1, 1, 2)


class Nowhere(Dense):
    """Returns no numbers."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask) * float("nan")


@pytest.mark.parametrize(("variant", "said"), [(Widens, "expected (1, 1, 21), got (1, 1, 42)"), (Nowhere, "is not finite")])
def test_what_fails_at_shapes_is_told_once(variant: type[Variant], said: str, capsys: Out) -> None:
    (outcome,) = check(variant)
    assert (outcome.check, outcome.result) == ("shapes", "failed") and said in outcome.measured
    assert main.main(["check", f"test_check:{variant.__name__}", "--device", "cpu"]) == 1
    assert "The other checks rest on this one and were left out." in capsys.readouterr().out


class TooLong(Position):
    """A scheme of someone else's, one position too long."""

    hook = "embed"

    def embed(self, t: int) -> Tensor:
        return torch.zeros(t + 1, self.config.dim)


class Turned(TooLong):
    """A bias of keys by queries, of too few."""

    hook = "bias"

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        return torch.zeros(k.shape[-2] - 1, q.shape[-2])


class Fails(TooLong):
    """A scheme that is not written yet."""

    def embed(self, t: int) -> Tensor:
        raise ValueError("no table")


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        (TooLong, "position scheme TooLong, role causal, length 13: embed(): expected (13, 21), got (14, 21)"),
        (Turned, "position scheme Turned, role causal, length 13: bias(): expected (3, 3, 13, 13), got (12, 13)"),
        (Fails, "it raises ValueError: no table (test_check.py:"),
    ],
)
def test_a_position_scheme_that_is_wrong_is_named(scheme: type[Position], said: str) -> None:
    outcome = check(Dense, position=scheme)[-1]
    assert outcome.check == "shapes" and outcome.measured.startswith(said)


class Gated(Dense):
    """Right, and starts at zero: a check that trusts initial values would see nothing of it."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.gate = torch.nn.Parameter(torch.zeros(config.dim))

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask) * self.gate


def test_a_gate_at_zero_hides_nothing() -> None:
    assert not [each for each in check(Gated, only=CHEAP) if each.result == "failed"]


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


def test_a_variant_of_another_kind_passes_by_what_it_declares() -> None:
    found = {each.check: each for each in check(Linear)}
    assert not [each for each in found.values() if each.result == "failed"]
    assert found["dropout"].result == "not declared"
    assert "(declared 1)" in found["saved bytes"].measured


class KeepsAll(Dense):
    """Says that it has no weights to drop."""

    has_attention_dropout = False


def test_dropout_without_weights_to_drop_is_refused_in_the_plan() -> None:
    base = {"task": "pydocs", "train": {"steps": 1}, "variant": "test_check:KeepsAll"}
    found = plan({"study": "drops", "base": base, "grid": {"model.attention_dropout": [0.0, 0.1]}})
    ((cell, _),) = found.refused
    assert cell.refusal == "KeepsAll: has no attention weights to drop (model.attention_dropout)"


class NeedsEvenHeads(ByHand):
    """Takes some shapes only."""

    @classmethod
    def unsupported(cls, *, heads: int, **config: Any) -> str | None:
        return "it pairs its heads" if heads % 2 else super().unsupported(heads=heads, **config)


def test_a_shape_is_found_that_the_variant_takes() -> None:
    found = {each.check: each for each in check(NeedsEvenHeads, only=CHEAP)}
    assert "2 heads" in found["shapes"].measured
    assert (found["one head"].result, found["one head"].measured) == ("refused", "it pairs its heads")


def test_the_verb_prints_a_table_and_ends_with_0(capsys: Out) -> None:
    assert main.main(["check", "dense", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["check", "result", "time", "measured"]
    assert {line.split("  ")[0] for line in lines[2:-2]} == set(CHECKS)
    assert lines[-1].startswith("dense (no position scheme, backend reference, cpu): 35 passed, in ")


def test_the_verb_names_what_is_broken_and_what_to_change(capsys: Out) -> None:
    assert main.main(["check", BROKEN, "--device", "cpu"]) == 1
    out = capsys.readouterr().out
    failed = [line.removeprefix("FAILED ") for line in out.splitlines() if line.startswith("FAILED")]
    assert failed == ["causality by value", "causality by gradient", "hooks act", "bias lands"]
    assert "causal, batch 1, length 2: changing input 1 changes output 0, which comes before it" in out
    assert "Add `self.position.bias(q, k, scale=scale)` to scaled logits" in out


def test_the_verb_tells_a_refusal_and_a_wrong_name_in_one_line(capsys: Out) -> None:
    assert main.main(["check", "test_check:Linear", "--position", "relative"]) == 2
    assert "does not support a position scheme that acts by 'bias'" in capsys.readouterr().err
    assert main.main(["check", "examples/nothing.py:Here"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_every_variant_declares_growth_that_can_hold() -> None:
    for name in VARIANTS.names():
        cls: type[Variant] = VARIANTS.get(name)
        assert 1 <= cls.cost_exponent <= 2, name
