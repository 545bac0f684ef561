"""Does averaging the weights of the last steps reduce the variance of a paired difference? ``python -m benchmarks.averaging``.

Small models are trained on bytes, on reviews and on translation, and the test is scored with the last weights and with the
mean of the weights after each of the last 5, 10, 20 and 40 % of the steps. For each cell and share, it prints the seeds, the
variance over seeds of the paired difference from the baseline with and without averaging, and by how much the score of the
cell changes.
"""

import argparse
from multiprocessing import get_context
from typing import Any

import pandas
import torch

import attnlab
from attnlab.config.run import RunConfig
from attnlab.training.device import set_up_run
from attnlab.training.distributed import Group
from attnlab.training.trainer import Trainer

SHARES = (0.05, 0.1, 0.2, 0.4)
BASELINE = "dense"
CELLS = {
    BASELINE: {"variant": "dense"},
    "no_wo": {"variant": {"name": "no_wo", "match": "params"}},
    "kv_heads": {"variant": {"name": "dense", "with": {"name": "kv_heads", "count": 2}}},
}
TASKS: dict[str, dict[str, Any]] = {
    "bytes": {
        "task": {"name": "pydocs", "length": 128},
        "position": "rotary",
        "train": {"steps": 300, "batch_size": 8, "lr": 5e-3},
    },
    "reviews": {
        "task": {"name": "imdb", "length": 64, "vocabulary": 8000},
        "position": "learned",
        "train": {"steps": 200, "batch_size": 32, "lr": 3e-3},
        "evaluate": {"batch_size": 128, "test_limit": 4000, "valid_limit": 1000},
    },
    "translation": {
        "task": {"name": "multi30k", "source": "de", "target": "en", "vocabulary": 4000, "label_smoothing": 0.1},
        "position": "sinusoidal",
        "model": {"tie_embeddings": True},
        "train": {"steps": 200, "batch_size": 64, "lr": 4e-3},
    },
}


class AveragingTrainer(Trainer):
    """A trainer that also sums the weights after each of the last steps, for every share of ``SHARES``."""

    def take_step(self) -> None:
        """Take a step, and add the weights to the sums that have begun."""
        super().take_step()
        if not hasattr(self, "sums"):
            self.sums = {share: [torch.zeros_like(weight) for weight in self.model.parameters()] for share in SHARES}
            self.counts = dict.fromkeys(SHARES, 0)
        for share in SHARES:
            if self.step > round(self.total * (1 - share)):
                self.counts[share] += 1
                for total, weight in zip(self.sums[share], self.model.parameters(), strict=True):
                    total += weight.detach()

    def averaged_scores(self) -> dict[float, float]:
        """Return the score on the test by share; 0 stands for the last weights."""
        scores = {0.0: self._evaluate("test")[self.task.metric]}
        for share in SHARES:
            with torch.no_grad():
                for total, weight in zip(self.sums[share], self.model.parameters(), strict=True):
                    weight.copy_(total / self.counts[share])
            scores[share] = self._evaluate("test")[self.task.metric]
        return scores


def train(config: RunConfig) -> dict[float, float]:
    """Train a run and return its scores by share."""
    context: dict[str, Any] = {"group": Group(), "folder": None, "device": set_up_run(config, rank=0)}
    trainer = AveragingTrainer(config, report=lambda step, metrics: False, **context)
    while trainer.step < trainer.total:
        trainer.take_step()
    return trainer.averaged_scores()


def table(scores: pandas.DataFrame, baseline: str) -> pandas.DataFrame:
    """Return a row for each cell and share: seeds, variances with and without averaging, change of the cell's score.

    Args:
        scores: cell, seed, share, score; share 0 has no averaging.
        baseline: the cell to compare with.
    """
    wide = scores.pivot_table(index="seed", columns=["share", "cell"], values="score")
    rows = []
    for cell in [name for name in scores["cell"].unique() if name != baseline]:
        plain = wide[0.0][cell] - wide[0.0][baseline]
        for share in SHARES:
            averaged = wide[share][cell] - wide[share][baseline]
            change = (wide[share][cell] - wide[0.0][cell]).mean()
            rows.append(
                {"share": share, "cell": cell, "seeds": len(plain), "variance": averaged.var(), "variance_without": plain.var()}
                | {"change": change}
            )
    return pandas.DataFrame(rows)


def study(task: str, seeds: int) -> dict[str, Any]:
    """Return the study of a task of ``TASKS``."""
    base = {"machine": {"device": "cpu", "threads": 1, "reuse_memory": True}, **TASKS[task]}
    base["model"] = {"dim": 64, "depth": 2, "heads": 4, **base.get("model", {})}
    base["train"] = {"warmup": 0.1, "precision": "fp32", **base["train"]}
    name = f"averaging-{task}"
    return {
        "study": name,
        "base": base,
        "grid": {"layers": CELLS},
        "seeds": list(range(seeds)),
        "baseline": {"layers": BASELINE},
    }


def measure(study: dict[str, Any], *, workers: int) -> pandas.DataFrame:
    """Train every run of a study, several at a time, and return ``table`` of them."""
    runs = attnlab.plan(study).runs
    with get_context("spawn").Pool(workers) as pool:
        results = pool.map(train, [item.config for item in runs], chunksize=1)
    rows = [
        {"cell": item.cell.name, "seed": item.seed, "share": share, "score": score}
        for item, scores in zip(runs, results, strict=True)
        for share, score in scores.items()
    ]
    return table(pandas.DataFrame(rows), BASELINE)


def main() -> None:
    """Print a table for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help=f"of {', '.join(TASKS)} (default: all)")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    for task in arguments.tasks:
        print(
            measure(study(task, arguments.seeds), workers=arguments.workers).assign(task=task).to_csv(index=False), flush=True
        )


if __name__ == "__main__":
    main()
