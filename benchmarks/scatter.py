"""What would reduce the scatter of a paired difference, measured on committed reports: ``python -m benchmarks.scatter``.

For each reduction, the ratio of the variance of a paired difference without it to that with it, at the same training time:

- pairing: the variance of a difference of two unpaired runs, in that of a pair.
- test and valid: the mean of the scores on both splits, rather than that on ``test``.
- early: training losses of the same runs at a part of their steps as covariates. The mean of such a covariate is unknown,
  because the cells differ in it, too. It can therefore only help if more seeds are trained up to that step (double sampling;
  Cochran 1977, chapter 12): with the correlation r of the two differences and the share c of the steps, the ratio is
  1 / (sqrt((1 - r^2) (1 - c)) + r sqrt(c))^2 for the best numbers of seeds when c < r^2, else 1: runs that are trained to the
  end are among the runs that are trained up to that step, and their first part is paid once.

Errors are those of a bootstrap over comparisons.

Reference:
    Cochran, W. G. (1977). Sampling Techniques, 3rd edition. Wiley.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy

from attnlab.report.stored import load
from attnlab.stats.compare import comparisons
from attnlab.study.comparison import compare_info
from benchmarks.tables import markdown

REPORTS = Path("reports")
GROUPS = {  # what the runs are trained on -> their reports
    "bytes": ("validity-of-proxies", "wo-cpu/wo-cpu-enwik8", "quickstart", "gpt2-cpu", "aa"),
    "reviews": ("wo-cpu/wo-cpu-imdb", "bert-cpu"),
    "translation": ("multi30k-cpu",),
}
SHARES = (0.25, 0.5, 0.75, 0.9)  # of the steps; losses are means over the tenth before
SAMPLES = 400
Columns = dict[str, numpy.ndarray]  # name -> one value per seed


def paired_columns(report: Path) -> Iterator[Columns]:
    """Yield the columns of each comparison with at least two seeds, centered over them, at each value of a sweep."""
    stored = load(report)
    info, runs, curves = stored["info"], stored["runs"], stored["curves"]
    metric, losses = info.spec.metric, dict(iter(curves[curves["metric"] == "train/loss"].groupby("run_id")))
    baselines = {cell.name: cell.baseline for cell in comparisons(compare_info(info, runs).cells) if cell.baseline}
    values = runs.get("train.lr", 0)
    records = {
        (r["cell"], value, r["seed"]): r
        for (_, r), value in zip(runs.iterrows(), numpy.broadcast_to(values, len(runs)), strict=True)
    }
    groups: dict[Any, list[dict[str, float]]] = {}
    for (cell, value, seed), run in records.items():
        other = records.get((baselines.get(cell), value, seed))
        if other is None or not math.isfinite(run[metric] - other[metric]):
            continue
        row = {"cell": run[metric], "baseline": other[metric], "difference": run[metric] - other[metric]}
        row["valid"] = run[f"valid_{metric}"] - other[f"valid_{metric}"]
        for share in SHARES:
            before, after = (_loss(losses.get(record["run_id"]), share) for record in (other, run))
            row[f"early {share}"] = after - before
        groups.setdefault((cell, value), []).append(row)
    for rows in groups.values():
        columns = {name: numpy.array([row[name] for row in rows]) for name in rows[0]}
        if len(rows) > 1 and columns["difference"].std() > 0:
            yield {name: column - column.mean() for name, column in columns.items()}


def _loss(curve: Any, share: float) -> float:
    """Return the mean training loss of the tenth of the steps before a share of them."""
    if curve is None:
        return math.nan
    steps = curve["step"] / curve["step"].max()
    return float(curve.loc[(steps > share - 0.1) & (steps <= share), "value"].mean())


def pairing_ratio(groups: Sequence[Columns]) -> float:
    """Return the variance of a difference of unpaired runs in that of a pair."""
    return _squares(groups, "cell", "baseline") / _squares(groups, "difference")


def split_ratio(groups: Sequence[Columns]) -> float:
    """Return the variance of the difference on `test` in that of the mean of both splits."""
    return _squares(groups, "difference") / sum(float((((g["difference"] + g["valid"]) / 2) ** 2).sum()) for g in groups)


def early_ratio(groups: Sequence[Columns], share: float) -> float:
    """Return the ratio for double sampling with losses at a share of the steps."""
    r = abs(correlation(groups, share))
    if share >= r * r:
        return 1.0
    return 1 / (math.sqrt((1 - r * r) * (1 - share)) + r * math.sqrt(share)) ** 2


def correlation(groups: Sequence[Columns], share: float) -> float:
    """Return the correlation of differences in training losses at a share of the steps and final differences."""
    pairs = [(g[f"early {share}"], g["difference"]) for g in groups if numpy.isfinite(g[f"early {share}"]).all()]
    early, last = (numpy.concatenate(column) for column in zip(*pairs, strict=True))
    return float((early * last).sum() / math.sqrt((early**2).sum() * (last**2).sum()))


def _squares(groups: Sequence[Columns], *names: str) -> float:
    return sum(float((group[name] ** 2).sum()) for group in groups for name in names)


def with_error(groups: Sequence[Columns], statistic: Callable[[Sequence[Columns]], float]) -> str:
    """Format a statistic with the error of a bootstrap over comparisons."""
    random = numpy.random.default_rng(0)
    drawn = [statistic([groups[i] for i in random.integers(0, len(groups), len(groups))]) for _ in range(SAMPLES)]
    return f"{statistic(groups):.2f} ± {numpy.std(drawn):.2f}"


def main() -> None:
    """Print a table with a row for each kind of data."""
    rows = []
    for name, reports in GROUPS.items():
        groups = [columns for report in reports for columns in paired_columns(REPORTS / report)]
        ratios = [with_error(groups, pairing_ratio), with_error(groups, split_ratio)]
        ratios += [with_error(groups, lambda drawn, share=share: early_ratio(drawn, share)) for share in SHARES]
        rows.append([name, str(len(groups)), *ratios])
    print(
        markdown(
            ["data", "comparisons", "pairing", "test and valid", *(f"early, {share:.0%} of steps" for share in SHARES)], rows
        )
    )


if __name__ == "__main__":
    main()
