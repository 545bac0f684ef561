"""The page of results begins with what people look for, and every report leads back to the site."""

from pathlib import Path

from docgen import reports, studies


def test_the_results_begin_with_the_court_the_profiles_and_validity() -> None:
    links = [line for line in studies.overview().splitlines() if line.startswith(("## ", "[The page]"))]
    assert [link.partition("reports/")[2] for link in links[1:6:2]] == [
        "claims/README.md)",
        "profile/README.md)",
        "validity/README.md)",
    ]
    assert links[-1] == "## aa"


def test_a_report_leads_back_to_the_site(tmp_path: Path) -> None:
    page = tmp_path / "reports" / "wo-cpu" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("<h1>wo-cpu</h1>")
    reports._lead_back(page, site=tmp_path)
    assert page.read_text().startswith('<p><a href="../../index.html">attnlab</a> / <a href="../../reports/index.html">')
