"""Torture test: a study is killed repeatedly, restarted by the same command, and compared with an undisturbed one.

    python -m tests.torture --storage postgresql --runs 40 --workers 4 --kills 100 --seed 0
    python -m tests.torture --victims server --runs 12 --workers 2 --kills 50

The seed determines the kinds, the order and the pauses of the kills; the state of the study at each kill depends on the
machine.
"""

import argparse
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import attnlab
from attnlab.study.execution.progress import ProgressDisplay
from tests.support.exactly_once import Curves, Stores, broken_promises, finished
from tests.support.postgres import Server, server
from tests.support.processes import MARK, Marked
from tests.torture.spy import HALF

CELLS = 4
STUDY = """\
study: torture
imports: [{spy}]
base:
  task: {{name: pydocs, length: 16, sampling: contiguous}}
  model: {{dim: 16, depth: 1, heads: 2, dropout: 0.1}}
  train: {{steps: {steps}, batch_size: 4, lr: 3e-3, log_every: 10, eval_every: 20, checkpoint_every: 5,
          checkpoint_selection: best}}
  evaluate: {{valid_limit: 400, test_limit: 400}}
  machine: {{device: cpu, threads: 1}}
grid:
  variant: [spied, spied_xl]
  position: [relative]
  model.mem_len: [0, 16]
seeds: {seeds}
retries: 1000
"""
VICTIMS = {  # kind of process that is killed -> relative frequency
    "all": {"run": 5, "parent": 2, "family": 2, "any": 1},
    "server": {"server": 1, "run": 1},  # the parent lives: it alone must lose and double nothing
}


def write_study(folder: Path, *, runs: int, steps: int, chains: bool = False) -> Path:
    """Write the study file and return its path.

    Args:
        runs: a multiple of ``CELLS``; of chains, of twice that number.
        chains: half of the runs start from the other half.
    """
    path = folder / "torture.yaml"
    seeds = [*range(runs // CELLS // (2 if chains else 1))]
    text = STUDY.format(spy=Path(__file__).with_name("spy.py"), steps=steps, seeds=seeds)
    if chains:
        text = text.replace("base:\n", f"stages:\n  pretrain: {{train: {{steps: {steps - 20}}}}}\nbase:\n  init: pretrain\n")
    path.write_text(text)
    return path


def undisturbed(study: Path, root: Path) -> dict[str, Curves]:
    """Run the study without disturbance; return its curves by fingerprint."""
    assert attnlab.run(study, root=root, workers=2, display=ProgressDisplay(quiet=True)).ok
    stores = Stores(f"sqlite:///{root / 'mlflow.db'}", f"sqlite:///{root / 'optuna.db'}")
    return {key: stores.curves(record) for key, record in finished(stores.records("torture")).items()}


@dataclass
class Torment:
    """A study under attack.

    Args:
        parents: parents that run it at a time, each with ``workers`` runs at a time.
        database: the addresses for Optuna and for MLflow; None: the sqlite files of one parent.
        pause: the most seconds between two kills: about as long as a run.
    """

    study: Path
    root: Path
    workers: int = 1
    parents: int = 1
    database: tuple[str, str] | None = None
    pause: float = 2.5
    hits: Counter[str] = field(default_factory=Counter)  # kind -> kills that hit a living process
    processes: int = 0  # killed processes
    starts: int = 0

    def __post_init__(self) -> None:
        self.marked = Marked(secrets.token_hex(8))
        self.runs = attnlab.plan(self.study).total
        self.root.mkdir(parents=True, exist_ok=True)
        self.spied, self.gate, self._log = (self.root / name for name in ("read.txt", "gate.txt", "parents.log"))
        self.spied.touch()

    @property
    def stores(self) -> Stores:
        """Return the stores that hold the study's records."""
        storage, tracking = self.database or (f"sqlite:///{self.root / f'{name}.db'}" for name in ("optuna", "mlflow"))
        return Stores(tracking, storage)

    def fit(self, kinds: Sequence[str], *, seed: int, patience: float = 1_200) -> None:
        """Kill processes of these kinds in turn and restart killed parents until the command reports a finished study.

        Raises:
            AssertionError: a parent failed by itself, or the study takes more than ``patience`` seconds.
        """
        chance, left, until = random.Random(seed), list(kinds), time.monotonic() + patience
        running = [self._start() for _ in range(self.parents)]
        try:
            while running:
                assert time.monotonic() < until, f"not done after {patience:g} s:\n{self._tail()}"
                allowed = self._allow(len(kinds))
                if left and self._kill(left[0], running, chance, allowed=allowed):
                    left.pop(0)
                time.sleep(0.05)
                running = [self._start() if parent.returncode else parent for parent in running if self._goes_on(parent)]
        finally:
            for parent in running:
                self.marked.kill_all(self.marked.below(parent.pid))
                parent.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        more = {MARK: self.marked.mark, "ATTNLAB_RUNS": str(self.root), "ATTNLAB_HEARTBEAT": "1"}
        more |= {"ATTNLAB_SPY": str(self.spied), "ATTNLAB_GATE": str(self.gate), "ATTNLAB_KEEPER": str(os.getpid())}
        if self.database:
            more |= dict(zip(("ATTNLAB_STORAGE", "MLFLOW_TRACKING_URI"), self.database, strict=True))
        words = ["-m", "attnlab", "run", str(self.study), "--workers", str(self.workers), "--no-report"]
        with self._log.open("ab") as log:
            return subprocess.Popen([sys.executable, *words], env=os.environ | more, stdout=log, stderr=log)

    def _allow(self, kills: int) -> int:
        """Return how many runs may have ended by now, in proportion to the kills so far: the last run outlasts all kills.

        The other runs wait before their end (``spy``), and are killed there.
        """
        at_once = self.workers * self.parents  # number of runs that may pass the gate together
        met = self.hits.total()
        allowed = self.runs if met >= kills else (self.runs - at_once) * met // kills
        self.gate.write_text(str(allowed))
        return allowed

    def _kill(self, kind: str, running: list[subprocess.Popen[bytes]], chance: random.Random, *, allowed: int) -> bool:
        """Pause, then kill; return True if a process was hit. ``any`` kills at any time, the others only in training."""
        if kind != "any" and not self._training(running):
            return False
        waiting = len(list(self.root.glob("work/*/model.safetensors"))) >= allowed
        time.sleep(chance.uniform(0, self.pause / 4 if waiting else self.pause))
        parent = chance.choice(running).pid
        if kind == "family":
            targets = self.marked.below(parent)
        else:
            pool = self._pool(kind, parent, running)
            targets = chance.sample(pool, min(1, len(pool)))
        hit = self.marked.kill_all(chance.sample(targets, len(targets)))
        self.processes += hit
        self.hits[kind] += hit > 0
        return hit > 0

    def _pool(self, kind: str, parent: int, running: list[subprocess.Popen[bytes]]) -> list[int]:
        """Return the processes of a kind, one of which is killed."""
        match kind:
            case "run":
                return self._training(running)
            case "server":
                return self.marked.servers(parent)
            case "parent":
                return [parent]
        return sorted(self.marked.parents())

    def _training(self, running: list[subprocess.Popen[bytes]]) -> list[int]:
        return sorted(run for parent in running for run in self.marked.runs(parent.pid))

    def _goes_on(self, parent: subprocess.Popen[bytes]) -> bool:
        code = parent.poll()
        assert code in (None, 0, -9), f"a parent ended with code {code}:\n{self._tail()}"
        return code != 0

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])


def verdict(torment: Torment, reference: dict[str, Curves]) -> list[str]:
    """Return one line for each broken promise, after ``fit``."""
    orphans = [] if torment.marked.gone() else [f"orphans: {sorted(torment.marked.parents())}"]
    torment.marked.kill_all()
    halves = [f"read half-written: {line}" for line in torment.spied.read_text().split() if line.endswith(HALF)]
    return [*orphans, *halves, *broken_promises(attnlab.plan(torment.study), torment.stores, reference=reference)]


def figures(torment: Torment, reference: dict[str, Curves], *, seconds: float) -> str:
    """Summarise the test in one line."""
    records = torment.stores.records("torture")
    done = Counter(record.data.tags["attnlab.fingerprint"] for record in records if record.info.status == "FINISHED")
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(torment.hits.items()))
    points = sum(len(metric_points) for curves in reference.values() for metric_points in curves.values())
    resumed = torment.spied.read_text().count("checkpoint.pt")
    return (
        f"{torment.runs} runs, {torment.parents} x {torment.workers} workers: {torment.hits.total()} kills ({kinds}) hit "
        f"{torment.processes} processes; {torment.starts} starts, {len(records)} attempts, {resumed} from a checkpoint; "
        f"{torment.runs - len(done)} lost, {sum(n > 1 for n in done.values())} doubled, {points} points held against the "
        f"undisturbed study's; {seconds:.0f} s"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run the torture test; exit code 0 means that every promise was kept."""
    args = _parser().parse_args(words)
    for name in ("ATTNLAB_STORAGE", "MLFLOW_TRACKING_URI"):
        os.environ.pop(name, None)
    os.environ |= {"OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    shared = args.storage == "postgresql"
    with tempfile.TemporaryDirectory() as name, server() if shared else nullcontext() as database:
        folder = Path(name)
        study = write_study(folder, runs=args.runs, steps=args.steps)
        began = time.monotonic()
        reference = undisturbed(study, folder / "undisturbed")
        print(f"undisturbed: {time.monotonic() - began:.0f} s", flush=True)
        torment = Torment(study, folder / "tormented", args.workers)
        if isinstance(database, Server):
            torment = Torment(
                study,
                folder / "tormented",
                args.workers // args.parents,
                args.parents,
                (database.database(), database.database()),
            )
        frequencies = VICTIMS[args.victims]
        kinds = random.Random(args.seed).choices([*frequencies], [*frequencies.values()], k=args.kills)
        began = time.monotonic()
        torment.fit(kinds, seed=args.seed, patience=args.patience)
        seconds = time.monotonic() - began
        broken = verdict(torment, reference)
        if torment.hits.total() < args.kills:
            broken.append(f"the study was done after {torment.hits.total()} kills: expected {args.kills}")
        print("\n".join([*broken, f"{args.storage}, seed {args.seed}: {figures(torment, reference, seconds=seconds)}"]))
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="Kill a study at every turn.")
    parser.add_argument("--storage", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--victims", choices=tuple(VICTIMS), default="all", help="server: fork servers and runs only")
    parser.add_argument("--runs", type=int, default=40, help=f"a multiple of {CELLS}")
    parser.add_argument("--steps", type=int, default=200, help="of each run")
    parser.add_argument("--workers", type=int, default=4, help="runs at a time; with postgresql shared by the parents")
    parser.add_argument("--parents", type=int, default=2, help="processes that run the study together, with postgresql")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=1_800, help="seconds after which it counts as stuck")
    return parser
