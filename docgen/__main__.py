"""Build the documentation site: ``python -m docgen`` writes its sources into ``build/docs`` and the site into ``site``."""

import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from docgen import gallery, links, reference, reports, studies
from docgen.links import ROOT

SOURCE, SITE = ROOT / "build" / "docs", ROOT / "site"
HOME = ("Tutorial <tutorial>", "how-to/index", "studies/index", "concepts/index", "gallery/index")  # the sections of the site
HOME += ("Results <reports/index>", "reference/index", "Scope <scope>")
GENERATED = {  # file of the repository that each page would be -> its text
    "docs/gallery/README.md": gallery.index,
    "docs/gallery/variants.md": gallery.variants,
    "docs/gallery/components.md": gallery.components,
    "docs/gallery/positions.md": gallery.positions,
    "docs/gallery/tasks.md": gallery.tasks,
    "docs/reference/configuration.md": reference.configuration,
    "docs/reference/commands.md": reference.commands,
    "docs/reports/README.md": studies.overview,
}


def pages() -> dict[str, str]:
    """Return file of the repository -> Markdown of every page, also of reports without HTML and of generated pages."""
    docs = (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / links.DOCS).rglob("*.md")))
    read = [*docs, *(file for file in links.PAGES if file.endswith(".md")), *reports.unrendered()]
    return {file: (ROOT / file).read_text(encoding="utf-8") for file in read} | {f: text() for f, text in GENERATED.items()}


def write_sources(folder: Path) -> None:
    """Write the pages of the site, the files of the repository that they link to, pictures, and reports with their pages."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / links.DOCS / "assets", folder / "assets")
    reports.write(folder / "reports")
    texts = pages()
    files: set[str] = set()
    for file, text in texts.items():
        at = links.site_path(file)
        head = "" if file.startswith(f"{links.DOCS}/") or file in links.PAGES else "---\norphan: true\n---\n\n"
        _write(folder / at, head + links.rewrite(text, page=file, at=at) + navigation(file, text))
        files |= {inner for path in links.linked_sources(text, page=file) for inner in links.files_of(path)}
    for path in files:
        _write(folder / links.site_path(path), links.source_page(path))
    for name, picture in gallery.pictures().items():
        (folder / "gallery" / name).write_bytes(picture)


def navigation(file: str, text: str) -> str:
    """Return the table of contents of a page that lists the pages of a section, and of the home page."""
    if file == "docs/index.md":
        entries = HOME
    elif file.startswith(f"{links.DOCS}/") and file.endswith("/README.md"):
        linked = (links.site_path(links.repository_path(match[1], file)) for match in links.LINK.finditer(text))
        entries = dict.fromkeys(f"/{page.removesuffix('.md')}" for page in linked if page.endswith(".md"))
    else:
        return ""
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(entries) + "\n```\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> int:
    """Build the site and return the exit code: 1 after a warning, for example a link that leads nowhere."""
    write_sources(SOURCE)
    shutil.rmtree(SITE, ignore_errors=True)
    folders = ["-c", str(Path(__file__).parent), "-d", str(SOURCE.with_name("doctrees"))]
    code = build_main(["-q", "-E", "-W", "--keep-going", *folders, str(SOURCE), str(SITE)])
    shutil.copytree(SOURCE / "reports", SITE / "reports", ignore=shutil.ignore_patterns("*.md"), dirs_exist_ok=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
