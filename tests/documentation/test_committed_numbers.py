"""Each number in a committed sentence is recomputed from the tables that it is about.

A claim is a sentence with ``#`` for each number, and the numbers as the tables have them. Numbers of the texts that are in no
claim must be in a fragment of ``NOT_DERIVED``: settings, figures of papers, and results of trials whose runs are not committed.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas
import pytest
from scipy.stats import t as student

from tests.support.paths import ROOT

REPORTS = ROOT / "reports"
NUMBER = re.compile(r"(?<![\w.\-])[+-]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?!\w)")
NOT_TEXT = re.compile(
    r"\]\([^)]*\)|`[^`]*`|arXiv:\S+|(?:et al\.|Bloem|Smyth|Hall|Johnson) \(?\d{4}|\(\d{4}\)|Zen \d|IBM model 1"
)
Numbers = tuple[float, ...]


@cache
def runs(report: str) -> Any:
    return pandas.read_csv(REPORTS / report / "runs.csv", low_memory=False)


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


def at_rate(report: str, rate: float, **where: float) -> Numbers:
    """Return the paired difference of no_wo from dense at one learning rate, and the half width of its interval."""
    table = runs(report)[lambda rows: (rows["state"] == "completed") & np.isclose(rows["train.lr"], rate)]
    for name, wanted in where.items():
        table = table[table[name] == wanted]
    scores = table.pivot_table(index="seed", columns="variant", values="bits_per_byte").dropna()
    differences = scores["no_wo"] - scores["dense"]
    n = len(differences)
    return float(differences.mean()), float(differences.std() / n**0.5 * student.ppf(0.975, n - 1))


def simultaneous(report: str, cell: str) -> Numbers:
    row = cells(report).loc[cell]
    return float(row["difference"]), float(row["simultaneous_high"] - row["simultaneous_low"]) / 2


def reference(report: str, name: str) -> float:
    scores = json.loads((REPORTS / report / "report.json").read_text(encoding="utf-8"))["info"]["reference_scores"]
    return next(float(score["value"]) for score in scores if score["name"] == name)


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


def speed(what: str, column: int) -> Numbers:
    """Return how many times as fast attnlab is, with the range over rounds; column 0 is the Zen 3, 1 the Zen 4, 2 limited."""
    lines = (REPORTS / "benchmarks/README.md").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"| {what} |"))
    return tuple(float(number) for number in re.findall(r"\d+\.\d+", line.split("|")[2 + column]))


def layer(variant: str) -> float:
    """Return the speed of a variant at 4,096 positions next to dense."""
    lines = (REPORTS / "benchmarks/variants.md").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"| {variant} | reference | 4,096 |"))
    return float(line.split("|")[5].split()[0])


@cache
def exponents() -> Any:
    lines = (REPORTS / "benchmarks/variants.md").read_text(encoding="utf-8").partition("least squares")[2].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    linear = ("linear", "gated_linear", "delta", "gated_delta")
    return pandas.Series([float(cells[2]) for cells in rows if cells[0] in linear])


@dataclass(frozen=True)
class Claim:
    """A sentence of a text, with ``#`` for each number, and a function of the tables that returns the numbers."""

    text: str
    sentence: str
    numbers: Any


def simulated(simulation: str, quantity: str, *words: str, column: str = "value") -> Any:
    """Return a quantity of a simulation in percent, of the groups and settings with all of these words."""
    table: Any = pandas.read_csv(REPORTS / "validity/validity.csv")
    table = table[(table["simulation"] == simulation) & (table["quantity"] == quantity)]
    names = table["group"] + ", " + table["setting"]
    return 100 * table[column][names.map(lambda name: all(word in name for word in words))]


ZEN3, ZEN4 = "amd-epyc-zen-3-2-cores", "amd-epyc-zen-4-2-cores"
LIMITED = f"{ZEN4}-limited-to-avx2"
SYSTEMS, MEASURE, VERDICTS = "docs/systems.md", "docs/how-to/measure.md", "docs/concepts/verdicts.md"
ENWIK8, WO_IMDB, BERT, GPT2 = "wo-cpu/wo-cpu-enwik8", "wo-cpu/wo-cpu-imdb", "bert-cpu", "gpt2-cpu"
WO = "wo-gpu-enwik8"
VERDICT = "time to a verdict, "


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


CLAIMS = [
    # ---- comments of studies
    Claim(BERT, "the same FLOPs within # %", lambda: (-(-stages_within() // 1),)),
    Claim(BERT, "# runs, of which # are pre-trainings", lambda: (len(runs(BERT)), (runs(BERT)["phase"] == "stage").sum())),
    took("enwik8-cpu", "enwik8-cpu"),
    Claim("enwik8-cpu", "reads # of the", lambda: (runs("enwik8-cpu")["tokens"].max() / 1e6,)),
    took(GPT2, GPT2),
    Claim(GPT2, "equal within # %", lambda: (100 * (flops(GPT2).max() / flops(GPT2).min() - 1),)),
    Claim(
        GPT2,
        "stands for # to # bytes",
        lambda: [text_read(c) / trained(GPT2, c)["tokens"].mean() * 1e6 for c in ("bpe1k", "bpe16k")],
    ),
    Claim(
        GPT2,
        "# TFLOP, with which bytes read # MB of text, 1k tokens # MB, 4k tokens # MB, and 16k tokens # MB",
        lambda: (flops(GPT2).mean(), *map(text_read, ("bytes", "bpe1k", "bpe4k", "bpe16k"))),
    ),
    took("wo-cpu-enwik8", ENWIK8),
    took("wo-cpu-imdb", WO_IMDB),
    Claim("wo-cpu-enwik8", "reads # to # million of", lambda: [f(runs(ENWIK8)["tokens"]) / 1e6 for f in (min, max)]),
    Claim(
        "validity-of-proxies",
        "has the runs of # and # steps",
        lambda: sorted(runs("validity-of-proxies")["train.steps"].unique()),
    ),
    Claim(
        "validity-of-proxies",
        "the # shorter ones took # minutes in all",
        lambda: (len(runs("validity-of-proxies")), minutes("validity-of-proxies")),
    ),
    Claim(
        "validity-of-proxies",
        "(# million parameters) and reads # to #",
        lambda: (
            runs("validity-of-proxies")["parameters"].median() / 1e6,
            runs("validity-of-proxies")["tokens"].min() / 1e6,
            runs("validity-of-proxies")["tokens"].min() * 9 / 1e6,
        ),
    ),
    Claim(
        "validity-of-proxies",
        "# million in the longest runs of the report",
        lambda: (runs("validity-of-proxies")["tokens"].max() / 1e6,),
    ),
    Claim("components-cpu", "from all # runs", lambda: (len(runs("components-cpu")),)),
    Claim("components-cpu", "# with the component on against #", lambda: (len(runs("components-cpu")) / 2,) * 2),
    Claim(WO, "read # to # million of", lambda: [f(runs(WO)["tokens"]) / 1e6 for f in (min, max)]),
    Claim(WO, "ended before # runs", lambda: ((runs(WO)["state"] == "interrupted").sum(),)),
    # ---- README
    Claim("README.md", "better after # and # steps, and as good after #, within # bits", lambda: (200, 600, 1800, 0.01)),
    Claim("README.md", "cost # BLEU", lambda: (-difference("multi30k-cpu", "dense learned")[0],)),
    # ---- docs/systems.md
    Claim(SYSTEMS, "(+# ± #), and a control", lambda: difference(WO_IMDB, "no_wo")),
    Claim(
        SYSTEMS,
        "is # ± # bits per byte better after # steps and # ± # after #;",
        lambda: (
            *(abs(n) for n in difference(WO, "no_wo steps=200")),
            200,
            *(abs(n) for n in difference(WO, "no_wo steps=600")),
            600,
        ),
    ),
    Claim(SYSTEMS, "at # bits per byte, nothing", lambda: value(WO, "no_wo steps=1800", "bits_per_byte")[:1]),
    Claim(SYSTEMS, "after # steps, at", lambda: (1800,)),
    Claim(SYSTEMS, "within # (+# ± #)", lambda: (0.01, *difference(WO, "no_wo steps=1800"))),
    Claim(SYSTEMS, "which are a factor of # apart", lambda: (2,)),
    Claim(SYSTEMS, "`no_wo` is # ± # worse after # steps", lambda: (*at_rate(WO, 0.01, **{"train.steps": 1800}), 1800)),
    Claim(
        SYSTEMS,
        "after # steps `no_wo` is # ± # bits per byte better, after # steps # ± # worse",
        lambda: (
            150,
            -difference(ENWIK8, "no_wo steps=150")[0],
            difference(ENWIK8, "no_wo steps=150")[1],
            1350,
            *difference(ENWIK8, "no_wo steps=1350"),
        ),
    ),
    Claim(
        SYSTEMS,
        "the change is not shown either (p = #)",
        lambda: (pandas.read_csv(REPORTS / ENWIK8 / "trends.csv").set_index("cell").loc["no_wo", "p_holm"].iloc[0],),
    ),
    Claim(SYSTEMS, "FLOPs, # TFLOP a run", lambda: (flops(GPT2).mean(),)),
    Claim(
        SYSTEMS,
        "# ± # bits per byte with 16k tokens, # ± # with 4k and # ± # with 1k against # ± #",
        lambda: [n for c in ("bpe16k", "bpe4k", "bpe1k", "bytes") for n in value(GPT2, c, "bits_per_byte")],
    ),
    Claim(SYSTEMS, "# runs, # minutes of training", lambda: (len(runs(GPT2)), minutes(GPT2))),
    Claim(SYSTEMS, "pre-trained for # steps", lambda: (trained(BERT, "pretrain: both")["steps"].max(),)),
    Claim(SYSTEMS, "| both losses | # ± # |", lambda: value(BERT, "both", "accuracy")),
    bert_row("without next-sentence prediction", "no_next_sentence"),
    bert_row("from left to right, at equal FLOPs", "causal"),
    bert_row("none", "scratch"),
    Claim(
        SYSTEMS,
        "at least # below logistic regression on TF-IDF (#)",
        lambda: (int(1000 * (reference(BERT, "tf-idf") - cells(BERT)["accuracy"].max())) / 1000, reference(BERT, "tf-idf")),
    ),
    Claim(SYSTEMS, "instead of # %", lambda: (100 * trained(BERT, "pretrain: both")["valid_masked_accuracy"].mean(),)),
    Claim(
        SYSTEMS,
        "in # [#, #] of the steps, but together with the pre-training in # [#, #] of the FLOPs",
        lambda: [n for part in row("bert-cpu/README.md", "both reaches the score of scratch in")[:2] for n in part],
    ),
    Claim(SYSTEMS, "the # runs took # minutes of one core", lambda: (len(runs(BERT)), minutes(BERT))),
    Claim(SYSTEMS, "has # times as many parameters", lambda: (110e6 / cells(BERT)["parameters"].max(),)),
    Claim(SYSTEMS, "sinusoidal positions has # ± # BLEU", lambda: value("multi30k-cpu", "dense sinusoidal", "bleu")),
    Claim(SYSTEMS, "the study's # runs took # minutes", lambda: (len(runs("multi30k-cpu")), minutes("multi30k-cpu"))),
    Claim(
        SYSTEMS,
        "the difference is +# ± #, and -# ± # when",
        lambda: [abs(n) for c in ("no_wo sinusoidal", "cross sinusoidal") for n in difference("multi30k-cpu", c)],
    ),
    Claim(SYSTEMS, "`narrow` (#, simultaneous ± #)", lambda: simultaneous("multi30k-cpu", "narrow sinusoidal")),
    Claim(SYSTEMS, "worse, by # ± #", lambda: [abs(n) for n in difference("multi30k-cpu", "dense learned")]),
    Claim(SYSTEMS, "cell has # BLEU after", lambda: value("multi30k-en-de-cpu", "dense", "bleu")[:1]),
    Claim(SYSTEMS, "yaml), # minutes", lambda: (minutes("multi30k-en-de-cpu"),)),
    Claim(
        SYSTEMS,
        "has # there, and # from German",
        lambda: [reference(f"multi30k{pair}-cpu", "ibm-1") for pair in ("-en-de", "")],
    ),
    Claim(SYSTEMS, "against # steps here", lambda: (runs("multi30k-cpu")["steps"].max(),)),
    # ---- docs/concepts/verdicts.md
    Claim(VERDICTS, "at most # % of tables have one in", lambda: (simulated("moderation", "false").max(),)),
    Claim(
        VERDICTS,
        "up to # % of such cells would",
        lambda: (simulated("moderation", "false, table alone", "others differ").max(),),
    ),
    Claim(
        VERDICTS,
        "is found in # % of tables; paired t-tests with Holm's correction find it in # %",
        lambda: [
            simulated("moderation", quantity, "3 seeds, 6 comparisons, equal").max() for quantity in ("power", "power, plain")
        ],
    ),
    Claim(
        VERDICTS,
        "for all items in at most # % ± # % of studies, also with ten items or with 40 files in a text; the interval over "
        "seeds misses it in up to # %",
        lambda: [
            *(worst_for_new_items("false", column=column, without=("skewed", "files of 20")) for column in ("value", "error")),
            worst_for_new_items("false, seeds alone", without=("skewed", "files of 20")),
        ],
    ),
    Claim(
        VERDICTS,
        "With skewed items it misses # %, and with a text of ten files # %",
        lambda: [simulated("new-items", "false", group).max() for group in ("skewed", "files of 20")],
    ),
    Claim(
        VERDICTS,
        "false in up to # % of the studies when both cells have the same variance, and in up to # % when only one of them "
        "varies, instead of in 5 %. When runs are lost at random, it stays at # %",
        lambda: [
            simulated("lost-seeds", "false", "uncorrelated", " 1 lost").max(),
            simulated("lost-seeds", "false", "one scatters", " 1 lost").max(),
            simulated("lost-seeds", "false", "at random").max(),
        ],
    ),
    Claim(
        VERDICTS,
        "# studies each, ± # %",
        lambda: [
            simulated("lost-seeds", "without the rule", column="studies").max() / 100,
            simulated("lost-seeds", "without the rule", column="error").max(),
        ],
    ),
    Claim(VERDICTS, "it is # to # % of the false verdicts on skewed", lambda: ends(simulated("fragile", "caught", "skewness"))),
    Claim(
        VERDICTS,
        "it is # to # % with 5 seeds, # to # % with 8, and # to # % with 12",
        lambda: [end for n in (5, 8, 12) for end in ends(simulated("fragile", "alarms", "normal", f" {n} seeds"))],
    ),
    Claim(
        VERDICTS,
        "at most # % ± # % have a false verdict",
        lambda: [simulated("fixed-seeds", "false", "normal", column=column).max() for column in ("value", "error")],
    ),
    Claim(
        "docs/studies/length.md",
        "# of # verdicts after # steps have the same sign after #, a probability of # with an interval of # to #, and # "
        "verdicts are reversed: `delta` and `retention` are ahead of attention at first, and behind later",
        lambda: (*(table := row("validity-of-proxies/README.md", "100 to 300"))[3], *table[2], 100, 300, *table[5], *table[7]),
    ),
    # ---- docs/how-to/measure.md
    Claim(
        MEASURE,
        "a training step # times as fast as the fastest peer (bf16: #), an epoch of IMDb # times as fast as "
        "`torch.nn.TransformerEncoder` in random padded batches and # times in the same batches, Transformer-XL attention # "
        "times as fast as the original, strided sparse attention #, # and # times as fast",
        lambda: [
            speed(what, 1)[0]
            for what in (
                "training step, fp32, peers as shipped",
                "training step, bf16, peers as shipped",
                "epoch of IMDb, bf16, peers as shipped",
                "epoch of IMDb, bf16, equal settings",
                "Transformer-XL attention, fp32, as shipped",
                *(f"strided_sparse, length {length}, as shipped" for length in ("1,024", "4,096", "16,384")),
            )
        ],
    ),
    Claim(
        MEASURE,
        "# times as fast as x-transformers with `attn_flash`, both as shipped (three rounds: # to #), and # times with the "
        "same process settings; on the Zen 4 limited to AVX2, # and # times",
        lambda: [
            *speed("training step, fp32, peers as shipped", 0),
            speed("training step, fp32, equal settings", 0)[0],
            *(speed(f"training step, fp32, {how}", 2)[0] for how in ("peers as shipped", "equal settings")),
        ],
    ),
    Claim(
        MEASURE,
        "in # s; a plain script takes # s one after another (# times as long) and # s two at a time (# times), measured",
        lambda: times(0),
    ),
    Claim(MEASURE, "attnlab takes # s: the plan", lambda: times(1)[:1]),
    Claim(
        MEASURE,
        "takes # s one after another (# times as long; three rounds, # to #) and # s two at a time (# times, # to #)",
        lambda: (
            times(1)[1],
            *speed(f"{VERDICT}as shipped, peers one after another", 1),
            times(1)[3],
            *speed(f"{VERDICT}as shipped, peers two at a time", 1),
        ),
    ),
    Claim(
        MEASURE,
        "attnlab takes # s (# times, # to #, and # times, # to #); limited to AVX2, # s (# times, # to #, and # times, # to #)",
        lambda: (*fp32(1), *fp32(2)),
    ),
    Claim(
        MEASURE,
        "are # and # times as fast as dense with SDPA, of `delta` and `gated_delta` # and # times, and their time grows with "
        "the length to the power of # to #",
        lambda: (*map(layer, ("linear", "gated_linear", "delta", "gated_delta")), exponents().min(), exponents().max()),
    ),
]


def page_row(machine: str, name: str) -> list[str]:
    """Return the cells of a row of the table of a machine's times to a verdict."""
    title = {
        ZEN3: "AMD EPYC, Zen 3, 2 cores",
        ZEN4: "AMD EPYC, Zen 4, 2 cores",
        LIMITED: "AMD EPYC, Zen 4, 2 cores, limited to AVX2",
    }
    section = (REPORTS / "benchmarks/README.md").read_text(encoding="utf-8").partition(f"\n### {title[machine]}\n")[2]
    return next(line for line in section.splitlines() if line.startswith(f"| {name} |")).split("|")


def times(column: int) -> Numbers:
    """Return the seconds of attnlab, and those of a plain script with their ratios, as shipped."""
    machine = (ZEN3, ZEN4, LIMITED)[column]
    found = [float(page_row(machine, "attnlab")[2].split()[0])]
    for way in ("one after another", "two at a time"):
        line = page_row(machine, f"plain PyTorch, {way}")
        found += [float(line[2].split()[0]), float(line[3].split()[0])]
    return tuple(found)


def fp32(column: int) -> Numbers:
    """Return the seconds of attnlab in fp32, and how many times as fast it is, one after another and two at a time."""
    machine, ways = (ZEN3, ZEN4, LIMITED)[column], ("peers one after another", "peers two at a time")
    name = "attnlab, fp32" if machine == ZEN4 else "attnlab"
    ratios = [number for way in ways for number in speed(f"{VERDICT}all in fp32, {way}", column)]
    return (float(page_row(machine, name)[2].split()[0]), *ratios)


TEXTS = {  # name -> where it begins and ends in its file; a study's comment has its name
    "README.md": ("## Results", "## Contributing"),
    SYSTEMS: ("## Can the output", "\0"),
    MEASURE: ("## How fast attnlab is", "\0"),
    VERDICTS: ("# Verdicts", "\0"),
    "docs/studies/length.md": ("asks this of ten layers", "The 30 runs"),
}
STUDIES = {  # study -> the folder of its report
    **{name: name for name in ("aa", "bert-cpu", "components-cpu", "enwik8-cpu", "gpt2-cpu", "imdb-cpu", "length-cpu")},
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
    "validity-of-proxies": ["for 100, 300 and 900 steps", "those of 900 steps", "90 million training bytes", "90 runs;"]
    + ["for steps in 100 300 900"],
    "wo-cpu-enwik8": ["enwik8's 90 million training bytes"],
    "wo-cpu-imdb": ["128 words of each review once, instead of six blocks and 512 words"],
    SYSTEMS: ["2 blocks of width 128", "after 12 epochs", "the 1,000 test sentences of 2016"],
    VERDICTS: [
        "have a 95 % t-interval",
        "at 5 % each for better or worse",
        '("61 % differs, 20 % equivalent") and the number of seeds that is conclusive with probability 80 %',
        "agree to a relative 1e-6",
        "in at least 5 seeds are *identical*, and from 2 seeds",
        "or by more than 5 % of the seeds",
        "two t-tests below 5 %",
        "at most 4 degrees",
        "by a factor of up to 4, with 2 to 10 seeds and 3 to 12 comparisons",
        "the factor is 4 for single cells and 2 for baselines. With 6 comparisons and 3 seeds, a difference of 3 standard",
        "tested at 5 %. When you report whichever of the two has a verdict, one is false in up to 10 % of studies",
        "a share of 0.1 / (k (k + 1))",
        "false in at most 5.5 % of tables, and in at most 6.1 % after such changes",
    ]
    + ["by 2 standard deviations", "at most 6 % are promised", "better, but inconclusive, p 0.210", "a relative 5e-5"],
    MEASURE: ["at 1,024, 4,096 and 16,384 positions", "the quickstart's 35 trainings", "at 4,096 positions"]
    + ["At 2,048 positions with 8 heads of width 32", "with a window of 256 is", "The targets are 2 and 1.3"],
}
NOT_DERIVED = {  # figures of papers, and of trials whose runs are not committed
    BERT: ["6.1 nats after 1,100 steps, and with rotary ones at 5.2 after 440", "tokens alone give 6.7", "Seed 0, on"]
    + [
        "fine-tuned on 256 tokens: the four cells had 0.853 to 0.859",
        "same within 0.001 with lr 1.5e-3 in place of 5e-4",
    ]
    + ["Seed 9, on", "after 4,000 steps", "predict 36 % of the masked tokens in place of 29 %"]
    + ["0.877 with lr 1.5e-3, 0.875 with 5e-4 and layer_lr_decay 0.8, and 0.881 from scratch"],
    SYSTEMS: ["predict 36 % of", "end at 0.877 on", "against 0.881 from scratch", "read 3.3 billion words", "With a beam of 5"]
    + ["have 37.24 (length penalty 1) and 37.15 (0.6)", "of 4 + 4 blocks of width 128 has 41.02 BLEU"]
    + ["with images 41.96, after up to 8,000 steps with a beam of 5"],
    MEASURE: ["is 5.4 times (bidirectional: 3.4 times)", "takes 1.1 to 1.4 times the CPU time"],
}


@cache
def text_of(name: str) -> str:
    """Return a text in one line."""
    if name in TEXTS:
        begin, end = TEXTS[name]
        text = (ROOT / name).read_text(encoding="utf-8")
        text = text[text.index(begin) :].partition(end)[0]
        text = re.sub(r"^ {4}.*$", "", text, flags=re.M)  # commands
        text = re.sub(r"^\| .*$", "", text, flags=re.M) if name == VERDICTS else text  # its table has its own test
    else:
        lines = (ROOT / "ablations" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
        text = "\n".join(line.lstrip("# ") for line in lines if line.startswith("#") and "yaml-language-server" not in line)
    return re.sub(r"\s+", " ", text)


def found(claim: Claim) -> Iterator[re.Match[str]]:
    pattern = r"([+-]?\d[\d,]*(?:\.\d+)?)".join(map(re.escape, claim.sentence.split("#")))
    yield from re.finditer(pattern, text_of(claim.text))


def agrees(printed: str, expected: float) -> bool:
    """Return True if a number is the expected one to its last decimal."""
    decimals = len(printed.partition(".")[2])
    return abs(float(printed.replace(",", "")) - expected) <= 0.5 * 10**-decimals * (1 + 1e-6)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.text}: {claim.sentence[:40]}")
def test_a_number_in_a_sentence_is_that_of_its_tables(claim: Claim) -> None:
    matches = list(found(claim))
    assert matches, f"{claim.text} has no sentence {claim.sentence!r}"
    expected = [float(number) for number in claim.numbers()]
    for match in matches:
        assert len(match.groups()) == len(expected)
        wrong = [(a, b) for a, b in zip(match.groups(), expected, strict=True) if not agrees(a, b)]
        assert not wrong, f"{match[0]!r}: (printed, in the tables): {wrong}"


@pytest.mark.parametrize("name", [*TEXTS, *STUDIES])
def test_each_number_of_a_text_is_checked_or_listed(name: str) -> None:
    text = text_of(name)
    covered = [match.span() for match in NOT_TEXT.finditer(text)]
    covered += [match.span() for claim in CLAIMS if claim.text == name for match in found(claim)]
    for fragment in (*SETTINGS.get(name, ()), *NOT_DERIVED.get(name, ())):
        spans = [match.span() for match in re.finditer(re.escape(fragment), text)]
        assert spans, f"{name} has no {fragment!r}: remove it from the list"
        covered += spans
    unchecked = [
        text[max(0, match.start() - 40) : match.end() + 20]
        for match in NUMBER.finditer(text)
        if not any(start <= match.start() < end for start, end in covered)
    ]
    assert not unchecked, f"{name}: numbers without a claim: {unchecked}"


@pytest.mark.parametrize("study", STUDIES)
def test_a_report_has_the_checked_comment(study: str) -> None:
    """A sentence that is mended in a study is mended in its committed page, too; older pages may differ in other sentences."""
    stored = json.loads((REPORTS / STUDIES[study] / "report.json").read_text(encoding="utf-8"))["info"]["yaml"]
    lines = [line.lstrip("# ") for line in stored.splitlines() if line.startswith("#")]
    comment = re.sub(r"\s+", " ", " ".join(lines))
    for claim in CLAIMS:
        if claim.text == study:
            assert all(match[0] in comment for match in found(claim)), claim.sentence


def by_seed(report: str, cell: str, columns: tuple[str, ...]) -> list[list[float]]:
    """Return the accuracy of each seed, for each column."""
    table = trained(report, cell).sort_values("seed")
    return [list(table[column]) for column in columns]


LENGTHS = ("accuracy", "accuracy_at/32", "accuracy_at/64")
PARITY, S3 = "parity length=16", "group group=s3 length=8"
VARIANTS = {
    "`lstm`": "lstm",
    "`delta`, eigenvalues in [-1, 1]": "delta negative_eigenvalues=true",
    "`delta`, eigenvalues in [0, 1]": "delta",
    "`dense`, `rotary`": "dense position=rotary",
    "`dense`, `none`": "dense position=none",
}


@pytest.mark.parametrize("name", ["none", "t5", "alibi", "rotary", "learned", *VARIANTS])
def test_the_scores_of_seeds_in_the_page_on_diagnostics_are_those_of_the_runs(name: str) -> None:
    text = (ROOT / "docs/diagnostics.md").read_text(encoding="utf-8").partition("## Published patterns")[2]
    if name in VARIANTS:
        expected = by_seed("state-tracking-cpu/parity-length-16", f"{PARITY} {VARIANTS[name]}", (*LENGTHS, "accuracy_at/256"))
        expected += by_seed("state-tracking-cpu/group-group-s3-length-8", f"{S3} {VARIANTS[name]}", LENGTHS[:2])
    else:
        expected = by_seed("length-cpu", f"dense {name}", LENGTHS[: 1 if name == "learned" else 3])
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} |" if name in VARIANTS else f"| `{name}` |"))
    printed = [cell.split() for cell in line.strip("|").split("|")[1:]]
    for texts, scores in zip(printed, expected, strict=False):
        assert len(texts) == len(scores) and all(map(agrees, texts, scores)), (texts, scores)


QUICKSTART = ("dense", "no_wo", "narrow", "wide", "basic", "strided_sparse", "fixed_sparse")


@pytest.mark.parametrize("name", QUICKSTART)
def test_the_table_of_the_readme_is_that_of_the_quickstart(name: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if re.match(rf"{name}  +\d", line))
    expected = [*value("quickstart", name, "bits_per_byte")]
    expected += difference("quickstart", name) if name != "dense" else ()
    expected += [3.0] if "3 seeds" in line else []
    expected += [cells("quickstart").loc[name, column] for column in ("tokens_per_s", "saved_mib", "train_seconds")]
    printed = NUMBER.findall(line)
    assert len(printed) == len(expected) and all(map(agrees, printed, expected)), (printed, expected)


@pytest.mark.parametrize("name", ["gzip", "xz", "n-gram"])
def test_the_reference_scores_of_the_readme_are_those_of_the_quickstart(name: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (printed,) = re.findall(rf"^reference: {name} +(\S+)$", text, re.M)
    assert agrees(printed, reference("quickstart", name))
