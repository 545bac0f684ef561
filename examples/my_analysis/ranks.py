"""An analysis of your own: do cells with larger values of a column have larger scores? Spearman's rank correlation."""

from collections.abc import Iterator, Mapping

import pandas
from scipy.stats import spearmanr

from attnlab import register_analysis
from attnlab.report import Analysis, Column, PageSection, Results, Table, TableRow


@register_analysis("rank_correlation")
class RankCorrelation(Analysis[pandas.DataFrame]):
    """The rank correlation of the mean score of a cell with the logarithm of its mean of a column."""

    column = "parameters"

    def estimate(self, results: Results) -> pandas.DataFrame | None:
        """Return one row per cell, with the mean of the column and the mean score; None with fewer than three cells."""
        means = {cell.name: cell.costs[self.column].mean for cell in results.cells if self.column in cell.costs}
        rows = [(cell.name, means[cell.name], cell.value.mean) for cell in results.cells if cell.value and cell.name in means]
        return pandas.DataFrame(rows, columns=["cell", self.column, "score"]) if len(rows) > 2 else None

    def describe(self, estimate: pandas.DataFrame, results: Results) -> str:
        """Return the correlation and its p-value in a sentence."""
        correlation, p = spearmanr(estimate[self.column], estimate["score"])
        metric = results.spec.metric.replace("_", " ")
        return f"rank correlation of {metric} and {self.column} over {len(estimate)} cells: {correlation:+.2f}, p = {p:.3f}"

    def lines(self, estimate: pandas.DataFrame, results: Results) -> Iterator[str]:
        """Yield the line for the terminal."""
        yield self.describe(estimate, results)

    def section(self, estimate: pandas.DataFrame, results: Results) -> PageSection:
        """Return the section of the page."""
        columns = [Column("cell", is_text=True), Column(self.column), Column(results.spec.metric)]
        rows = [TableRow([cell, f"{x:,.0f}", f"{score:.4f}"]) for cell, x, score in estimate.itertuples(index=False)]
        return PageSection("Rank correlation", [f"{self.describe(estimate, results)}."], table=Table(columns, rows))

    def frames(self, estimate: pandas.DataFrame, results: Results) -> Mapping[str, pandas.DataFrame]:
        """Return the table of `ranks.csv`."""
        return {"ranks": estimate}
