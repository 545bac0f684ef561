"""Each published bug of the museum is caught by the check that its table names."""

import pytest

from attnlab.testing.contract import check_variant as check
from tests.mutants.museum import MUSEUM, Exhibit
from tests.support.paths import ROOT


def _name(exhibit: Exhibit) -> str:
    return (exhibit.position or exhibit.variant).__name__


@pytest.mark.parametrize("exhibit", MUSEUM, ids=_name)
def test_a_published_bug_is_caught_by_its_check(exhibit: Exhibit) -> None:
    [result] = [r for r in check(exhibit.variant, position=exhibit.position, only=[exhibit.check]) if r.check == exhibit.check]
    assert result.status == "failed", result.detail
    assert not result.traceback, "the property must fail, not the variant raise"


def test_the_table_of_the_museum_lists_every_bug_with_its_thread_and_check() -> None:
    _, museum = (ROOT / "docs" / "how-to" / "check.md").read_text(encoding="utf-8").split("## The museum of bugs")
    rows = [line for line in museum.partition("</div>")[0].splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(MUSEUM) >= 15
    for exhibit, row in zip(MUSEUM, rows, strict=True):
        assert f"`{_name(exhibit)}`" in row and f"`{exhibit.check}`" in row and exhibit.thread.split(" ")[0] in row
