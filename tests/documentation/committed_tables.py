"""The tables of committed reports, and the texts about them, for the tests of numbers in committed sentences."""

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas

from attnlab.report import stored
from tests.support.paths import REPORTS

Numbers = tuple[float, ...]


@cache
def runs(report: str) -> Any:
    """Return the runs of a report; an earlier version has them one by one."""
    content = stored.read_object(REPORTS / report / stored.FILE)
    return pandas.DataFrame(content["runs"]) if isinstance(content["runs"], list) else stored.load(REPORTS / report)["runs"]


@cache
def cells(report: str) -> Any:
    return pandas.read_csv(REPORTS / report / "cells.csv").set_index("cell")


def minutes(report: str) -> float:
    return float(runs(report)["seconds"].sum() / 60)


def value(report: str, cell: str, metric: str) -> Numbers:
    """Return a cell's mean and the half width of its interval."""
    row = cells(report).loc[cell]
    return float(row[metric]), float(row["high"] - row["low"]) / 2


def difference(report: str, cell: str) -> Numbers:
    """Return a cell's difference and the half width of its interval."""
    row = cells(report).loc[cell]
    return float(row["difference"]), float(row["difference_high"] - row["difference_low"]) / 2


def simultaneous(report: str, cell: str) -> Numbers:
    row = cells(report).loc[cell]
    return float(row["difference"]), float(row["simultaneous_high"] - row["simultaneous_low"]) / 2


def reference(report: str, name: str) -> float:
    scores = json.loads((REPORTS / report / "report.json").read_text(encoding="utf-8"))["info"]["reference_scores"]
    return next(float(score["value"]) for score in scores if score["name"] == name)


def position_row(cell: str) -> list[float]:
    """Return a scheme's score, its difference from rotary positions, and its scores at two and four times the length."""
    of_cell = cells(POSITIONS).loc[cell]
    numbers = [*value(POSITIONS, cell, "bits_per_byte")]
    numbers += [] if of_cell["verdict"] == "baseline" else difference(POSITIONS, cell)
    lengths = row(f"{POSITIONS}/README.md", f"{cell} | 128")[-2:]
    return numbers + [number for length in lengths for number in length]


def flops(report: str) -> Any:
    """Return the mean training TFLOP of a run, by cell; stages have names of their own."""
    table = runs(report)
    return (3 * table["flops_per_token"] * table["tokens"] / 1e12).groupby(table["cell"]).mean()


@cache
def row(page: str, first: str) -> list[Numbers]:
    """Return the numbers of each further cell of the first row of a page's tables that begins with this text."""
    lines = (REPORTS / page).read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"| {first} |"))
    texts = [cell.partition("), ")[0] for cell in line.strip("| ").split(" | ")[1:]]
    return [tuple(float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)) for text in texts]


@dataclass(frozen=True)
class Claim:
    """A sentence of a text, with ``#`` for each number or its word, and a function of the tables that returns the numbers."""

    text: str
    sentence: str
    numbers: Any


def simulated(simulation: str, quantity: str, *words: str, column: str = "value", without: tuple[str, ...] = ()) -> Any:
    """Return a quantity of a simulation in percent, of groups and settings with all of the words and none of `without`."""
    table: Any = pandas.read_csv(REPORTS / "validity/validity.csv")
    table = table[(table["simulation"] == simulation) & (table["quantity"] == quantity)]
    names = table["group"] + ", " + table["setting"]
    chosen = names.map(lambda name: all(word in name for word in words) and not any(word in name for word in without))
    return 100 * table[column][chosen]


SYSTEMS, VERDICTS = "docs/systems.md", "docs/concepts/verdicts.md"
README, INDEX = "README.md", "docs/index.md"
PAIRING, GPU, FACTORS, DIAGNOSTICS = (
    "docs/concepts/pairing.md",
    "docs/how-to/gpu.md",
    "docs/studies/factors.md",
    "docs/diagnostics.md",
)
POSITIONS, POSITION_LENGTHS = "positions-cpu", " # ± # | # ± # |"
ENWIK8, WO_IMDB, BERT, GPT2 = "wo-cpu/wo-cpu-enwik8", "wo-cpu/wo-cpu-imdb", "bert-cpu", "gpt2-cpu"
WO, COMPONENTS = "wo-gpu-enwik8", "components-cpu"
ON_REVIEWS = "critical-components-imdb-cpu"


@cache
def on_gpu(case: str) -> dict[str, Any]:
    """Return the completed case of the check of the GPU that begins with these words."""
    lines = (REPORTS / "gpu/nvidia-h200/results.jsonl").read_text(encoding="utf-8").splitlines()
    return next(
        record
        for record in map(json.loads, lines)
        if f"{record['step']}: {record['case']}".startswith(case) and record["state"] == "done"
    )


def all_on_gpu(step: str, field: str, *, without: str = "\0") -> list[float]:
    """Return a field of all cases of a step, without those with a word in their name."""
    lines = (REPORTS / "gpu/nvidia-h200/results.jsonl").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if record["step"] == step and without not in record["case"]]
    return [float(record[field]) for record in records if field in record]


def conclusive_seeds(cell: str) -> int:
    """Return the number of pairs of seeds of a comparison of the study of Wo on a GPU."""
    return int(cells(WO).loc[cell, "n_paired"])


def effect(report: str, name: str) -> Numbers:
    """Return an effect of a factorial, and the half width of its interval."""
    row = pandas.read_csv(REPORTS / report / "effects.csv").set_index("effect").loc[name]
    return float(row["estimate"]), float(row["high"] - row["low"]) / 2


def decided(report: str, kind: str, *also: str) -> int:
    """Return the number of effects of a kind, ``main`` or ``interaction``, that are better, worse or one of ``also``."""
    table: Any = pandas.read_csv(REPORTS / report / "effects.csv")
    return int(table[table["kind"] == kind]["verdict"].str.startswith(("better", "worse", *also)).sum())


def predicted_signs() -> int:
    """Return how many of the signs that were predicted for twelve recipes of QK-norm are those of the means over seeds."""
    predicted = pandas.read_csv(REPORTS / "claims/qk-norm-predictions.csv").set_index("recipe")["predicted"]
    measured = cells("claims/qk-norm-fresh-cpu")["difference"].dropna()
    return sum(measured[f"{recipe} qk_norm"] * value > 0 for recipe, value in predicted.items())


def predicted_scores() -> int:
    """Return how many of the scores that were predicted for twelve widths and gains of QK-norm are within the tolerance."""
    table, measured = pandas.read_csv(REPORTS / "claims/qk-norm-width-predictions.csv"), cells("claims/qk-norm-width-cpu")
    names = "heads=" + table["heads"].astype(str) + " " + table["norm"]
    return int(((measured["bits_per_byte"][names].to_numpy() - table["predicted"]).abs() <= table["tolerance"]).sum())


def crossing(variant: str) -> tuple[int, int]:
    """Return the longest length at which a sparse variant is slower than dense attention on the GPU, and twice that length."""
    last = max(
        n for n in (2**k for k in range(12, 17)) if on_gpu(f"sparse: {variant}_sparse, xformers, {n}")["times_as_fast"] < 1
    )
    return last, 2 * last


def quickstart_scores(cell: str) -> list[float]:
    table = runs("quickstart")
    return list(table[table["cell"] == cell].sort_values("seed")["bits_per_byte"][:2])


def worst_for_new_items(quantity: str, *, without: tuple[str, ...], column: str = "value") -> float:
    """Return the largest share of missed differences for new items, or its error, without some kinds of items."""
    table: Any = pandas.read_csv(REPORTS / "validity/validity.csv")
    table = table[(table["simulation"] == "new-items") & (table["quantity"] == quantity)]
    table = table[[not name.startswith(without) for name in table["group"]]]
    return float(100 * table.loc[table["value"].idxmax(), column])


def ends(numbers: Any) -> Numbers:
    return float(numbers.min()), float(numbers.max())


def took(study: str, report: str) -> Claim:
    """Return the claim that a study's runs took so many minutes."""
    return Claim(study, "The # runs took # minutes in all", lambda: (len(runs(report)), minutes(report)))


def trained(report: str, cell: str) -> Any:
    return runs(report)[runs(report)["cell"] == cell]


def text_read(cell: str) -> float:
    """Return the MB of text that a cell of GPT-2 reads."""
    table = trained(GPT2, cell)
    ratio = table["bits_per_token"] / table["bits_per_byte"]
    return float((table["tokens"] * ratio.fillna(1)).mean() / 1e6)


def stages_within() -> float:
    """Return how far the FLOPs of the pre-trainings differ, in percent of the smallest."""
    table = runs(BERT)[runs(BERT)["phase"] == "stage"]
    counts = table["flops_per_token"] * table["tokens"]
    return float(100 * (counts.max() / counts.min() - 1))


def bert_row(name: str, cell: str) -> Claim:
    return Claim(SYSTEMS, f"| {name} | # ± # | # ± # |", lambda: (*value(BERT, cell, "accuracy"), *difference(BERT, cell)))


TEXTS = {  # name -> where its parts begin and end in its file; a study's comment has its name
    README: ("Can the output projection", "## Two commands", "## Results", "## Contributing"),
    SYSTEMS: ("## Can the output", "\0"),
    VERDICTS: ("# Verdicts", "\0"),
    INDEX: ("Can the output projection", "## Install"),
    PAIRING: ("In the quickstart, the first", "## What else"),
    FACTORS: ("has eight components", "## Critical"),
    GPU: ("[The page of an NVIDIA", "## Memory"),
    "docs/tutorials.md": ("models with two layers translate", "`attnlab generate RUN --prompt TEXT --beam 5`"),
    "docs/studies/length.md": ("asks this of ten layers", "\0"),
}
STUDIES = {  # study -> the folder of its report
    **{name: name for name in ("aa", "bert-cpu", "components-cpu", "enwik8-cpu", "gpt2-cpu", "imdb-cpu", "length-cpu")},
    "critical-components-cpu": "critical-components-cpu",
    ON_REVIEWS: ON_REVIEWS,
    **{name: name for name in ("multi30k-cpu", "multi30k-en-de-cpu", "quickstart", "recall-cpu", "validity-of-proxies")},
    "state-tracking-cpu": "state-tracking-cpu/parity-length-16",
    "wo-cpu-enwik8": ENWIK8,
    "wo-cpu-imdb": WO_IMDB,
}
SETTINGS = {  # fragments with values of the study's file, which are no results
    BERT: ["2 blocks of width 128 in place of 12 of width 768", "reads 256 tokens at a time, fine-tuning 512"],
    "components-cpu": ["a 16-cell fraction of their 256 combinations"],
    "enwik8-cpu": ["the 90 million training bytes"],
    GPT2: ["context of 256 tokens"],
    "imdb-cpu": ["(depth 6, width 128, length 512)", "batches of 16"],
    "length-cpu": ["5 to 8 symbols in training, of 9 to 16 at length 32, of 17 to 32 at length 64"],
    "multi30k-cpu": ["3 + 3 blocks of width 256, one vocabulary of 8,000 subwords"],
    "recall-cpu": ["rows of 32 tokens hold 4 or 8 pairs"],
    "state-tracking-cpu": ["eigenvalues lie in [0, 1]"],
    "validity-of-proxies": ["for 100, 300 and 900 steps", "90 million training bytes", "for steps in 100 300 900"],
    "wo-cpu-enwik8": ["enwik8's 90 million training bytes"],
    "wo-cpu-imdb": ["128 words of each review once, instead of six blocks and 512 words"],
    SYSTEMS: [
        "with two blocks of width 64, trained at five learning rates with five seeds",
        "beyond the 128 bytes of training",
        "at 128 bytes | difference from rotary | at 256 | at 512",
        "at 512 bytes, rotary",
        "Learned positions end at 128",
        "2 blocks of width 128",
        "after 12 epochs",
        "the 1,000 test sentences of 2016",
    ],
    VERDICTS: [
        "have a 95 % t-interval",
        "at 5 % each for better or worse",
        "less than a relative 4e-6",
        "in at least 5 seeds are *identical*",
        "or by more than 5 % of the seeds",
        "two t-tests below 5 %",
        "at most 4 degrees",
        "by a factor of up to 4, or these are not paired",
        "with 2 to 10 seeds and 3 to 12 comparisons",
        "With 6 comparisons and 3 seeds, a difference of 3 standard",
    ]
    + ["by 2 standard deviations", "at most 6 % are promised"],
    FACTORS: ["eight components in 16 cells"],
    "critical-components-cpu": ["a 16-cell fraction of their 128 combinations"],
    GPU: [
        "2, 4 and 8 runs of a small model (depth 2, width 64, 16 x 128 tokens",
        "PyTorch 2.11, CUDA 13.0, 16 CPU cores",
        "width 256, `xformers`",
        "after 300 steps by",
    ],
}
NOT_DERIVED = {  # figures of papers, and of trials whose runs are not committed
    BERT: ["6.1 nats after 1,100 steps, and with rotary ones at 5.2 after 440", "tokens alone give 6.7", "Seed 0, on"]
    + [
        "fine-tuned on 256 tokens: the four cells had 0.853 to 0.859",
        "same within 0.001 with lr 1.5e-3 in place of 5e-4",
    ]
    + ["Seed 9, on", "after 4,000 steps", "predict 36 % of the masked tokens in place of 29 %"]
    + ["0.877 with lr 1.5e-3, 0.875 with 5e-4 and layer_lr_decay 0.8, and 0.881 from scratch"],
    SYSTEMS: ["read 3.3 billion words", "of 4 + 4 blocks has 41.02 after up to 8,000, with a beam of 5"],
}
