"""Stand-ins for profiles: a training function with known scores, a tiny diagnostic, and a made-up profile."""

from pathlib import Path
from typing import Any

from attnlab.config.run import RunConfig
from attnlab.extras.profile.results import LR, AbilityResult, Level, LevelResult, Profile, best_rate
from attnlab.tasks.diagnostics.parity import Parity
from attnlab.training.train import Result
from attnlab.variants.dense import Dense

# Longest parity that each variant solves: by all seeds, and by the seeds below a number.
LONGEST = {"dense": 64, "lstm": 16, "delta": 8, "linear": 0, "gru": 16}
FAST = 0.012


def known_scores(config: RunConfig, *, report: Any, folder: Path) -> Result:
    """Solve parity up to a length that depends on the variant; of ``gru`` one seed of three solves one level more.

    At four times the learning rate ``delta`` solves one level more, and of ``lstm`` the first seed.
    """
    name, length = config.variant.name, config.task.options["length"]  # type: ignore[union-attr]
    rate = "" if config.train.lr == 0.003 else f" at {config.train.lr:g}"
    if not (folder / "trained").exists():  # as in a real training, the result of a run serves other studies
        with (folder.parent / "trained.txt").open("a") as file:
            file.write(f"{name} {length}{rate} {config.seed}\n")
    (folder / "trained").touch()
    more = name == "gru" and config.seed == 0 and not rate
    more = more or (config.train.lr == FAST and (name == "delta" or (name == "lstm" and config.seed == 0)))
    longest = LONGEST[name] * (2 if more else 1)
    report(1, {"train/loss": 1.0})
    if name == "linear" and config.seed == 2:
        return Result("diverged", {}, 1, "the loss became nan at step 1")
    return Result("completed", {"accuracy": 1.0 if length <= longest else 0.5, "tokens_per_s": 2.0, "steps": 4.0}, 4)


class TinyParity(Parity):
    """Parity of a few bits."""

    levels = ({"length": 8}, {"length": 9})
    steps = 2


class Bidirectional(Dense):
    """Attention for another role."""

    roles = frozenset({"bidirectional"})


class Leak(Dense):
    """Attention that sees the future."""

    def forward(self, x: Any, *, context: Any = None, mask: Any = None) -> Any:
        return super().forward(x, context=context, mask=mask) + x.mean(1, keepdim=True)


def level_result(*scores: float, threshold: float = 0.9, lr: float = LR, **states: int) -> LevelResult:
    """Return the result of seeds with these scores, and of further runs in other states."""
    solved = sum(score >= threshold for score in scores)
    counts = ({"completed": len(scores)} if scores else {}) | states
    costs = {"parameters": 1000.0, "tokens_per_s": 2.0, "steps": 60.0} if scores else {}
    reasons = tuple(f"it was {state}" for state in states)
    steps = {seed: 60 if score >= 0.98 else 100 for seed, score in enumerate(scores)}
    return LevelResult(dict(enumerate(scores)), counts, lr, solved, reasons=reasons, costs=costs, steps=steps)


def made_up_profile() -> Profile:
    """Return a profile with every outcome."""
    levels = tuple(Level(f"pairs {n}", 1 / n, 4 * n, 100) for n in (4, 8, 16))
    good, mixed = level_result(0.99, 0.98, 0.97), level_result(0.99, 0.92, 0.33)
    bad = best_rate([level_result(0.21, 0.34, 0.25), level_result(0.2, lr=0.012), level_result(0.3, lr=0.00075)])
    fast = best_rate([level_result(0.3, 0.99, 0.2), level_result(0.99, 0.96, 0.97, lr=FAST)])
    results = {"mine": (good, mixed, bad), "dense": (good, good, fast), "lstm": (bad,)}
    mqar = AbilityResult("mqar", "recall", "Recall values.", "arXiv:2312.04927", 0.9, levels, results)
    other = {"mine": (level_result(refused=1),), "dense": (mixed, mixed), "lstm": (good, level_result(0.99, diverged=2))}
    parity = AbilityResult("parity", "state", "Count ones.", "", 0.9, levels, other)
    positions = {"mine": "rotary", "dense": "rotary", "lstm": "none"}
    return Profile("mine", ("mine",), positions, (mqar, parity), 3, {"model": "width 64"}, "attnlab profile mine")
