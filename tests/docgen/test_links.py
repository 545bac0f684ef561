"""Links of the documentation lead to files of the repository, and to pages of the site."""

import pytest

from docgen.__main__ import navigation
from docgen.links import LINK, ROOT, linked_sources, repository_path, rewrite, source_page

PAGES = [path.relative_to(ROOT).as_posix() for path in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_link_of_a_page_leads_to_a_file_or_folder_of_the_repository(page: str) -> None:
    """A code host shows these pages, too."""
    links = [match[1] for match in LINK.finditer((ROOT / page).read_text(encoding="utf-8"))]
    assert [link for link in links if not (ROOT / repository_path(link, page)).exists()] == []


def test_the_navigation_of_a_section_is_the_list_of_its_pages() -> None:
    text = "[A page](a.md), [another](b.md), [again](a.md#part), [a glossary](../../GLOSSARY.md)"
    assert navigation("docs/how-to/README.md", text).split() == (
        ["```{toctree}", ":hidden:", "/how-to/a", "/how-to/b", "/glossary", "```"]
    )
    assert "how-to/index" in navigation("docs/index.md", "") and not navigation("docs/how-to/a.md", text)


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("../ablations/wo.yaml", "files/ablations/wo.yaml.md"),
        ("../examples/my_data", "files/examples/my_data.md"),
        ("../reports/wo-cpu/README.md", "reports/wo-cpu/index.html"),  # rendered when the site is built
        ("../reports/wo-cpu/wo-cpu-imdb/README.md", "reports/wo-cpu/wo-cpu-imdb/index.html"),
        ("../reports/profile/README.md", "reports/profile/index.html"),
        ("../reports/claims/README.md", "reports/claims/index.html"),
        ("../reports/validity/README.md#trends-over-levels", "reports/validity/index.md#trends-over-levels"),  # no HTML page
        ("../reports/imdb-cpu/README.md", "reports/imdb-cpu/index.md"),  # of an earlier version
        ("../GLOSSARY.md", "glossary.md"),
        ("diagnostics.md#profiles", "diagnostics.md#profiles"),
        ("../attnlab/variants#dense", "gallery/variants.md#dense"),  # generated from this folder
        ("../attnlab/cli", "reference/commands.md"),
        ("../reports", "reports/index.md"),
        ("how-to/README.md", "how-to/index.md"),
        ("https://arxiv.org/abs/1706.03762", "https://arxiv.org/abs/1706.03762"),
        ("#here", "#here"),
    ],
)
def test_links_from_a_page_lead_into_the_site(link: str, target: str) -> None:
    external = "{.external}" if target.endswith(".html") else ""  # Sphinx knows no such page
    assert rewrite(f"[a]({link}), [b]({link})", page="docs/page.md", at="page.md") == ", ".join(
        f"[{word}]({target}){external}" for word in "ab"
    )


def test_links_are_relative_to_the_place_of_the_page_in_the_site() -> None:
    text = rewrite("[a](../../ablations/wo.yaml) [b](docs/diagnostics.md)", page="docs/how-to/a.md", at="how-to/a.md")
    assert text == "[a](../files/ablations/wo.yaml.md) [b](docs/diagnostics.md)"
    assert rewrite("[b](docs/diagnostics.md)", page="CHANGELOG.md", at="changelog.md") == "[b](diagnostics.md)"


def test_titles_of_code_are_captions() -> None:
    text = rewrite('1. Write\n\n   ```python title="a.py"\n   x = 1\n   ```\n', page="docs/page.md", at="page.md")
    assert text == "1. Write\n\n   ```{code-block} python\n   :caption: a.py\n\n   x = 1\n   ```\n"


def test_files_that_pages_link_to_are_found() -> None:
    text = "[a](../ablations/wo.yaml) [b](../reports/aa/README.md) [c](diagnostics.md) [d](missing.yaml)"
    assert linked_sources(text, page="docs/page.md") == {"ablations/wo.yaml"}
    assert repository_path("../../ablations/wo.yaml", "docs/how-to/a.md") == "ablations/wo.yaml"


def test_a_file_is_shown_whole_and_a_folder_by_its_files() -> None:
    assert "````yaml\n# yaml-language-server" in source_page("ablations/quickstart.yaml")
    assert "- [reviews.csv](my_reviews/reviews.csv.md)" in source_page("examples/my_reviews")
