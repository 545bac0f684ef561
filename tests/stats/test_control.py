"""Tests of a study's control: without one that is worse, a verdict of equivalent is not supported."""

from dataclasses import replace
from typing import Any

import pytest

from attnlab.report.figures import cell_colors, draw_differences
from attnlab.report.notes import control_notes
from attnlab.report.summary import summarize
from attnlab.report.verdicts import notes, verdict_table
from attnlab.report.wording import describe_verdict
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.stats.verdict import Sensitivity, VerdictKind
from tests.report.test_summary import ONE, STEADY, shifted, study
from tests.support.specs import changed, comparison_spec

# Each comparison has its own variance: a noisy control would make the others inconclusive.
ALONE = replace(ONE, moderate=False)
CONTROLLED = replace(ALONE, control={"variant": "none"})
NEAR, FAR, SMALL, NOISY = shifted(0, 0.003), shifted(0.1), shifted(0.01), shifted(0.01, 0.04)


def verdict_of(cells: list[CellSummary], name: str) -> Any:
    return next(cell.verdict for cell in cells if cell.name == name)


@pytest.mark.parametrize(
    ("control", "shown"),
    [
        (FAR, Sensitivity.SHOWN),
        (NOISY, Sensitivity.NOT_SHOWN),
        (shifted(-0.1), Sensitivity.NOT_SHOWN),
        (SMALL, Sensitivity.WITHIN_MARGIN),
        (None, Sensitivity.NO_RESULT),
    ],
)
@pytest.mark.parametrize(("values", "kind"), [(NEAR, VerdictKind.EQUIVALENT), (STEADY, VerdictKind.IDENTICAL)])
def test_equivalence_needs_a_control_that_is_worse(
    control: list[float] | None, shown: Sensitivity, values: list[float], kind: VerdictKind
) -> None:
    cells = {"dense": STEADY, "no_wo": values, **({} if control is None else {"none": control})}
    verdict = verdict_of(study(cells, CONTROLLED), "no_wo")
    assert (verdict.kind, verdict.sensitivity) == (kind, shown)
    assert verdict.is_unsupported == (shown is not Sensitivity.SHOWN)
    assert ("but the control" in describe_verdict(verdict)) == verdict.is_unsupported
    assert verdict_of(study(cells, ALONE), "no_wo").sensitivity is None, "without a control, equivalent stands"


def test_a_control_that_diverged_shows_nothing() -> None:
    cells = study({"dense": STEADY, "no_wo": NEAR}, CONTROLLED, none="diverged")
    assert verdict_of(cells, "no_wo").sensitivity is Sensitivity.NO_RESULT


def test_other_verdicts_do_not_depend_on_the_control() -> None:
    cells = study({"dense": STEADY, "worse": FAR, "open": NOISY, "none": NOISY}, CONTROLLED)
    assert all(verdict_of(cells, name).sensitivity is None for name in ("worse", "open", "none"))


def test_the_control_counts_among_the_differences_and_not_among_the_equivalences() -> None:
    """The smallest of the other p-values is multiplied by the number of tests: with and without the control's."""
    cells = {"dense": STEADY, "a": NOISY, "b": [v + 0.001 for v in NOISY], "none": shifted(0.02, 0.05)}
    with_control, without = study(cells, CONTROLLED), study(cells, ALONE)
    for column, tests in (("p_holm", 3), ("p_equivalent_holm", 2)):
        name = column.removesuffix("_holm")
        raw = [getattr(c.difference, name) for c in with_control if c.difference and getattr(c.difference, name) is not None]
        corrected = [getattr(c.difference, column) for c in with_control if c.difference]
        assert len(raw) == tests and min(p for p in corrected if p is not None) == min(1.0, tests * min(raw))
    control = with_control[-1].difference
    assert control is not None and control.p_equivalent is None and without[-1].difference.p_equivalent is not None  # type: ignore[union-attr]


def by_position(values: dict[tuple[str, str], list[float]], **spec: Any) -> list[CellSummary]:
    """Return the cell summaries of a study with two axes, from (variant, position) -> values by seed."""
    records = [
        {"variant": v, "position": p, "cell": f"{v} {p}", "seed": i, "state": "completed", "bits_per_byte": value}
        for (v, p), numbers in values.items()
        for i, value in enumerate(numbers)
    ]
    options = {"baseline": {"variant": "dense"}, "margin": 0.02, "control": {"variant": "none"}, "moderate": False, **spec}
    return summarize_cells(records, comparison_spec("s", ("variant", "position"), "bits_per_byte", "min", **options))


def test_each_cell_has_the_control_with_its_own_other_axes() -> None:
    values = {(v, p): STEADY if v == "dense" else NEAR for v in ("dense", "no_wo") for p in ("learned", "rotary")}
    values |= {("none", "learned"): FAR, ("none", "rotary"): NOISY}
    cells = by_position(values)
    assert verdict_of(cells, "no_wo learned").sensitivity is Sensitivity.SHOWN
    assert verdict_of(cells, "no_wo rotary").sensitivity is Sensitivity.NOT_SHOWN
    one_control = by_position(values, control={"variant": "none", "position": "learned"})
    assert verdict_of(one_control, "no_wo rotary").sensitivity is Sensitivity.SHOWN


def test_each_baseline_has_its_own_comparison_with_the_control() -> None:
    """The control is worse than dense and not than gru, which is as bad."""
    values = {"dense": STEADY, "gru": FAR, "near dense": NEAR, "near gru": [v + 0.1 for v in NEAR], "none": shifted(0.1, 0.04)}
    spec = changed(CONTROLLED, further_baselines=({"variant": "gru"},), moderate=False)
    cells = {cell.name: cell for cell in study(values, spec)}
    near_gru = next(c for c in cells["near gru"].further if c.baseline == "gru")
    assert cells["near dense"].verdict.sensitivity is Sensitivity.SHOWN  # type: ignore[union-attr]
    assert near_gru.verdict.sensitivity is Sensitivity.NOT_SHOWN  # type: ignore[union-attr]


def test_table_summary_plot_and_notes_say_so() -> None:

    cells = study({"dense": STEADY, "no_wo": NEAR, "none": NOISY}, CONTROLLED)
    row = next(row for row in verdict_table(cells, CONTROLLED).rows if row.cells[0] == "no_wo")
    assert any("equivalent" in text and "could not have seen a difference" in text for text in row.cells)
    sentence = summarize(cells, CONTROLLED).text
    assert "`no_wo` is as good" in sentence and "control `none` was not found worse" in sentence
    (note,) = control_notes(cells, CONTROLLED)
    assert "Control: none" in note and note in notes(cells, CONTROLLED) and not control_notes(cells, ONE)
    forest = draw_differences(cells, CONTROLLED, cell_colors(cells))[0].svg
    assert "none (control)" in forest and "no_wo (control not worse)" in forest


def test_a_supported_equivalence_reads_as_before() -> None:
    cells = study({"dense": STEADY, "no_wo": NEAR, "none": FAR}, CONTROLLED)
    assert describe_verdict(verdict_of(cells, "no_wo")) == "equivalent within the margin"
    assert summarize(cells, CONTROLLED).text.startswith("`no_wo` is as good as `dense`, within 0.02 bits per byte. The control")
