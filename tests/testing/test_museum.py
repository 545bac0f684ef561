"""Each published bug of the museum is caught by the check that it names."""

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


def test_the_documentation_counts_the_bugs() -> None:
    assert f"rebuilds {len(MUSEUM)} published bugs" in (ROOT / "docs" / "how-to" / "check.md").read_text(encoding="utf-8")
