"""BLEU and chrF stand side by side in the table of runs."""

from attnlab.report.verdicts import run_table
from tests.support.specs import changed
from tests.support.synthetic import SPEC, made_up


def test_the_table_of_runs_shows_chrf_beside_bleu() -> None:
    runs, _ = made_up(seeds=1)
    records = [{str(name): value for name, value in row.items()} for row in runs.to_dict("records")]
    assert not {"bleu", "chrf"} & {column.heading for column in run_table(records, SPEC).columns}
    records[0] |= {"bleu": 33.25, "chrf": 51.5}
    for metric, other in (("bleu", "chrf"), ("chrf", "bleu")):
        table = run_table(records, changed(SPEC, metric=metric, direction="max"))
        assert [column.heading for column in table.columns[1:3]] == [metric, other]
        values = {"bleu": "33.2500", "chrf": "51.5000"}
        assert [str(cell) for cell in table.rows[0].cells[1:3]] == [values[metric], values[other]]
        assert table.rows[1].cells[1:3] == ["", ""]
