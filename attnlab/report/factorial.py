"""The effects of a factorial study in words, as a table, as plots and as a section of its page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attnlab._util.colors import PALETTE
from attnlab._util.metrics import in_words
from attnlab.planning.factorial import describe_aliasing, describe_design, describe_ratio, design_notes, format_weight
from attnlab.report.analysis import Analysis, Results
from attnlab.report.plots.rows import ForestRow, forest_plot, forest_row
from attnlab.report.section import Column, Figure, PageSection, Strong, Table, TableRow
from attnlab.report.summary import Summary, as_sentence, describe_margin, list_names
from attnlab.report.wording import (
    DIRECTED,
    better,
    count,
    describe_conditions,
    describe_mark,
    describe_reason,
    describe_seeds,
    describe_verdict,
    format_both,
    format_consistent,
    format_p_value,
)
from attnlab.stats.compare import ComparisonSpec
from attnlab.stats.factorial import Effect, FactorialResult
from attnlab.stats.paired import describe_level
from attnlab.stats.records import as_columns
from attnlab.stats.verdict import VerdictKind

if TYPE_CHECKING:
    import pandas

    from attnlab.planning.plan import Plan

MAX_NAMED = 3  # effects named in one group of the summary
MAIN_COLOR, INTERACTION_COLOR = PALETTE[:2]


def effect_table(result: FactorialResult) -> Table:
    """Return the table of effects, main effects first, for the page and the terminal."""
    columns = [Column("effect", is_text=True), Column("on minus off"), Column("p (Holm)"), Column("verdict", is_text=True)]
    return Table(columns, [TableRow(_effect_texts(effect)) for effect in result.effects])


def _effect_texts(effect: Effect) -> list[str]:
    difference = effect.difference
    if difference.conclusion == "equivalent":
        p = f"{format_p_value(difference.p_equivalent_holm)} (equivalence)"
    else:
        p = format_p_value(difference.p_holm)
    return [name_with_aliases(effect), format_consistent(effect.difference), p, describe_effect_verdict(effect)]


def name_with_aliases(effect: Effect) -> str:
    """Return the name of an effect with the effects that it is aliased with: "a × b (+ c × d)"."""
    aliases = " ".join(f"{format_weight(weight)}{name}" for weight, name in effect.aliases)
    return f"{effect.name} ({aliases})" if aliases else effect.name


def short_name(effect: Effect) -> str:
    """Return the name of an effect for a sentence, a sum as such: "the sum a × b + c × d", "the sum of a × b and 3 others"."""
    others = [f"{format_weight(weight)}{name}" for weight, name in effect.aliases]
    if len(others) > 1:
        return f"the sum of {effect.name} and {len(others)} others"
    return f"the sum {effect.name} {others[0]}" if others else effect.name


def describe_effect_verdict(effect: Effect) -> str:
    """Return the verdict on an effect; an interaction is better or worse than the sum of the single effects."""
    text = describe_verdict(effect.verdict)
    return text.replace(effect.verdict.kind.value, f"{effect.verdict.kind.value} together", 1) if _is_joint(effect) else text


def _is_joint(effect: Effect) -> bool:
    """Return True when two factors are better or worse together; a sum of aliased interactions does not show which two."""
    return effect.verdict.kind in (VerdictKind.BETTER, VerdictKind.WORSE) and not effect.is_main and not effect.aliases


def describe_omissions(result: FactorialResult) -> list[str]:
    """Return sentences on lost runs and on effects that are not estimated for want of runs."""
    texts = []
    if result.lost:
        lost = ", ".join(f"{number} {state}" for state, number in result.lost.items())
        texts.append(f"Some runs have no result ({lost}): effects are estimated from the other {count(result.runs, 'run')}.")
    if result.missing:
        aliased = {name for effect in result.effects for _, name in effect.aliases}
        inside = [name for name in result.missing if name in aliased]
        where = f" {', '.join(inside)} now {'is' if len(inside) == 1 else 'are'} part of other effects." if inside else ""
        texts.append(f"Not estimated, because runs are missing: {', '.join(result.missing)}.{where}")
    return texts


def describe_estimation(result: FactorialResult) -> list[str]:
    """Describe the estimation and the tests of the effects, for the page."""
    design = result.design
    texts = [f"Design: {describe_design(design)}."]
    if aliasing := describe_aliasing(design):
        texts.append(aliasing)
    seeds = max((len(effect.values) for effect in result.effects), default=0)
    ratio = f": {describe_ratio(design, seeds)}" if seeds and not result.lost else ""
    return [*texts, f"Effects are least-squares estimates of a linear model with seeds as blocks{ratio}."]


def effect_notes(result: FactorialResult, spec: ComparisonSpec) -> Iterator[str]:
    """Yield notes on the figures of the table of effects."""
    yield (
        f"Verdicts are at {describe_level(spec.margin)}, corrected by Holm's method over all main effects, and separately over "
        "interactions."
    )
    yield from describe_mark(
        {short_name(effect): effect.difference for effect in result.effects}, of="main effects or interactions"
    )


def _plots(result: FactorialResult, spec: ComparisonSpec) -> Iterator[Figure]:
    """Draw the main effects and the interactions."""
    margin = "" if spec.margin is None else f"; blue: ±{spec.margin:g}"
    for name, rows in effect_rows(result).items():
        if rows:
            title = f"{name} on {spec.metric}"
            thin = " (thin: simultaneous)" if any(row.outer_low is not None for row in rows) else ""
            note = f"on minus off; 95 % interval{thin}; rings: seeds{margin}"
            svg = forest_plot(rows, title=title, note=note, direction=spec.direction, margin=spec.margin)
            yield Figure(f"{name.replace(' ', '-')}.svg", title, svg)


def effect_rows(result: FactorialResult) -> dict[str, list[ForestRow]]:
    """Return the rows of the plots of main effects and of interactions."""
    return {
        "main effects": [_forest_row(effect, MAIN_COLOR) for effect in result.main],
        "interactions": [_forest_row(effect, INTERACTION_COLOR) for effect in result.interactions],
    }


def _forest_row(effect: Effect, color: str) -> ForestRow:
    name, text = name_with_aliases(effect), effect.difference.format()
    return forest_row(name, color, effect.values, effect.difference, text=text, run=short_name(effect))


def summarize_effects(result: FactorialResult, spec: ComparisonSpec) -> Summary:
    """Return the sentences at the top of a factorial study's page: in plain words, the main effects, and everything else."""
    if result.problem:
        return Summary([], [], plain=[f"No effect can be estimated: {result.problem}."])
    main, opening = result.main, f"In {in_words(spec.metric)} ({better(spec.direction)})"
    groups = _groups(main, spec) or [Strong("no effect is conclusive")]
    first = [f"{opening}, of {_count(main, 'main effect')}, ", *groups, "."]
    inconclusive = [effect for effect in main if effect.verdict.kind is VerdictKind.INCONCLUSIVE]
    rest: list[str] = []
    if inconclusive:
        texts = [f"{short_name(effect)} ({format_both(effect.difference)})" for effect in inconclusive]
        reasons = {describe_reason(effect.verdict) for effect in inconclusive}
        reason = f": {reasons.pop()}" if len(reasons) == 1 else ""
        rest += [Strong("Inconclusive"), f": {_list(texts)}{reason}."]
    interactions = result.interactions
    if interactions:
        groups = _groups(interactions, spec)
        label = f"{' ' if rest else ''}Of {_count(interactions, 'interaction')}, "
        rest += [label, *(groups or ["no effect is conclusive"]), "."]
    return Summary(first, rest, plain=_plain(result, spec))


def _plain(result: FactorialResult, spec: ComparisonSpec) -> list[str]:
    """Return the sentences in plain words: the factors that help, the factors that do not, and whether they interact."""
    seeds = describe_seeds([effect.difference.interval.n for effect in result.main])
    words = {
        VerdictKind.BETTER: "better with ",
        VerdictKind.WORSE: "worse with ",
        VerdictKind.EQUIVALENT: f"within {describe_margin(spec)} the same with ",
        VerdictKind.IDENTICAL: "the same with ",
        VerdictKind.INCONCLUSIVE: f"{seeds} cannot tell the effect of ",
    }
    parts: list[str] = []
    for kind, text in words.items():
        effects = [effect for effect in result.main if effect.verdict.kind is kind]
        effects.sort(key=lambda effect: -abs(effect.difference.interval.mean))
        if effects:
            parts += ["; " if parts else "", text, *list_names([short_name(effect) for effect in effects])]
    joint = sum(effect.verdict.kind in DIRECTED for effect in result.interactions)
    depends = f" Factors change each other's effect in {joint} of {count(len(result.interactions), 'interaction')}."
    return [*as_sentence(parts), *([depends] if joint else [])]


def _count(effects: Sequence[Effect], noun: str) -> str:
    """Return the number of effects as in "7 interactions", or of aliased ones "7 sums of interactions and their aliases"."""
    sums = sum(bool(effect.aliases) for effect in effects)
    if sums == len(effects) > 0:
        return f"{count(sums, 'sum')} of {noun}s and their aliases"
    return f"{count(len(effects), noun)}{f', {sums} of them with aliases' if sums else ''}"


def _groups(effects: Sequence[Effect], spec: ComparisonSpec) -> list[str]:
    """Return the number of effects by verdict, the largest ones with their size; empty when none is conclusive."""
    phrases = {
        VerdictKind.BETTER: "better",
        VerdictKind.WORSE: "worse",
        VerdictKind.EQUIVALENT: f"equivalent within ±{spec.margin or 0:g}",
        VerdictKind.IDENTICAL: "zero in every seed",
    }
    parts: list[str] = []
    for kind, phrase in phrases.items():
        group = sorted(
            (effect for effect in effects if effect.verdict.kind is kind),
            key=lambda effect: -abs(effect.difference.interval.mean),
        )
        if group:
            together = " together" if all(map(_is_joint, group)) else ""
            number = Strong(f"{len(group)} {'is' if len(group) == 1 else 'are'} {phrase}{together}")
            parts += [*([", "] if parts else []), number, f" ({_list([_size(effect) for effect in group])})"]
    return parts


def _size(effect: Effect) -> str:
    if effect.verdict.kind not in (VerdictKind.BETTER, VerdictKind.WORSE):
        return short_name(effect)
    p = format_p_value(effect.difference.p_holm, equals=True)
    size = effect.difference.format_size()
    return ", ".join([f"{short_name(effect)}{size}", f"p {p}", *describe_conditions(effect.verdict)])


def _list(texts: Sequence[str]) -> str:
    more = len(texts) - MAX_NAMED
    return "; ".join(texts[:MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


class FactorialAnalysis(Analysis[FactorialResult]):
    """The effects of the factors; `effects.csv` has one row per effect, in the metric's unit: on minus off."""

    def notes(self, plan: Plan) -> Iterable[str]:
        """Return notes on the design and its aliased effects."""
        return design_notes(plan.study, [*plan.cells, *plan.unselected], plan.doubles)

    def estimate(self, results: Results) -> FactorialResult | None:
        """Return the effects with their verdicts."""
        return results.compared.effects(results.spec)

    def lines(self, estimate: FactorialResult, results: Results) -> Iterator[str | Table]:
        """Yield the table of effects and its notes."""
        if estimate.problem:
            yield f"effects: none can be estimated: {estimate.problem}"
            return
        yield effect_table(estimate)
        yield from (*describe_omissions(estimate), *effect_notes(estimate, results.spec))

    def section(self, estimate: FactorialResult, results: Results) -> PageSection:
        """Return the section with the effects and their plots."""
        if estimate.problem:
            return PageSection("Effects", [f"No effect can be estimated: {estimate.problem}."])
        return PageSection(
            "Effects",
            describe_estimation(estimate),
            warnings=describe_omissions(estimate),
            plots=list(_plots(estimate, results.spec)),
            table=effect_table(estimate),
            notes=list(effect_notes(estimate, results.spec)),
            leads=True,
        )

    def summarize(self, summary: Summary, estimate: FactorialResult, results: Results) -> Summary:
        """Replace the summary of the cells, which are not compared with each other, by the summary of the effects."""
        return summarize_effects(estimate, results.spec)

    def frames(self, estimate: FactorialResult, results: Results) -> dict[str, pandas.DataFrame]:
        """Return the effects in full precision."""
        import pandas

        return {"effects": pandas.DataFrame([_record(effect) for effect in estimate.effects])}


def _record(effect: Effect) -> dict[str, Any]:
    return {
        "effect": effect.name,
        "kind": "main" if effect.is_main else "interaction",
        "aliases": "; ".join(f"{weight:+g} {name}" for weight, name in effect.aliases),
        **as_columns(effect.difference.interval, n="seeds", mean="estimate", sd="sd", low="low", high="high"),
        **as_columns(effect.difference, p="p", p_holm="p_holm", p_equivalent_holm="p_equivalent_holm"),
        "verdict": describe_effect_verdict(effect),
    }
