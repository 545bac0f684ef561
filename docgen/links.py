"""Links of the documentation: relative paths of the repository, as on a code host, to pages of the site.

A page in `docs/` links to a study by `../ablations/wo.yaml` and to a report by `../reports/aa/README.md`. Both exist in the
repository. In the site, the first is a page with the contents of the file, the second the report's own HTML page.
"""

import posixpath
import re
from pathlib import Path

from docgen import reports

ROOT = reports.ROOT
DOCS = "docs"
SOURCES = "files"  # folder of the pages that show a file of the repository
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)((?:#[^)\s]*)?)(?=\))")
TOP = {"GLOSSARY.md": "glossary.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}  # file -> page


def repository_path(link: str, page: str) -> str:
    """Return the path in the repository that a relative link refers to.

    Args:
        link: the link, without its anchor.
        page: the file with the link, as a path in the repository.
    """
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def site_path(path: str) -> str:
    """Return the source file in the site, such as ``glossary.md``, of a path in the repository."""
    if path in TOP:
        return TOP[path]
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    if path.startswith("reports/"):
        page = f"{posixpath.dirname(path)}/index.html"
        return page if path.endswith("README.md") and page in reports.rendered() else path
    return f"{SOURCES}/{path}.md"


def rewrite(markdown: str, *, page: str, at: str) -> str:
    """Return the Markdown of a page with its links into the repository as links within the site.

    Args:
        page: the file of the repository that the Markdown is from.
        at: the source file of the page in the site.
    """

    def target(match: re.Match[str]) -> str:
        path = repository_path(match[1], page)
        if not (ROOT / path).exists():
            return match[0]  # a page that is generated, or a mistake, which MkDocs reports
        return posixpath.relpath(site_path(path), posixpath.dirname(at) or ".") + match[2]

    return LINK.sub(target, markdown)


def linked_sources(markdown: str, *, page: str) -> set[str]:
    """Return the files and folders of the repository that a page links to and the site shows as pages of their contents."""
    paths = {repository_path(match[1], page) for match in LINK.finditer(markdown)}
    return {path for path in paths if (ROOT / path).exists() and site_path(path).startswith(f"{SOURCES}/")}


def source_page(path: str) -> str:
    """Return the Markdown of a page that shows a file, or lists the files of a folder."""
    head = f"---\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n"
    if (ROOT / path).is_dir():
        names = sorted(name.name for name in (ROOT / path).iterdir() if name.is_file() and not name.name.startswith("."))
        return head + "".join(f"- [{name}]({posixpath.basename(path)}/{name}.md)\n" for name in names)
    language = {".yaml": "yaml", ".py": "python", ".toml": "toml", ".sh": "bash"}.get(Path(path).suffix, "text")
    return f"{head}````{language}\n{(ROOT / path).read_text(encoding='utf-8').rstrip()}\n````\n"


def files_of(path: str) -> list[str]:
    """Return a path itself and, of a folder, the files in it, which its page lists."""
    inner = (
        sorted(p for p in (ROOT / path).iterdir() if p.is_file() and not p.name.startswith("."))
        if (ROOT / path).is_dir()
        else []
    )
    return [path, *(p.relative_to(ROOT).as_posix() for p in inner)]
