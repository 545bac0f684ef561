"""The bibliography of a paper: the papers of the variants, components and position schemes of its runs, and of its tests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from attnlab.config.axes import LAYERS
from attnlab.config.comparability import is_program_test
from attnlab.config.types import WITH
from attnlab.errors import UserError
from attnlab.registry import COMPONENTS, POSITIONS, VARIANTS, Registry
from attnlab.stats.records import is_present

KINDS = (VARIANTS, COMPONENTS, POSITIONS)
PARTS = ("model.encoder", "model.decoder", "model.cross")  # of an encoder-decoder: variants and position schemes of their own


@dataclass(frozen=True)
class Citation:
    """A class of a study.

    Attributes:
        kind: "variant", "component" or "position scheme".
        name: As in the study.
        entries: Key -> BibTeX entry of each of its papers.
        known: False for a class that is neither built in nor installed: its file is not imported to make a paper.
    """

    kind: str
    name: str
    entries: Mapping[str, str]
    known: bool = True


def citations(records: Iterable[Mapping[str, Any]]) -> list[Citation]:
    """Return the variants, components and position schemes of runs, each once, variants first; none of a program's."""
    trained = [record for record in records if not is_program_test(record.get("test"))]  # its axes may have such names
    names = dict.fromkeys((registry.kind, name) for record in trained for registry, name in _classes(record))
    return [_citation(registry, name) for registry in KINDS for kind, name in names if kind == registry.kind]


def _classes(record: Mapping[str, Any]) -> Iterator[tuple[Registry, str]]:
    """Yield the classes that a run names, as it records them: ``dense with qk_norm, gate per=head`` and the like."""
    parts = [record, *(record[part] for part in PARTS if isinstance(record.get(part), Mapping))]
    for fields in parts:
        if is_present(fields.get("variant")):
            yield from _of_variant(fields["variant"])
        if is_present(fields.get("position")):
            yield POSITIONS, _name(fields["position"])
    if is_present(record.get(LAYERS)):
        known = set(VARIANTS.names())
        yield from ((VARIANTS, word) for word in re.findall(r"\w+", str(record[LAYERS])) if word in known)


def _of_variant(variant: Any) -> Iterator[tuple[Registry, str]]:
    base, _, components = str(_name(variant, whole=True)).partition(f" {WITH} ")
    yield VARIANTS, base.partition(" ")[0]
    yield from ((COMPONENTS, text.partition(" ")[0]) for text in components.split(", ") if text)


def _name(value: Any, *, whole: bool = False) -> str:
    """Return the name in a label such as ``rotary fraction=0.5``, or the whole label."""
    text = str(value.get("name", "") if isinstance(value, Mapping) else value)
    return text if whole else text.partition(" ")[0]


def _citation(registry: Registry, name: str) -> Citation:
    kind = "position scheme" if registry is POSITIONS else registry.kind
    if name not in registry.names():
        return Citation(kind, name, {}, known=False)
    references: Sequence[str] = getattr(registry.get(name), "references", ())
    return Citation(kind, name, dict(map(_entry, references)))


def _entry(reference: str) -> tuple[str, str]:
    """Return the key and the BibTeX entry of a reference of a class, which is one or the other."""
    if (own := re.match(r"\s*@\w+\s*\{\s*([^\s,]+)", reference)) is not None:
        return own[1], reference.strip()
    if reference not in known_entries():
        raise UserError(f"expected a BibTeX entry or a key of references.bib, got {reference!r}", "references")
    return reference, known_entries()[reference]


def cite(references: Iterable[str]) -> str:
    """Return a citation of references as LaTeX, with the space before it; "" for none."""
    keys = ",".join(_entry(reference)[0] for reference in references)
    return f"~\\cite{{{keys}}}" if keys else ""


@lru_cache
def known_entries() -> dict[str, str]:
    """Return key -> BibTeX entry of the papers that attnlab knows."""
    text = (Path(__file__).parent / "references.bib").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{([^,]+),\n.*?^\}$", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^@\w+\{.*?^\}$", text, flags=re.MULTILINE | re.DOTALL)
    return dict(zip(entries, blocks, strict=True))


def bibliography(cited: Sequence[Citation], keys: Iterable[str]) -> str:
    """Return the text of a BibTeX file.

    Args:
        cited: The classes of the study.
        keys: Further keys of `known_entries` or BibTeX entries, for the tests.
    """
    entries = {key: entry for citation in cited for key, entry in citation.entries.items()}
    entries |= dict(map(_entry, keys))
    head = '% "others" stands for authors that attnlab does not list, arXiv for the venue: complete the entries.'
    return "\n\n".join([head, *entries.values()]) + "\n"
