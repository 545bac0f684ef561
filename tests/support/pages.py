"""Comparison of report pages."""

from pathlib import Path


def changed_files(folder: Path, again: Path) -> list[str]:
    """Return the names of the page's files (HTML, Markdown, plots, tables, script) that differ between two folders."""
    files = {
        path.name
        for suffix in ("*.html", "*.md", "*.svg", "*.csv", "*.sh")
        for path in (*folder.glob(suffix), *again.glob(suffix))
    }
    return sorted(name for name in files if _read(folder / name) != _read(again / name))


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
