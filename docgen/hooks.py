"""Hooks of MkDocs: generate pages, add reports and linked files of the repository, and rewrite links to them."""

import posixpath
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from docgen import gallery, links, reference, reports, studies
from docgen.links import ROOT, TOP

GENERATED = {
    "gallery/variants.md": gallery.variants,
    "gallery/components.md": gallery.components,
    "gallery/positions.md": gallery.positions,
    "gallery/tasks.md": gallery.tasks,
    "reference/configuration.md": reference.configuration,
    "reference/commands.md": reference.commands,
    "reports/index.md": studies.overview,
}
ORIGINS = {page: file for file, page in TOP.items()}  # page -> file of the repository; others are in docs/


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files that are not in `docs/`."""

    def add(path: str, **source: Any) -> None:
        files.append(File.generated(config, path, **source))

    pages = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    for page, generate in GENERATED.items():
        pages[f"docs/{page}"] = text = generate()
        add(page, content=text)
    for file, page in TOP.items():
        pages[file] = (ROOT / file).read_text(encoding="utf-8")
        add(page, content=pages[file])
    for name, picture in gallery.pictures().items():
        add(f"gallery/{name}", content=picture)
    for relative, path in reports.files().items():
        if links.site_path(relative) == relative:
            add(relative, abs_src_path=str(path))
            if path.name == "README.md":
                pages[relative] = path.read_text(encoding="utf-8")
    sources = {path for page, text in pages.items() for path in links.linked_sources(text, page=page)}
    for path in sorted({file for source in sources for file in links.files_of(source)}):
        add(links.site_path(path), content=links.source_page(path))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page."""
    at = page.file.src_uri
    if at.startswith(f"{links.SOURCES}/"):
        return markdown
    default = at if at.startswith("reports/") and (Path(ROOT) / at).exists() else posixpath.join("docs", at)
    return links.rewrite(markdown, page=ORIGINS.get(at, default), at=at)
