"""The page ``reports/validity/README.md`` and its plots, generated from simulated results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.simulation import FALSE, MAX_ERRORS, Kind, Quantity, Result, Setting, Simulation
from benchmarks.tables import markdown
from benchmarks.validity_plot import Dot, overview_plot, share_plot

HEAD = """\
# Validity of the verdicts

Studies with a known truth are simulated and tested as attnlab tests the runs of a study: differences paired by seed, Holm's
correction over the table, moderated variances and looks where a section says so. A table with any false verdict counts as one
false verdict. At most 5 % are aimed at, and at most 6 % are promised, except where a section states another limit; settings
in which nothing is promised are named with the reason. A limit counts as exceeded if the share is above it by more than
{errors} Monte-Carlo standard errors. `python -m benchmarks.validity` simulates, and writes this page; the numbers of
all settings are in [validity.csv](validity.csv), with their errors and the number of studies.

**Summary.** {summary}

The hardest settings first: the other cells of a table differ, pairs are unequal, curves have unequal shapes, families of cells
change places, the test has few items. Of false verdicts the table shows the most, of coverage the least; ± is the Monte-Carlo
standard error.

{hard}

![False verdicts of all simulations](overview.svg)

{table}
"""

END = """\

## A/A test with attnlab

`ablations/aa.yaml` trains dense attention under five names: [reports/aa](../aa/README.md).
"""


class Outcome:
    """The results of one simulation by setting and quantity."""

    def __init__(self, simulation: Simulation, results: Sequence[Result]) -> None:
        self.simulation = simulation
        self._by_key = {(r.group, r.setting, r.quantity): r for r in results if r.simulation == simulation.name}

    @property
    def settings(self) -> list[Setting]:
        """The simulated settings."""
        first = self.simulation.quantities[0].name
        return [s for s in self.simulation.settings if (s.group, s.name, first) in self._by_key]

    def of(self, setting: Setting, quantity: Quantity) -> Result:
        """Return the result of a quantity in a setting."""
        return self._by_key[(setting.group, setting.name, quantity.name)]

    def exceeded(self, quantity: Quantity) -> list[Setting]:
        """Return the promised settings that exceed the quantity's limit by more than the error of the simulation."""
        if quantity.limit is None:
            return []
        results = [(setting, self.of(setting, quantity)) for setting in self.settings if not setting.not_promised]
        return [s for s, result in results if quantity.excess(result.value) > MAX_ERRORS * (result.error or 0)]

    def worst(self, quantity: Quantity, *, promised: bool) -> Setting | None:
        """Return the setting with the worst value among those that are promised, or among the others."""
        settings = [setting for setting in self.settings if bool(setting.not_promised) is not promised]
        return self.extreme(settings, quantity)

    def extreme(self, settings: Sequence[Setting], quantity: Quantity) -> Setting | None:
        """Return the setting with the worst value among some."""
        sign = 1 if quantity.kind is Kind.FALSE else -1
        return max(settings, key=lambda setting: sign * self.of(setting, quantity).value, default=None)

    def describe(self, setting: Setting, quantity: Quantity) -> str:
        """Return a result as text: "5.3 % ± 0.2 % (normal, 5 seeds)"."""
        return f"{format_result(self.of(setting, quantity))} ({_name(setting)})"


def write_page(folder: Path, results: Sequence[Result], simulations: Sequence[Simulation]) -> Path:
    """Write the page and its plots; return the path of the page. Plots of earlier pages are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.svg"):
        file.unlink()
    for name, content in render_page(results, simulations).items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder / "README.md"


def render_page(results: Sequence[Result], simulations: Sequence[Simulation]) -> dict[str, str]:
    """Return file name -> content of the page and its plots. Simulations without results are left out."""
    outcomes = [outcome for simulation in simulations if (outcome := Outcome(simulation, results)).settings]
    files = {"overview.svg": _overview(outcomes)}
    sections = []
    for outcome in outcomes:
        plots = {_file(outcome, quantity): _plot(outcome, quantity) for quantity in _drawn(outcome)}
        files |= plots
        sections.append(_section(outcome))
    head = HEAD.format(
        errors=MAX_ERRORS, summary=_summary(outcomes), hard=_hard_table(outcomes), table=_summary_table(outcomes)
    )
    return {"README.md": head + "".join(sections) + END, **files}


def format_result(result: Result) -> str:
    """Format a share as in "5.3 % ± 0.2 %", and another number with two decimals."""
    if result.error is None:
        return f"{result.value:.2f}"
    return f"{100 * result.value:.1f} % ± {100 * result.error:.1g} %" if result.error >= 5e-5 else f"{100 * result.value:.1f} %"


def _name(setting: Setting) -> str:
    return f"{setting.group}, {setting.name}"


def _file(outcome: Outcome, quantity: Quantity) -> str:
    return f"{outcome.simulation.name}-{quantity.name.replace(' ', '-').replace(',', '')}.svg"


def _drawn(outcome: Outcome) -> list[Quantity]:
    return [quantity for quantity in outcome.simulation.quantities if quantity.kind is not Kind.NUMBER]


def _dot(outcome: Outcome, setting: Setting, quantity: Quantity) -> Dot:
    result = outcome.of(setting, quantity)
    promised = quantity.limit is not None and not setting.not_promised
    return Dot(setting.name, result.value, result.error or 0, promised, setting in outcome.exceeded(quantity))


def _plot(outcome: Outcome, quantity: Quantity) -> str:
    groups: dict[str, list[Dot]] = {}
    for setting in outcome.settings:
        groups.setdefault(setting.group, []).append(_dot(outcome, setting, quantity))
    return share_plot(groups, quantity, title=quantity.text[0].upper() + quantity.text[1:])


def _false_quantities(outcome: Outcome) -> list[Quantity]:
    """Return the quantities that count false verdicts and have a limit."""
    return [q for q in outcome.simulation.quantities if q.kind is Kind.FALSE and q.limit is not None]


def _overview(outcomes: Sequence[Outcome]) -> str:
    rows = {
        outcome.simulation.name: [_dot(outcome, s, q) for q in _false_quantities(outcome) for s in outcome.settings]
        for outcome in outcomes
        if _false_quantities(outcome)
    }
    return overview_plot(rows, FALSE, title="False verdicts, a dot for each setting")


def _summary(outcomes: Sequence[Outcome]) -> str:
    """Return the number of promised settings, and those that exceed a limit."""
    cases = [(o, s, q) for o in outcomes for q in o.simulation.quantities if q.limit is not None for s in o.settings]
    promised = [case for case in cases if not case[1].not_promised]
    exceeded = [(o, s, q) for o, s, q in promised if s in o.exceeded(q)]
    text = f"{len(promised)} promised limits were simulated, in {len({(o, s) for o, s, _ in promised})} settings."
    if not exceeded:
        return f"{text} None is exceeded."
    return f"{text} **Exceeded:** {'; '.join(f'{o.simulation.name}: {q.text} {o.describe(s, q)}' for o, s, q in exceeded)}."


def _summary_table(outcomes: Sequence[Outcome]) -> str:
    """Return a table with the worst false verdicts of each simulation, promised and not."""
    rows = []
    for outcome in outcomes:
        for quantity in _false_quantities(outcome):
            worst = [outcome.worst(quantity, promised=promised) for promised in (True, False)]
            texts = [outcome.describe(setting, quantity) if setting else "" for setting in worst]
            link = f"[{outcome.simulation.title}](#{_anchor(outcome.simulation.title)})"
            rows.append([f"{link}: {quantity.text}", f"{100 * (quantity.limit or 0):g} %", *texts])
    return markdown(["simulation", "limit", "most, where promised", "most, where not promised"], rows)


def _hard_table(outcomes: Sequence[Outcome]) -> str:
    """Return a table of the hardest settings, with the worst result of each kind, promised and not."""
    rows = []
    for outcome in outcomes:
        for text, (name, *words) in outcome.simulation.hard.items():
            quantity = outcome.simulation.quantity(name)
            settings = [setting for setting in outcome.settings if all(word in _name(setting) for word in words)]
            bound = "at most" if quantity.kind is Kind.FALSE else "at least"
            link = f"[{text}](#{_anchor(outcome.simulation.title)})"
            parts = [[setting for setting in settings if bool(setting.not_promised) is other] for other in (False, True)]
            worst = [outcome.extreme(part, quantity) for part in parts]
            texts = [outcome.describe(setting, quantity) if setting else "" for setting in worst]
            rows.append([link, quantity.text, f"{bound} {100 * (quantity.limit or 0):g} %", str(len(settings)), *texts])
    return markdown(["setting", "measured", "promised", "settings", "worst, promised", "worst, not promised"], rows)


def _anchor(title: str) -> str:
    """Return the anchor of a heading as GitHub makes it."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")


def _section(outcome: Outcome) -> str:
    simulation = outcome.simulation
    parts = [f"\n## {simulation.title}\n", simulation.text]
    parts += [f"\n![{quantity.text}]({_file(outcome, quantity)})" for quantity in _drawn(outcome)]
    parts += ["", *(_finding(outcome, quantity) for quantity in simulation.quantities if quantity.limit is not None)]
    parts += [f"\n{reasons}" for reasons in [_not_promised(outcome)] if reasons]
    parts += [f"\n{simulation.conclusion}"] if simulation.conclusion else []
    return "\n".join(parts) + "\n"


def _finding(outcome: Outcome, quantity: Quantity) -> str:
    """Return the worst promised setting, and those that exceed the limit, as a list item."""
    worst, limit = outcome.worst(quantity, promised=True), f"{100 * (quantity.limit or 0):g} %"
    bound, extreme = ("at most", "most") if quantity.kind is Kind.FALSE else ("at least", "least")
    if worst is None:
        return f"- {quantity.text}: nothing is promised."
    exceeded = outcome.exceeded(quantity)
    verdict = "" if not exceeded else f" **Exceeded:** {'; '.join(outcome.describe(s, quantity) for s in exceeded)}."
    return f"- {quantity.text}, {bound} {limit} promised: {extreme} {outcome.describe(worst, quantity)}.{verdict}"


def _not_promised(outcome: Outcome) -> str:
    """Return the reasons why nothing is promised in some settings, with the range of the first quantity."""
    reasons: dict[str, list[float]] = {}
    quantity = outcome.simulation.quantities[0]
    for setting in outcome.settings:
        if setting.not_promised:
            reasons.setdefault(setting.not_promised, []).append(100 * outcome.of(setting, quantity).value)
    texts = [f"{reason} ({quantity.text} {_range(values)})" for reason, values in reasons.items()]
    return f"**Not promised:** {'; '.join(texts)}." if texts else ""


def _range(percents: Sequence[float]) -> str:
    """Return the range of percentages as text: "7.1 to 9.3 %"."""
    low, high = f"{min(percents):.1f}", f"{max(percents):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"
