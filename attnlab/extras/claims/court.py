"""Claims and the rulings on them, read from study files and from stored reports.

A claim is the section ``claim`` of a study file in the folder of claims, and has the file's name as its ID, or it is one of
several in the section ``claims``. The result is read from the report of the study: in the folder of claims' reports, or beside
it, where other studies have theirs. So the page needs no store and no training, and the same reports give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.config.question import ClaimConfig
from attnlab.config.reader import read_study
from attnlab.config.yaml import parse
from attnlab.errors import UserError, nearest
from attnlab.extras.claims.ruling import Evidence, Ruling, RulingKind, gather, rule
from attnlab.report.page import Page, make_page
from attnlab.report.stored import FILE, load
from attnlab.stats.paired import LEVEL

if TYPE_CHECKING:
    from attnlab.config.study import StudyConfig

STUDIES, REPORTS = Path("ablations/claims"), Path("reports/claims")
MAX_SEEDS = 20
JUDGED = ("cell", "effect", "baseline", "direction", "size", "known")  # the fields of a claim that its ruling depends on
TRAINED = ("base", "grid", "over", "factors", "sweep", "stages", "command")  # the sections that decide what is trained
REACH = 0.5  # a claim is out of reach when its size is found with a smaller probability


@dataclass(frozen=True)
class Claim:
    """A claim with the study that judges it.

    Attributes:
        id: The name of its file without the ending, or its key among several claims of a file.
        path: The study file.
        study: The study, with its claim.
    """

    id: str
    path: Path
    study: StudyConfig

    @property
    def config(self) -> ClaimConfig:
        """What is claimed."""
        assert self.study.claim is not None
        return self.study.claim

    @cached_property
    def power(self) -> float | None:
        """The probability that `MAX_SEEDS` seeds find the published size; None when its size or scatter is not known.

        It is the power of one comparison: with others in its table, it is smaller.
        """
        from scipy.stats import nct, t

        if self.config.size is None or self.config.scatter is None:
            return None
        edge, shift = t.ppf(1 - LEVEL / 2, MAX_SEEDS - 1), math.sqrt(MAX_SEEDS) * self.config.size / self.config.scatter
        return float(nct.sf(edge, MAX_SEEDS - 1, shift) + nct.cdf(-edge, MAX_SEEDS - 1, shift))

    @property
    def is_out_of_reach(self) -> bool:
        """True when more seeds than `MAX_SEEDS` would be needed to see the published size."""
        return self.power is not None and self.power < REACH


@dataclass(frozen=True)
class Case:
    """A claim with its ruling.

    Attributes:
        claim: The claim.
        ruling: What the results say; None without results.
        pages: The pages of the study, one for each task; empty without results.
        folder: The folder of the study's report; None without one.
        remarks: What a reader has to know of the way in which the claim was stated.
        abilities: What the same cells score in the studies of abilities that the claim names, by the names of their tasks.
    """

    claim: Claim
    ruling: Ruling | None = None
    pages: tuple[Page, ...] = ()
    folder: Path | None = None
    remarks: tuple[str, ...] = ()
    abilities: tuple[Evidence, ...] = ()

    @property
    def verdict(self) -> str:
        """The ruling as text, with the size: "upheld at this scale, at most half of the published size"."""
        if self.ruling is None:
            return "out of reach" if self.claim.is_out_of_reach else "not tried"
        parts = [self.ruling.kind.value, *([self.ruling.size] if self.ruling.size else [])]
        return ", ".join(parts)

    @property
    def is_settled(self) -> bool:
        """True for a claim that is upheld or refuted, or known to depend on the length of training."""
        return self.ruling is not None and self.ruling.kind is not RulingKind.NOT_SETTLED

    @property
    def records(self) -> list[Mapping[str, Any]]:
        """The runs of the cells that the claim is about, and of their baselines; of an effect, all runs."""
        records = [record for page in self.pages for record in page.records]
        cells = {cell for one in self.ruling.evidence for cell in one.cells} if self.ruling else set()
        return [record for record in records if not cells or record["cell"] in cells]


def read_claims(folder: Path = STUDIES, ids: Sequence[str] = ()) -> list[Claim]:
    """Return the claims of a folder, controls first, then by ID.

    Args:
        folder: Of the study files.
        ids: The claims to return; default all.

    Raises:
        UserError: The folder has no study file, a file states no claim, or there is no claim with such an ID.
    """
    paths = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if not paths:
        raise UserError("expected a folder with study files that state claims, got none", str(folder))
    claims = [claim for path in paths.values() for claim in _read(path)]
    known = [claim.id for claim in claims]
    for name in ids:
        if name not in known:
            raise UserError(f"expected the ID of a claim in {folder}, got {name!r}{nearest(name, known)}")
    claims = [claim for claim in claims if not ids or claim.id in ids]
    return sorted(claims, key=lambda claim: (not claim.config.known, claim.id))


def _read(path: Path) -> list[Claim]:
    """Return the claims of a study file: the one that has the file's name as its ID, or each of several."""
    study = read_study(path)
    stated = {path.stem: study.claim} if study.claim is not None else study.claims
    if not stated:
        raise UserError("expected a study with the section 'claim' or 'claims', got one without them", str(path))
    return [Claim(name, path, study.model_copy(update={"claim": config})) for name, config in stated.items()]


def judge(claim: Claim, reports: Path = REPORTS) -> Case:
    """Return a claim with its ruling, from the stored report of its study.

    Args:
        claim: The claim.
        reports: The folder of the reports of claims. Reports of other studies are in the folder that contains it.
    """
    folder = find_report(claim.study.study, reports)
    if folder is None:
        return Case(claim)
    pages, abilities = _read_pages(folder), find_report(claim.config.abilities, reports)
    evidence = [one for page in pages for one in _evidence(claim.config, page)]
    beside = [
        replace(one, name=str(page.records[0]["task"]))
        for page in _read_pages(abilities)
        for one in _evidence(claim.config, page)
    ]
    return Case(claim, rule(claim.config, evidence), pages, folder, tuple(describe_statement(claim, pages)), tuple(beside))


def find_report(study: str, reports: Path = REPORTS) -> Path | None:
    """Return the folder of a study's report, which may be part of a page on several studies; None without one, and of ""."""
    if not study:
        return None
    folders = [reports / study, reports.parent / study, *sorted(reports.parent.glob(f"*/{study}"))]
    return next((folder for folder in folders if _parts(folder)), None)


def _parts(folder: Path) -> list[Path]:
    """Return the folders with stored results of a study: one, or one for each of its tasks."""
    return [path.parent for path in sorted([*folder.glob(FILE), *folder.glob(f"*/{FILE}")])]


def _read_pages(folder: Path | None) -> tuple[Page, ...]:
    return _pages(tuple((part, (part / FILE).stat().st_mtime_ns) for part in _parts(folder))) if folder else ()


@lru_cache(maxsize=32)
def _pages(parts: tuple[tuple[Path, int], ...]) -> tuple[Page, ...]:
    """Return the pages of a stored report, given the times of its files: several claims may be judged by one study."""
    return tuple(make_page(**load(part)) for part, _ in parts)


def _evidence(claim: ClaimConfig, page: Page) -> list[Any]:
    estimates = page.analyzed.results.estimates
    found = {"trends": estimates.get("trend", ()), "factorial": estimates.get("factorial")}
    evidence = gather(claim, page.cells, margin=page.info.spec.margin, over=page.info.spec.over, **found)
    return [replace(one, name=f"{page.info.task}: {one.name}") for one in evidence] if page.info.task else evidence


def describe_statement(claim: Claim, pages: Sequence[Page]) -> list[str]:
    """Return what a reader has to know: the claim was stated after the first run, or it or its study was changed since."""
    calls = next((page.info.calls for page in pages if page.info.calls), ())
    now = claim.study.source.written
    recorded = [_recorded(call.text) for call in calls]
    sentence = claim.config.sentence
    stated = [_section(fields, sentence) for fields in recorded]
    same = [one for one in stated if one]
    remarks = []
    if not same:
        remarks.append("not in the file of the first run, so perhaps stated after its results were known")
    elif same[0] is not stated[0]:
        remarks.append("stated after the first run of the study")
    if same and (changed := [name for name in JUDGED if same[0].get(name) != _section(now, sentence).get(name)]):
        remarks.append(f"changed after the first run: {', '.join(changed)}")
    if recorded and (changed := [name for name in TRAINED if recorded[-1].get(name) != now.get(name)]):
        remarks.append(f"the file of the study has changed since its runs: {', '.join(changed)}")
    return remarks


@lru_cache(maxsize=128)
def _recorded(text: str) -> dict[str, Any]:
    """Return the fields of a recorded study file; empty when it cannot be read."""
    try:
        fields = parse(text, name="the recorded study")[0]
    except UserError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _section(fields: Mapping[str, Any], sentence: str) -> Mapping[str, Any]:
    """Return the claim of a study file with a sentence; empty without one."""
    several = fields.get("claims")
    sections = [fields.get("claim"), *(several.values() if isinstance(several, dict) else ())]
    return next((one for one in sections if isinstance(one, dict) and one.get("sentence") == sentence), {})
