"""Tests of the court of claims: the section of a study, the rulings, the page, and the committed claims."""

import csv
import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy
import pandas
import pytest
import yaml

from attnlab.cli.main import main
from attnlab.config.question import OF_DIFFERENCES, ClaimConfig, Direction, EstimandConfig
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.extras.claims.cli import _has_enough_seeds
from attnlab.extras.claims.court import MAX_SEEDS, Claim, describe_statement, judge, read_claims
from attnlab.extras.claims.page import _ability, baselines, measured, summarize, write_page
from attnlab.extras.claims.ruling import Evidence, RulingKind, gather, rule
from attnlab.planning.plan import plan as make_plan
from attnlab.report.stored import load
from attnlab.stats.compare import summarize_cells
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import VerdictKind
from attnlab.study.comparison import compare_info
from attnlab.tracking.experiment import Call
from tests.support.paths import ROOT
from tests.support.specs import comparison_spec

UPHELD, REFUTED, NOT_SETTLED = RulingKind.UPHELD, RulingKind.REFUTED, RulingKind.NOT_SETTLED
OUTCOMES = (
    "better",
    "worse",
    "equivalent",
    "grows",
    "shrinks",
    "steady",
    "changes",
    "changes sign",
    "can",
    "cannot",
)
FLIPPED: dict[Direction, Direction] = {
    "better": "worse",
    "worse": "better",
    "not worse": "worse",
    "equivalent": "different",
    "different": "equivalent",
    "grows": "shrinks",
    "shrinks": "grows",
    "steady": "changes",
    "changes": "steady",
    "can": "cannot",
    "cannot": "can",
}
STUDIES = ROOT / "ablations" / "claims"
STUDY = {
    "study": "claimed",
    "base": {"task": {"name": "pydocs", "length": 24}, "model": {"dim": 12, "depth": 1, "heads": 2}, "train": {"steps": 2}},
    "grid": {"variant": ["dense", "no_wo"]},
    "baseline": {"variant": "dense"},
}
STATED = {"sentence": "Wo helps.", "source": "somebody", "cell": {"variant": "no_wo"}, "direction": "worse"}


def claim(direction: Direction, **fields: Any) -> ClaimConfig:
    return ClaimConfig(sentence="s", source="s", cell={"variant": "x"}, direction=direction, **fields)


def evidence(outcome: str, **fields: Any) -> Evidence:
    return Evidence("x", outcome, 5, **fields)


# ---------------------------------------------------------------- the section of a study


def test_the_cells_of_a_claim_become_labels() -> None:
    study = read_study({**STUDY, "claim": {**STATED, "cell": {"variant": {"name": "no_wo"}}}})
    assert study.claim is not None and study.claim.cell == {"variant": "no_wo"}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"cell": {"variant": "absent"}}, "absent"),
        ({"cell": {"positions": "rotary"}}, "positions"),
        ({"cell": None}, "cell and effect"),
        ({"effect": "gate"}, "cell and effect"),
        ({"cell": None, "effect": "gate"}, "factors"),
        ({"direction": "grows"}, "over"),
        ({"direction": "helps"}, "direction"),
        ({"baseline": {"variant": "no_wo"}}, "baselines"),
        ({"size": 0}, "size"),
        ({"sentence": ""}, "sentence"),
    ],
)
def test_a_claim_that_the_study_cannot_judge_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        read_study({**STUDY, "claim": {**STATED, **fields}})
    with pytest.raises(UserError, match=named):
        read_study({**STUDY, "claims": {"first": STATED, "second": {**STATED, **fields}}})


def test_a_claim_on_a_difference_needs_a_baseline() -> None:
    without = {name: value for name, value in STUDY.items() if name != "baseline"}
    with pytest.raises(UserError, match="baseline"):
        read_study({**without, "claim": STATED})
    assert read_study({**without, "claim": {**STATED, "direction": "can"}}).claim is not None


# ---------------------------------------------------------------- rulings


def flipped(stated: ClaimConfig) -> ClaimConfig:
    """The contrary claim: it is refuted whenever the claim is upheld."""
    return stated.model_copy(update={"direction": FLIPPED[stated.direction], "size": None})


@pytest.mark.parametrize(("direction", "outcome"), list(product(get_args(Direction), OUTCOMES)))
def test_a_flipped_claim_is_refuted_when_the_claim_is_upheld(direction: Direction, outcome: str) -> None:
    stated = claim(direction)
    if rule(stated, [evidence(outcome)]).kind is UPHELD:
        small = (direction, outcome) == ("not worse", "equivalent")  # perhaps worse, by less than the margin
        assert rule(flipped(stated), [evidence(outcome)]).kind is (NOT_SETTLED if small else REFUTED)


def test_each_direction_is_upheld_by_an_outcome_and_no_direction_by_an_inconclusive_one() -> None:
    for direction in FLIPPED:
        assert any(rule(claim(direction), [evidence(outcome)]).kind is UPHELD for outcome in OUTCOMES), direction
        assert rule(claim(direction), [evidence("inconclusive")]).kind is NOT_SETTLED
        assert rule(claim(direction), []).kind is NOT_SETTLED


def test_equivalence_refutes_a_size_that_is_larger_than_the_margin_only() -> None:
    found = [evidence("equivalent", margin=0.02)]
    assert rule(claim("better", size=0.05), found).kind is REFUTED
    assert rule(claim("better", size=0.01), found).kind is NOT_SETTLED
    assert rule(claim("better"), found).kind is NOT_SETTLED


def test_an_interval_within_the_size_refutes_it_without_a_margin() -> None:
    within, beyond = (evidence("inconclusive", mean=0.0, low=-0.008, high=high) for high in (0.006, 0.012))
    assert rule(claim("better", size=0.01), [within]).kind is REFUTED
    assert rule(claim("better", size=0.01), [beyond]).kind is NOT_SETTLED
    assert rule(claim("better"), [within]).kind is NOT_SETTLED
    assert rule(claim("better", size=0.01), [replace(within, outcome="better")]).kind is UPHELD


def test_a_refuted_claim_says_what_was_found() -> None:
    assert rule(claim("equivalent"), [evidence("better"), evidence("inconclusive")]).reasons == ["better"]
    assert rule(claim("better", size=0.05), [evidence("equivalent", margin=0.02)]).reasons == ["smaller than published"]
    assert rule(claim("better"), [evidence("inconclusive")]).reasons == ["inconclusive"]


def test_a_claim_about_several_cells_is_about_all_of_them() -> None:
    stated = claim("better")
    assert rule(stated, [evidence("better"), evidence("better")]).kind is UPHELD
    assert rule(stated, [evidence("better"), evidence("inconclusive")]).kind is NOT_SETTLED
    assert rule(stated, [evidence("better"), evidence("worse")]).kind is REFUTED


def test_a_claim_that_two_lengths_of_training_answer_differently_depends_on_it() -> None:
    stated, short = claim("better"), evidence("worse", steps="600")
    ruling = rule(stated, [short, evidence("better", steps="2400")])
    assert ruling.kind is RulingKind.DEPENDS and ruling.reasons == ["worse after 600 steps", "better after 2400 steps"]
    assert rule(stated, [short, evidence("inconclusive", steps="2400")]).kind is REFUTED
    assert rule(stated, [short, evidence("worse", steps="2400")]).kind is REFUTED
    twice = [evidence(outcome, steps="600") for outcome in ("better", "worse")]
    assert rule(stated, twice).kind is REFUTED, "two cells after one length"


def test_the_length_of_training_is_the_level_over_which_a_study_compares() -> None:
    runs = [
        {
            "cell": f"{name} {steps}",
            "variant": name,
            "train.steps": steps,
            "state": "completed",
            "seed": seed,
            "loss": loss + noise * (3 if name == "x" else 1),
        }
        for name, steps, loss in (("dense", "6", 2.0), ("x", "6", 2.1), ("dense", "24", 1.0), ("x", "24", 0.9))
        for seed, noise in enumerate((0.0, 0.001, -0.001, 0.0005))
    ]
    for over, kind in (("train.steps", RulingKind.DEPENDS), ("", REFUTED)):
        spec = comparison_spec("s", ["variant", "train.steps"], "loss", "min", {"variant": "dense"}, over=over)
        found = gather(claim("better"), summarize_cells(runs, spec), margin=None, over=over)
        assert rule(claim("better"), found).kind is kind
        assert {one.steps for one in found} == ({"6", "24"} if over else {""})


@pytest.mark.parametrize(("looks", "outcome"), [(None, "can"), (Looks(4, 20), "inconclusive")])
def test_a_solve_rate_is_judged_by_the_interval_of_its_page(looks: Looks | None, outcome: str) -> None:
    rate = EstimandConfig(name="solve_rate", threshold=0.5)
    spec = comparison_spec("s", ["variant"], "accuracy", "max", estimand=rate, looks=looks)
    runs = [{"cell": "x", "variant": "x", "state": "completed", "seed": seed, "accuracy": 1.0} for seed in range(6)]
    (cell,) = summarize_cells(runs, spec)
    (one,) = gather(claim("can"), [cell], margin=None)
    assert cell.estimate is not None and (one.low, one.high) == (cell.estimate.low, cell.estimate.high)
    assert one.outcome == outcome
    assert one.conditions == (() if outcome == "inconclusive" else ("solved by more than half of the seeds",))


def test_an_ability_that_differs_by_less_than_the_margin_is_not_just_equivalent() -> None:
    assert "different" in _ability(evidence("equivalent", mean=0.02, low=0.01, high=0.03))
    assert _ability(evidence("equivalent", mean=0.01, low=-0.01, high=0.03)).endswith(" equivalent")


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-0.04, -0.01, "at most half"),
        (-0.09, -0.01, "less than"),
        (-0.20, -0.05, "lies in"),
        (-0.40, -0.15, "more than"),
    ],
)
def test_the_measured_size_is_compared_with_the_published_one(low: float, high: float, words: str) -> None:
    ruling = rule(claim("better", size=0.1), [evidence("better", mean=(low + high) / 2, low=low, high=high)])
    assert words in ruling.size


# ---------------------------------------------------------------- the committed claims


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    return [judge(claim, ROOT / "reports" / "claims") for claim in read_claims(STUDIES)]


def test_a_control_that_is_not_upheld_says_what_happened(cases: list[Any]) -> None:
    controls = [case for case in cases if case.claim.config.known]
    assert len(controls) == 20 and all(case.ruling.kind is not REFUTED for case in controls)
    told = {case.claim.id for case in controls if case.claim.config.history}
    assert told == {"K06-two", "K08-long"} >= {case.claim.id for case in controls if case.ruling.kind is not UPHELD}


def test_the_questions_of_textbooks_are_read_first() -> None:
    first = (ROOT / "reports" / "claims" / "README.md").read_text().split("\n## ")[1]
    asked = {line.split(".")[0] for line in first.splitlines() if line.startswith("| ")}
    assert asked - {"| claim | verdict | measured | baseline | scale | source |"} == {
        "| N03",
        "| N03-source",
        "| W01",
        "| W02",
        "| W02-source",
        "| N04",
        "| W02-long",
    }


def test_what_a_study_does_not_judge_is_listed_with_its_result_and_not_counted(cases: list[Any]) -> None:
    apart = {case.claim.id for case in cases if case.claim.config.not_judged}
    assert apart == {"N02-copy", "N02-flip-flop", "N05", "N11", "S05", "S13"}
    page = (ROOT / "reports" / "claims" / "README.md").read_text()
    assert f"**{summarize(cases)}**" in page and f"{len(cases) - len(apart) - 20} claims:" in page
    for case in cases:
        assert (f"- {case.claim.id}: {case.claim.config.sentence} ({case.verdict}" in page) == (case.claim.id in apart)
        assert (f"| {case.claim.id}. " in page) == (case.claim.id not in apart)


def test_claims_on_models_that_xz_beats_are_marked(cases: list[Any]) -> None:
    found = {case.claim.id: baselines(case) for case in cases}
    ((bits, rivals),) = found["W02"]
    assert bits == pytest.approx(2.502, abs=1e-3) and not found["W01"]
    assert rivals == {"xz": pytest.approx(2.434, abs=1e-3), "an n-gram model": pytest.approx(1.674, abs=1e-3)}
    weak = [case for case in cases if not (case.claim.config.known or case.claim.config.not_judged) and found[case.claim.id]]
    weak = [case for case in weak if max(bits - rivals["xz"] for bits, rivals in found[case.claim.id]) >= 0]
    assert f"{len(weak)} of them compare models that xz beats" in summarize(cases)


def test_the_flipped_copy_of_each_upheld_claim_is_refuted(cases: list[Any]) -> None:
    upheld = [case for case in cases if case.ruling and case.ruling.kind is UPHELD]
    assert upheld
    for case in upheld:
        assert rule(flipped(case.claim.config), case.ruling.evidence).kind is REFUTED, case.claim.id


RECIPE = (
    *("task", "position", "model.dim", "model.depth", "model.heads", "model.initialization"),
    "train.steps",
    "train.batch_size",
)


def recipes(runs: Any) -> set[tuple[str, ...]]:
    return {tuple(str(row.get(name)).removesuffix(" tokens=bytes") for name in RECIPE) for _, row in runs.iterrows()}


def test_einsum_is_equivalent_in_the_recipe_of_every_study_about_loss(cases: list[Any]) -> None:
    folders = {case.folder: case.pages for case in cases if case.folder and case.pages[0].info.spec.metric == "bits_per_byte"}
    of_einsum: set[tuple[str, ...]] = set()
    of_study: dict[str, set[tuple[str, ...]]] = {}
    for folder, pages in folders.items():
        reports = [path.parent for path in (*folder.glob("report.json"), *folder.glob("*/report.json"))]  # of each task
        runs: Any = pandas.concat([load(report)["runs"] for report in reports])
        cells = [cell for page in pages for cell in page.cells]
        plain = runs[runs["variant"].isin(["dense", "transformer_xl"])]
        baselines = [cell.name for cell in cells if cell.is_baseline] or list(plain["cell"])
        of_study[folder.name] = recipes(plain[plain["cell"].isin(baselines)])
        for cell in cells:
            if (of_cell := runs[runs["cell"] == cell.name])["variant"].iloc[0] == "einsum":
                same = VerdictKind.EQUIVALENT, VerdictKind.IDENTICAL
                assert cell.verdict.kind in same, (folder.name, cell.name)
                of_einsum |= recipes(of_cell)
    assert len(of_study) >= 10
    without = [name for name, of_baselines in of_study.items() if not of_baselines & of_einsum]
    assert without == ["aa"], "whose cells are one model, trained twice"


def test_claims_about_loss_show_the_abilities_of_the_same_cells(cases: list[Any]) -> None:
    about_loss = [case for case in cases if case.pages and case.pages[0].info.spec.metric == "bits_per_byte"]
    without = {case.claim.id for case in about_loss if not case.abilities and not case.claim.id.startswith("A0")}
    # A memory over segments, subwords, and the model of W02 after a longer training.
    assert without == {"K09", "T01", "W02-long"}


def test_other_seeds_rule_as_the_how_to_says(cases: list[Any]) -> None:
    rows = list(csv.DictReader((ROOT / "reports/claims/again.csv").read_text(encoding="utf-8").splitlines()))
    now = {case.claim.id: case for case in cases}
    for row in rows:
        estimates = {one.name: one.mean for one in now[row["claim"]].ruling.evidence}
        assert (now[row["claim"]].verdict, estimates[row["result"]]) == (row["verdict"], pytest.approx(float(row["estimate"])))
    claims = {row["claim"] for row in rows}
    same = {row["claim"] for row in rows if row["verdict"] == row["verdict_again"]}
    assert (len(claims), same, [row["same_sign"] for row in rows]) == (12, claims, ["True"] * 14)
    text = (ROOT / "docs/how-to/claim.md").read_text(encoding="utf-8")
    assert "12 claims were run a second time" in text and "All 12 were ruled the same" in text and "the 14 differences" in text


def test_the_committed_page_is_the_one_that_the_reports_give(cases: list[Any], tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "claims"
    write_page(folder, [replace(case, folder=case.folder and tmp_path / case.folder.relative_to(ROOT)) for case in cases])
    assert (folder / "README.md").read_text(encoding="utf-8") == (ROOT / "reports/claims/README.md").read_text(encoding="utf-8")


def test_a_tie_is_rounded_alike_on_every_processor() -> None:
    tie = [math.nextafter(-0.00725, end) for end in (-1.0, 1.0)]
    assert len({measured([Evidence("", "better", mean=mean, low=mean, high=mean)]) for mean in tie}) == 1


def test_the_page_says_when_a_claim_was_stated(cases: list[Any]) -> None:
    (case,) = [case for case in cases if case.claim.id == "K02-lstm"]
    assert "after its results" in case.remarks[0]
    (call, *_) = case.pages[0].info.calls
    text = case.claim.path.read_text(encoding="utf-8").replace("worse", "better")
    pages = tuple(replace(page, info=replace(page.info, calls=(replace(call, text=text),))) for page in case.pages)
    remarks = list(describe_statement(case.claim, pages))
    assert "changed after the first run" in remarks[0] and "direction" in remarks[0]


def test_claims_that_one_file_states_were_stated_together(cases: list[Any], tmp_path: Path) -> None:
    several = {"one": STATED, "two": {**STATED, "sentence": "Wo is negligible.", "direction": "equivalent"}}
    (tmp_path / "several.yaml").write_text(json.dumps({**STUDY, "claims": several}), encoding="utf-8")
    one, two = read_claims(tmp_path)
    assert [one.id, two.id] == ["one", "two"] and read_claims(tmp_path, ["two"]) == [two]
    assert [one.config.direction, two.config.direction] == ["worse", "equivalent"]
    (case,) = [case for case in cases if case.claim.id == "K06-one"]
    first, later = (Call("", "", json.dumps({**STUDY, "claims": stated})) for stated in ({"one": STATED}, several))
    pages = tuple(replace(page, info=replace(page.info, calls=(first, later))) for page in case.pages)
    assert [describe_statement(claim, pages) for claim in (one, two)] == [[], ["stated after the first run of the study"]]


def test_the_page_says_when_the_study_has_changed_since_its_runs(cases: list[Any], tmp_path: Path) -> None:
    (case,) = [case for case in cases if case.claim.id == "K06-one"]
    assert case.remarks == ()
    path = tmp_path / "K06-one.yaml"
    path.write_text(case.claim.path.read_text(encoding="utf-8").replace("steps: 600", "steps: 1200"), encoding="utf-8")
    (changed,) = read_claims(tmp_path)
    (remark,) = describe_statement(changed, case.pages)
    assert "changed since its runs: base" in remark


def test_the_picture_shows_the_differences_with_the_published_ones(cases: list[Any], tmp_path: Path) -> None:
    (case,) = [case for case in cases if case.claim.id == "S06"]  # better by 0.22 bits per byte
    config = case.claim.config.model_copy(update={"size": 0.1})
    study = case.claim.study.model_copy(update={"claim": config})
    sized = replace(case, claim=replace(case.claim, study=study), ruling=rule(config, case.ruling.evidence))
    assert sized.verdict == "upheld at this scale, more than the published size"
    far = replace(sized, ruling=replace(sized.ruling, evidence=[replace(sized.ruling.evidence[0], mean=-9.0, name="far")]))
    write_page(tmp_path, [sized, sized, sized, far])
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count(">S06 forget_gate<") == 3 and "difference in bits per byte" in page and "too far: S06" in page
    assert f"{sized.ruling.evidence[0].mean:.4f}, upheld" in page and "S06 far" not in page and page.count("<circle") == 3, (
        "a ring for each published size"
    )
    write_page(tmp_path, [sized, sized])
    assert "<svg" not in (tmp_path / "index.html").read_text(encoding="utf-8"), "too few for a picture"


def test_the_page_says_where_the_cost_of_more_seeds_is_the_reason(
    cases: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case,) = [case for case in cases if case.claim.id == "N05"]
    write_page(tmp_path, [case])
    assert "- N05: 3 seeds took 56 min" in (tmp_path / "README.md").read_text(encoding="utf-8")
    monkeypatch.setattr("attnlab.extras.claims.page.BUDGET", 600)
    write_page(tmp_path, [case])
    assert "seeds took" not in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_every_claim_that_is_not_settled_has_all_seeds_or_a_cost_as_the_reason(cases: list[Any], tmp_path: Path) -> None:
    write_page(tmp_path, cases)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    is_open = [case for case in cases if case.ruling is not None and not case.is_settled]
    fewest = {case.claim.id: min(one.seeds for one in case.ruling.evidence) for case in is_open}
    assert len(fewest) > 5
    assert not [
        name for name, seeds in fewest.items() if seeds < MAX_SEEDS and f"- {name}: " not in page.partition("## Not settled")[2]
    ]


def test_the_page_lists_published_figures_and_what_contradicts_them(cases: list[Any], tmp_path: Path) -> None:
    (case,) = [case for case in cases if case.claim.id == "N05"]
    assert "1907.11692" in case.claim.config.disputed
    write_page(tmp_path, [case])
    for name in ("README.md", "index.html"):
        page = (tmp_path / name).read_text(encoding="utf-8")
        assert "What contradicts the claims" in page and "1907.11692" in page and "Published figures" not in page


def test_the_page_shows_what_the_same_cells_score_in_a_study_of_abilities(cases: list[Any], tmp_path: Path) -> None:
    (case,) = [case for case in cases if case.claim.id == "W02"]

    def judged(study: str) -> Any:
        config = case.claim.config.model_copy(update={"abilities": study})
        return judge(
            replace(case.claim, study=case.claim.study.model_copy(update={"claim": config})), ROOT / "reports" / "claims"
        )

    assert judged("absent").abilities == judged("").abilities == judged("copying").abilities == ()
    beside = judged(case.claim.study.study)  # for the test, the study of the claim itself
    (same,) = case.ruling.evidence
    assert beside.abilities == (replace(same, name="pydocs length=128"),)
    write_page(tmp_path, [beside])
    for name in ("README.md", "index.html"):
        page = (tmp_path / name).read_text(encoding="utf-8")
        assert "The same changes and abilities" in page and f"{beside.abilities[0].outcome}" in page


def test_a_cell_that_the_report_lacks_leaves_the_claim_open(cases: list[Any], tmp_path: Path) -> None:
    (case,) = [case for case in cases if case.claim.id == "S12"]
    config = case.claim.config.model_copy(update={"cell": {"layers": "absent"}})
    absent = replace(case.claim, study=case.claim.study.model_copy(update={"claim": config}))
    without = judge(absent, ROOT / "reports" / "claims")
    assert without.ruling is not None and not without.ruling.evidence and not without.is_settled
    write_page(tmp_path, [without])
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "not settled" in page and "would take longer" not in page


def test_a_size_that_the_seeds_cannot_see_is_out_of_reach(cases: list[Any]) -> None:
    stated: Claim = cases[0].claim

    def with_size(size: float) -> Claim:
        config = stated.config.model_copy(update={"size": size, "scatter": 0.01})
        return replace(stated, study=stated.study.model_copy(update={"claim": config}))

    assert with_size(0.002).is_out_of_reach and not with_size(0.02).is_out_of_reach
    assert not stated.is_out_of_reach


def test_seeds_are_not_added_for_a_comparison_that_the_claim_is_not_about(cases: list[Any]) -> None:
    (case,) = [case for case in cases if case.claim.id == "K06-one"]
    plan = make_plan(case.claim.path)
    assert len(plan.seeds) == 8 and _has_enough_seeds(case.claim, plan)
    study = case.claim.study.model_copy(update={"claim": case.claim.config.model_copy(update={"direction": "worse"})})
    assert not _has_enough_seeds(replace(case.claim, study=study), plan)


def test_the_list_shows_every_claim(
    capsys: pytest.CaptureFixture[str], cases: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["claims", "list", "K02-lstm", "N01"]) == 0
    printed = capsys.readouterr().out
    assert "K02-lstm" in printed and "N01" in printed and "K03" not in printed
    assert "1 upheld" in printed and "1 refuted" in printed
    assert max(map(len, printed.splitlines()[:-1])) <= 80
    assert main(["claims", "list", "K02-lsmt"]) == 2
    assert "K02-lstm" in capsys.readouterr().err


def test_a_study_of_ones_own_is_a_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`claims run` trains the study, writes its report and the page, and leaves a settled claim alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / "runs"))
    folder = tmp_path / "ablations" / "claims"
    folder.mkdir(parents=True)
    study = {
        **STUDY,
        "grid": {"position": ["none", "learned"]},
        "baseline": {"position": "none"},
        "seeds": [0, 1],
        "margin": 8.0,
    }
    study["base"] = {
        **STUDY["base"],
        "variant": "dense",
        "train": {"steps": 2, "batch_size": 2},
        "evaluate": {"valid_limit": 200, "test_limit": 200},
    }
    stated = {"sentence": "Two steps make no difference.", "source": "a test", "cell": {"position": "learned"}}
    text = yaml.safe_dump({**study, "claim": {**stated, "direction": "worse", "size": 9.0}})
    (folder / "X1.yaml").write_text(text, encoding="utf-8")
    assert main(["claims", "run", "X1", "--workers", "1"]) == 0
    (case,) = [judge(claim, Path("reports/claims")) for claim in read_claims(folder)]
    assert case.remarks == ()  # the claim was in the file when the study was first run
    assert case.ruling is not None and case.ruling.evidence
    assert "X1" in Path("reports/claims/README.md").read_text(encoding="utf-8")
    assert summarize([case]) in capsys.readouterr().out
    assert set(OF_DIFFERENCES) >= {case.claim.config.direction}


def test_re_paired_seeds_of_one_variant_uphold_a_claim_as_rarely_as_promised() -> None:
    """The seeds of three cells of an A/A study are shuffled a hundred times."""
    stored = load(ROOT / "reports" / "aa")
    info, runs = stored["info"], stored["runs"]
    stated = [claim(direction) for direction in ("better", "worse")]
    stated = [one.model_copy(update={"cell": {"variant": f"again draws={draw}"}}) for one in stated for draw in (1, 2, 3)]
    rng, upheld = numpy.random.default_rng(0), 0
    for _ in range(100):
        seeds = runs["seed"].copy()
        for cell in set(runs["cell"]) - {"dense"}:
            rows = runs["cell"] == cell
            seeds[rows] = rng.permutation(seeds[rows].to_numpy())
        cells = compare_info(info, runs.assign(seed=seeds)).cells
        upheld += any(rule(one, gather(one, cells, margin=0.02)).kind is UPHELD for one in stated)
    assert upheld <= 11  # 5 of 100, with a probability of 1 % for more than 11
