"""Factorial designs in words: cells, aliasing, runs behind each effect, and the effects that missing cells take away."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from attnlab.components.base import exclusive_pair
from attnlab.config.comparability import describe_changes, task_length, test_identity
from attnlab.config.design import LETTERS, Estimable, FactorialDesign, Point, Term, design_aliases
from attnlab.config.factors import design_cell_name, factorial_design, roman
from attnlab.config.grid import Cell
from attnlab.config.study import StudyConfig
from attnlab.config.types import WITH
from attnlab.errors import UserError
from attnlab.models.parts import component_classes

MAX_NAMED = 6  # effects named in one sentence


def check_factors(cells: Sequence[Cell]) -> None:
    """Check that all factors of a design can be on together.

    Raises:
        UserError: two components that exclude each other, with the place of the second one.
    """
    for cell in cells:
        variant = cell.config.variant
        components = component_classes(variant) if variant else []  # no factor adds components to model.layers
        pair = exclusive_pair(components)
        if pair is not None:
            first, second, place = pair
            alternatives = f"variant.with: [[], [{first.short_name}], [{second.short_name}]]"
            message = (
                f"factors: {first.label} and {second.label} both replace {place}, and the design has cells with both, such as "
                f"{cell.name!r}: compare them in a grid, {alternatives}"
            )
            raise UserError(message, cell.where("variant", WITH, [named for named, _ in components].index(second)))


def describe_design(design: FactorialDesign) -> str:
    """Return the design in a sentence: its cells, and for a fraction its resolution and generators."""
    count = len(design.factors)
    if design.name == "leave_one_out":
        return (
            f"leave_one_out: {design.size} cells of {count} factors: all on, each off while the others are on, and all off. "
            "The effect of a factor is its effect while all others are on"
        )
    if design.name == "full":
        return f"full: all {design.size} combinations of {count} factors"
    names = [f"{LETTERS[i]} = {factor.texts[1]}" for i, factor in enumerate(design.factors)]
    words = [f"{LETTERS[i]} = {''.join(LETTERS[j] for j in word)}" for i, word in design.generators.items()]
    resolution = design.resolution
    assert resolution is not None
    return (
        f"fractional: {design.size} of {2**count} combinations of {count} factors, resolution {roman(resolution)}: "
        f"{', '.join(words)} with {', '.join(names)}"
    )


def describe_aliasing(design: FactorialDesign) -> str:
    """Return which effects a design cannot tell apart; "" for a full one."""
    if design.name == "leave_one_out":
        return "Interactions are only estimated all together: the effect of all factors minus the sum of their single effects."
    resolution = design.resolution
    if resolution is None:
        return ""
    if resolution == 3:
        text = "Main effects are aliased with interactions of two factors: a main effect stands for the sum of both"
    elif resolution == 4:
        text = (
            "Main effects are clear of interactions of two factors and aliased with interactions of three. Interactions of two "
            "factors are aliased with each other: only their sums are estimated"
        )
    else:
        text = f"Main effects and interactions of two factors are aliased only with interactions of {resolution - 2} and more"
    terms, estimable = design_aliases(design, design.points)
    groups = "; ".join(alias_groups(terms, estimable))
    return f"{text}{f': {groups}' if groups else ''}."


def alias_groups(terms: Sequence[Term], estimable: Estimable) -> list[str]:
    """Return the effects that are estimated together, as in "a + b × c"."""
    contained: dict[int, list[str]] = {}
    for term, kept in estimable.aliases.items():
        for i, weight in kept.items():
            contained.setdefault(i, []).append(f"{format_weight(weight)}{terms[term].name}")
    return [" ".join([terms[i].name, *contained[i]]) for i in estimable.kept if i in contained]


def format_weight(weight: float) -> str:
    """Return the sign and the coefficient of an aliased effect, as in "+ ", "- " and "+ 0.5 "."""
    size = "" if abs(weight) == 1 else f"{abs(weight):.2g} "
    return f"{'-' if weight < 0 else '+'} {size}"


def describe_ratio(design: FactorialDesign, seeds: int) -> str:
    """Return the runs behind each main effect, and in a study that changes one factor at a time with as many runs."""
    counts = {
        tuple(sorted((design.level_counts(i)[level] * seeds, design.level_counts(i)[0] * seeds), reverse=True))
        for i, factor in enumerate(design.factors)
        for level in range(1, len(factor.levels))
    }
    if design.name == "leave_one_out":
        counts = {(seeds, seeds)}
    texts = " or ".join(f"{on} runs against {off}" for on, off in sorted(counts))
    single = 1 + sum(len(factor.levels) - 1 for factor in design.factors)
    runs = design.size * seeds
    alone = runs // single
    return f"each main effect from {texts} (one factor at a time with as many runs: {alone} against {alone})"


def design_notes(study: StudyConfig, cells: Sequence[Cell], doubles: Mapping[str, str]) -> Iterator[str]:
    """Yield notes on the cells of the design that will not run, and on what that does to its effects.

    Args:
        study: any study; without factors there are no notes.
        cells: all cells of the study that are run or refused.
        doubles: name of a cell -> name of the cell with the same configuration that is run for it.
    """
    design = factorial_design(study)
    if design is None:
        return
    if change := _change_of_test(cells):
        yield f"no effect can be estimated: the cells are not all tested on the same data in the same way ({change})"
    refused = {cell.name for cell in cells if cell.refusal is not None}
    names = {design_cell_name(design, point): point for point in design.points}
    missing = [name for name in names if name in refused or name in doubles]
    if not missing:
        return
    lost = missing_effects(design, [point for name, point in names.items() if name not in missing])
    listed = ", ".join(repr(name) for name in missing[:MAX_NAMED]) + (", ..." if len(missing) > MAX_NAMED else "")
    reasons = [word for word, where in (("refused", refused), ("equal to another cell", doubles)) if set(missing) & set(where)]
    yield (
        f"{len(missing)} of the {design.size} cells of the design are {' or '.join(reasons)} ({listed}): "
        f"{lost or 'all of its effects can still be estimated'}"
    )


def _change_of_test(cells: Sequence[Cell]) -> str:
    """Return how the test of another cell differs from the first cell's; "" if all have the same test."""
    tests = [json.loads(test_identity(json.loads(cell.config.to_json()), task_length(cell.config))) for cell in cells]
    return next((change for test in tests[1:] if (change := describe_changes(test, tests[0]))), "")


def missing_effects(design: FactorialDesign, points: Sequence[Point]) -> str:
    """Return the effects that the whole design estimates and these cells do not, in words; "" if there are none."""
    if not points:
        return "no effect can be estimated"
    terms, planned = design_aliases(design, design.points)
    _, left = design_aliases(design, points)
    lost = [i for i in planned.kept if i not in left.kept]
    main = [terms[i].name for i in lost if terms[i].is_main]
    others = [i for i in lost if not terms[i].is_main]
    texts = [f"no estimate of the main effect of {_list(main)}"] if main else []
    if others:
        inside = dict.fromkeys(terms[k].name for i in others for k in left.aliases[i])
        aliased = f", which is now a part of {_list(list(inside))}" if inside else ""
        texts.append(f"no estimate of {_list([terms[i].name for i in others])}{aliased}")
    return "; ".join(texts)


def _list(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
