"""Links of the documentation: relative paths of the repository, as on a code host, to pages of the site.

A page in `docs/` links to a study by `../ablations/wo.yaml` and to a report by `../reports/aa/README.md`. Both exist in the
repository. In the site, the first is a page with the contents of the file, the second the report's own HTML page. Pages that
are generated from code have links to the folder of the code, for example `../attnlab/cli` to the page of the commands.
"""

import posixpath
import re
from pathlib import Path

from docgen import reports

ROOT = reports.ROOT
DOCS = "docs"
SOURCES = "files"  # folder of the pages that show a file of the repository
LINK = re.compile(r"(?<=\]\()(?!<?[a-z]+:|#)<?([^)#\s<>]+)((?:#[^)\s>]*)?)>?\)")
SHOWN = (".md", ".png", ".svg")  # pages and pictures; links to other files stay as they are
TITLE = re.compile(r'^( *)```(\w+) title="(.+)"$', flags=re.MULTILINE)  # of a code block
PAGES = {  # file or folder of the repository -> page of the site
    "GLOSSARY.md": "glossary.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "attnlab/variants": "gallery/variants.md",
    "attnlab/components": "gallery/components.md",
    "attnlab/positions": "gallery/positions.md",
    "attnlab/tasks": "gallery/tasks.md",
    "attnlab/config": "reference/configuration.md",
    "attnlab/cli": "reference/commands.md",
    "reports": "reports/index.md",
}


def repository_path(link: str, page: str) -> str:
    """Return the path in the repository that a relative link refers to.

    Args:
        link: the link, without its anchor.
        page: the file with the link, as a path in the repository.
    """
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def site_path(path: str) -> str:
    """Return the source file in the site, such as ``glossary.md``, of a path in the repository."""
    if path in PAGES:
        return PAGES[path]
    folder, name = posixpath.split(path)
    page = f"{folder}/index.md" if name == "README.md" else path
    if path.startswith(f"{DOCS}/"):
        return page.removeprefix(f"{DOCS}/")
    if path.startswith("reports/"):
        html = f"{folder}/index.html"
        return html if name == "README.md" and html in reports.rendered() else page
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
            return match[0]  # a page that is generated, or a mistake, which Sphinx reports
        place = site_path(path)
        link = posixpath.relpath(place, posixpath.dirname(at) or ".") + match[2]
        return f"{link})" if place.endswith(SHOWN) else f"{link}){{.external}}"

    return TITLE.sub(r"\1```{code-block} \2\n\1:caption: \3\n", LINK.sub(target, markdown))


def linked_sources(markdown: str, *, page: str) -> set[str]:
    """Return the files and folders of the repository that a page links to and the site shows as pages of their contents."""
    paths = {repository_path(match[1], page) for match in LINK.finditer(markdown)}
    return {path for path in paths if (ROOT / path).exists() and site_path(path).startswith(f"{SOURCES}/")}


def source_page(path: str) -> str:
    """Return the Markdown of a page that shows a file, or lists the files of a folder."""
    head = f"---\norphan: true\nnosearch: true\n---\n\n# {path}\n\n"
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
