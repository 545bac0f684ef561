"""Whatever a study file or an assignment holds: a plan, or one line with its place. Nothing else, ever.

``pytest -m slow tests/config/test_fuzz.py`` tries 10,000 files; the same numbers make the same files everywhere.
"""

import contextlib
import io
import os
import random
import re
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli import main, train
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.training import costs
from tests.config.fuzz import ROOT, assignment, bases, mutant

SEED = 1
SECONDS = 60  # by then a file that takes milliseconds has hung
PLACE = re.compile(r"\S+\.(yaml:\d+:\d+|py(:\d+)?): .")  # the study's, or that of a file it imports
# What Python tells an audit hook when a program starts, connects or deletes something: a plan does none of it.
DEEDS = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect", "os.remove", "os.rename")
_deeds: list[str] | None = None


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _deeds is not None and (event in DEEDS or (event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"))):
        _deeds.append(f"{event} {args}")


class Hung(BaseException):
    """Not an Exception, so that no handler takes it for a mistake in the file."""


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Inside, hanging, taking gigabytes, and touching anything but files to read are failures."""
    global _deeds

    def hung(number: int, frame: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    _deeds = []
    try:
        yield
        assert not _deeds, f"it did this: {_deeds[:3]}"
    finally:
        _deeds = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where studies are written, with what they import; inside, a mistake cannot take the machine's memory."""
    found = tmp_path_factory.mktemp("fuzz")
    shutil.copy(ROOT / "examples/my_variant/cosine.py", found)
    plan(written(found, bases()[-1].encode()))  # what is imported once opens files of its own
    if not getattr(sys, "_attnlab_watches", False):
        sys.addaudithook(_hook)
        sys._attnlab_watches = True  # type: ignore[attr-defined]  # a hook stays for good
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_DATA, (used + 2**31, limits[1]))
    yield found
    resource.setrlimit(resource.RLIMIT_DATA, limits)


@pytest.fixture(scope="module", autouse=True)
def costs_once() -> Iterator[None]:
    """A model is built once for each configuration of it: most mutants leave most of their cells as they were."""
    known: dict[str, dict[str, int]] = {}
    real = costs.plan_figures

    def remembered(config: RunConfig, task: Any) -> dict[str, int]:
        key = config.model_dump_json(exclude={"train", "evaluate", "data", "seed"})
        if key not in known:
            known[key] = real(config, task)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "plan_figures", remembered)
        yield


def written(folder: Path, data: bytes) -> Path:
    path = folder / "s.yaml"
    path.write_bytes(data)
    return path


def outcome(path: Path) -> str:
    """``accepted`` or ``rejected``; anything else raises."""
    try:
        with watched():
            plan(path)
    except UserError as error:
        assert PLACE.match(str(error)), f"no place: {error}"
        assert str(error).isprintable(), f"not one printable line: {error!r}"
        return "rejected"
    return "accepted"


def survey(folder: Path, numbers: range) -> Counter[str]:
    """How the mutants ended; the first few that broke the promise are printed with their files' text."""
    found: Counter[str] = Counter()
    broken = []
    for number in numbers:
        data = mutant(SEED, number)
        try:
            found[outcome(written(folder, data))] += 1
        except (Exception, Hung) as error:
            broken.append(f"mutant({SEED}, {number}): {type(error).__name__}: {str(error)[:300]}")
    assert not broken, f"{len(broken)} broke the promise:\n" + "\n".join(broken[:20])
    return found


def test_a_few_hundred_mutants(folder: Path) -> None:
    found = survey(folder, range(300))
    assert min(found["accepted"], found["rejected"]) > 20  # the mutators reach both


@pytest.mark.slow
def test_ten_thousand_mutants(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = survey(folder, range(10_000))
    with capsys.disabled():
        print(f"\n10,000 mutants, seed {SEED}: {found['accepted']:,} accepted, {found['rejected']:,} rejected with a place")
    assert found.total() == 10_000


SETS = 'train.steps=30 model.dim=24 evaluate.stride=1 seeds=[1] train={"lr":1e-3} retries=0 margin=0.1'
ONLY = "variant=dense,cosine variant=strided_sparse lr=1e-3,3e-4 task.length=24 train.lr=1e-3"
TRAIN = f"{SETS} task.length=12 position=none machine.device=cpu study=other backend=auto"


def typed(rng: random.Random, study: Path) -> list[str]:
    """A command line with assignments that nobody has checked."""
    verb, good = rng.choice((("--set", SETS), ("--only", ONLY), ("train", TRAIN)))
    words = list(dict.fromkeys(assignment(rng, good=good) for _ in range(rng.randrange(1, 4))))
    if verb == "train":
        return ["train", "task=pydocs", "variant=dense", *words]
    return ["plan", str(study), "--tflops", "1", verb, *words]


def test_assignments_on_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "run_plan", lambda plan, arguments, only: 0)
    study, rng, codes = written(folder, bases()[-1].encode()), random.Random(SEED), Counter[int]()
    for _ in range(200):
        words, said = typed(rng, study), io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said), watched():
            code = main.main(words)
        lines = said.getvalue().splitlines()
        assert code == 0 or (code == 2 and len(lines) == 1 and lines[0].isprintable()), (words, lines)
        codes[code] += 1
    assert min(codes[0], codes[2]) > 20
