"""Error rates of searched and swept learning rates in a few thousand simulated studies."""

from dataclasses import replace

import numpy
import pytest

from attnlab.stats.compare import summarize_cells
from attnlab.stats.verdict import VerdictKind
from benchmarks.sweeps import SHAPES, SWEEPS, RateDesign, judge, sweep
from tests.support.specs import changed
from tests.support.sweeps import SPEC, sweep_record

STUDIES = 2_000
MOST = 0.06 + 3 * (0.06 * 0.94 / STUDIES) ** 0.5
SETTINGS = {(setting.group, setting.name): setting for setting in SWEEPS.settings}
KINDS = {"better": VerdictKind.BETTER, "worse": VerdictKind.WORSE, "equivalent": VerdictKind.EQUIVALENT}


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ("parabolas 0.3 decades apart, curvature x2", "sweep 5 x 5"),
        ("flat, then a wall 0.15 above, excess 0.3", "sweep 4 x 7"),
        ("very lopsided 0.3 decades apart", "sweep 3 x 3"),
        ("diverging 0.15 above", "sweep 3 x 10"),
        ("spread x10 per decade", "sweep 4 x 3 to 12"),
        ("several equal rates against one", "sweep 5 x 10"),
        ("several equal rates", "sweep 5 x 10"),  # alone, the rates that the other seeds choose give 20 %
    ],
)
def test_a_sweep_has_few_false_verdicts_whatever_the_shape(shape: str, name: str) -> None:
    shares = SETTINGS[shape, name].run(STUDIES, 1)
    assert shares["false"].value <= MOST and shares["false equivalence"].value <= MOST  # type: ignore[union-attr]


@pytest.mark.exhaustive
def test_every_shape_is_promised_and_kept() -> None:
    for setting in SWEEPS.settings:
        shares = setting.run(4_000, 1)
        limit = 0.06 + 3 * (0.06 * 0.94 / 4_000) ** 0.5
        assert setting.not_promised or max(shares["false"].value, shares["false equivalence"].value) < limit, setting  # type: ignore[union-attr]


def test_a_search_has_many_false_verdicts() -> None:
    assert SETTINGS["a search, optima 0.2 decades apart", "search 4, 5 seeds"].run(STUDIES, 0)["false"].value > 0.2  # type: ignore[union-attr]


def test_sweeps_are_promised_at_each_number_of_seeds_and_searches_are_not() -> None:
    promised = {setting.name for setting in SWEEPS.settings if not setting.not_promised}
    assert promised >= {"sweep 3 x 3", "sweep 3 x 5", "sweep 5 x 10"} and not any("search" in name for name in promised)


@pytest.mark.parametrize("shape", ["parabolas, curvature x2", "diverging 0.15 above", "several equal rates against one"])
def test_the_verdicts_are_those_of_a_report(shape: str) -> None:
    design = replace(RateDesign(3, 4), curves=SHAPES[shape])
    look = next(sweep(design, 60, numpy.random.RandomState(0)))
    verdicts, shift = judge(look, 0.02, margin=0.06), numpy.array([0.0, 0.02])
    for study, (runs, tried) in enumerate(zip(look.runs, look.tried, strict=True)):
        losses = (runs + shift[:, None, None])[:, tried]
        records = [
            sweep_record(variant, 10 ** (0.3 * rate - 4), seed, loss if numpy.isfinite(loss) else None)
            for variant, of_cell in zip(("dense", "no_wo"), losses.tolist(), strict=True)
            for rate, of_rate in enumerate(of_cell)
            for seed, loss in enumerate(of_rate)
        ]
        (_, cell) = summarize_cells(records, changed(SPEC, margin=0.06))
        assert cell.verdict is not None
        found = {name for name, kind in KINDS.items() if getattr(verdicts, name)[study, 0]}
        assert found == {name for name, kind in KINDS.items() if cell.verdict.kind is kind}, study
