"""Links of the documentation lead to pages of the site."""

import pytest

from docgen.links import linked_sources, repository_path, rewrite, source_page


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("../ablations/wo.yaml", "files/ablations/wo.yaml.md"),
        ("../examples/my_data", "files/examples/my_data.md"),
        ("../reports/wo-cpu/README.md", "reports/wo-cpu/index.html"),  # rendered when the site is built
        ("../reports/wo-cpu/wo-cpu-imdb/README.md", "reports/wo-cpu/wo-cpu-imdb/index.html"),
        ("../reports/profile/gru/README.md", "reports/profile/gru/index.html"),
        ("../reports/claims/README.md", "reports/claims/index.html"),
        ("../reports/validity/README.md#trends-over-levels", "reports/validity/README.md#trends-over-levels"),  # no HTML page
        ("../reports/imdb-cpu/README.md", "reports/imdb-cpu/README.md"),  # of an earlier version
        ("../GLOSSARY.md", "glossary.md"),
        ("diagnostics.md#profiles", "diagnostics.md#profiles"),
        ("gallery/variants.md", "gallery/variants.md"),  # generated
        ("https://arxiv.org/abs/1706.03762", "https://arxiv.org/abs/1706.03762"),
        ("#here", "#here"),
    ],
)
def test_links_from_a_page_lead_into_the_site(link: str, target: str) -> None:
    assert rewrite(f"[a]({link}), ![b]({link})", page="docs/page.md", at="page.md") == f"[a]({target}), ![b]({target})"


def test_links_are_relative_to_the_place_of_the_page_in_the_site() -> None:
    text = rewrite("[a](../../ablations/wo.yaml) [b](docs/diagnostics.md)", page="docs/how-to/a.md", at="how-to/a.md")
    assert text == "[a](../files/ablations/wo.yaml.md) [b](docs/diagnostics.md)"
    assert rewrite("[b](docs/diagnostics.md)", page="CHANGELOG.md", at="changelog.md") == "[b](diagnostics.md)"


def test_files_that_pages_link_to_are_found() -> None:
    text = "[a](../ablations/wo.yaml) [b](../reports/aa/README.md) [c](diagnostics.md) [d](missing.yaml)"
    assert linked_sources(text, page="docs/page.md") == {"ablations/wo.yaml"}
    assert repository_path("../../ablations/wo.yaml", "docs/how-to/a.md") == "ablations/wo.yaml"


def test_a_file_is_shown_whole_and_a_folder_by_its_files() -> None:
    assert "````yaml\n# yaml-language-server" in source_page("ablations/quickstart.yaml")
    assert "- [reviews.csv](my_data/reviews.csv.md)" in source_page("examples/my_data")
