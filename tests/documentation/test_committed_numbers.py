"""Each number in a committed sentence is recomputed from the tables that it is about.

A claim is a sentence with ``#`` for each number, and the numbers as the tables have them. Numbers of the texts that are in no
claim must be in a fragment of ``NOT_DERIVED``: settings, figures of papers, and results of trials whose runs are not committed.
"""

import json
import math
import re
from collections.abc import Iterator
from functools import cache, partial

import pytest
from scipy.stats import nct
from scipy.stats import t as student

from tests.documentation.committed_tables import (
    BERT,
    COMPONENTS,
    ENWIK8,
    FACTORS,
    GPT2,
    GPU,
    INDEX,
    NOT_DERIVED,
    PAIRING,
    POSITION_LENGTHS,
    POSITIONS,
    README,
    SETTINGS,
    STUDIES,
    SYSTEMS,
    TEXTS,
    VERDICTS,
    WO,
    WO_IMDB,
    Claim,
    all_on_gpu,
    bert_row,
    cells,
    conclusive_seeds,
    crossing,
    decided,
    difference,
    effect,
    ends,
    flops,
    on_gpu,
    position_row,
    predicted_scores,
    predicted_signs,
    quickstart_scores,
    reference,
    row,
    runs,
    simulated,
    simultaneous,
    stages_within,
    text_read,
    took,
    trained,
    value,
    worst_for_new_items,
)
from tests.support.paths import REPORTS, ROOT

NUMBER = re.compile(r"(?<![\w.\-])[+-]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?!\w)")
NOT_TEXT = re.compile(
    r"\]\([^)]*\)|`[^`]*`|arXiv:\S+|(?:et al\.|Bloem|Smyth|Hall|Johnson) \(?\d{4}|\(\d{4}\)|Zen \d|IBM model 1"
)
WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}

MANY_ODD = ("three cells", "three unpaired", "half of the cells")

CLAIMS = [
    # ---- comments of studies
    Claim(
        "docs/tutorials.md",
        "BLEU # with one vector and # with attention for a recurrent encoder-decoder, # and # for a transformer",
        lambda: [
            value("one-vector-cpu", cell, "bleu")[0]
            for cell in ("gru_vector", "gru_attention", "transformer_vector", "transformer")
        ],
    ),
    Claim(BERT, "# pre-trainings cost", lambda: ((runs(BERT)["phase"] == "stage").sum() / runs(BERT)["seed"].nunique(),)),
    Claim(BERT, "the same FLOPs within # %", lambda: (-(-stages_within() // 1),)),
    Claim(BERT, "# runs, of which # are pre-trainings", lambda: (len(runs(BERT)), (runs(BERT)["phase"] == "stage").sum())),
    took("enwik8-cpu", "enwik8-cpu"),
    Claim("enwik8-cpu", "reads # of the", lambda: (runs("enwik8-cpu")["tokens"].max() / 1e6,)),
    took(GPT2, GPT2),
    Claim(GPT2, "trained at # learning rates", lambda: (runs(GPT2)["train.lr"].nunique(),)),
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
    took("validity-of-proxies", "validity-of-proxies"),
    Claim(
        "validity-of-proxies",
        "(# million parameters) and reads # to #",
        lambda: (
            runs("validity-of-proxies")["parameters"].median() / 1e6,
            runs("validity-of-proxies")["tokens"].min() / 1e6,
            runs("validity-of-proxies")["tokens"].max() / 1e6,
        ),
    ),
    Claim("components-cpu", "from all # runs", lambda: (len(runs("components-cpu")),)),
    Claim("components-cpu", "# with the component on against #", lambda: (len(runs("components-cpu")) / 2,) * 2),
    Claim("critical-components-cpu", "from all # runs", lambda: (len(runs("critical-components-cpu")),)),
    Claim(
        "critical-components-cpu", "runs: # with the component and #", lambda: (len(runs("critical-components-cpu")) / 2,) * 2
    ),
    Claim(WO, "read # to # million of", lambda: [f(runs(WO)["tokens"]) / 1e6 for f in (min, max)]),
    Claim(WO, "ended before # runs", lambda: ((runs(WO)["state"] == "interrupted").sum(),)),
    # ---- README
    *(
        Claim(
            text,
            "with # learning rates each and # seeds (rings). Without Wo, they are better after # and # steps. After #",
            lambda: (runs(WO)["train.lr"].nunique(), conclusive_seeds("no_wo steps=600"), 200, 600, 1800),
        )
        for text in (README, INDEX)
    ),
    # ---- docs/concepts/pairing.md
    Claim(
        PAIRING,
        "`dense` score # and # bits per byte, and `fixed_sparse` scores # and #. The two scores of a cell are # apart, the two "
        "differences between the cells only #",
        lambda: (
            *(dense := quickstart_scores("dense")),
            *(sparse := quickstart_scores("fixed_sparse")),
            dense[1] - dense[0],
            abs((sparse[1] - dense[1]) - (sparse[0] - dense[0])),
        ),
    ),
    # ---- docs/studies/factors.md
    Claim(
        FACTORS,
        "after # steps with rotary positions, # seeds settle all of them. The forget gate lowers the bits per byte by # ± #, "
        "exclusive attention by # ± #, token shift by # ± # and QK-norm by # ± #. A gate raises them by # ± # and a sink by "
        "# ± #. The value residual and the softcap are equivalent to their absence, within #",
        lambda: (
            runs(COMPONENTS)["train.steps"].max(),
            runs(COMPONENTS)["seed"].nunique() if decided(COMPONENTS, "main", "equivalent") == 8 else 0,
            *(abs(n) for name in ("forget_gate", "exclusive", "token_shift", "qk_norm") for n in effect(COMPONENTS, name)),
            *(n for name in ("gate", "sink") for n in effect(COMPONENTS, name)),
            0.02,
        ),
    ),
    # ---- docs/how-to/gpu.md
    Claim(
        GPU,
        "relative errors up to # in float64, # in float32 and # in bfloat16",
        lambda: [max(all_on_gpu("agreement", precision)) for precision in ("float64", "float32", "bfloat16")],
    ),
    Claim(GPU, "estimates are # to # times", lambda: [f(all_on_gpu("memory", "ratio")) for f in (min, max)]),
    Claim(
        GPU,
        ": # to # times as fast without",
        lambda: [f(all_on_gpu("step", "times_as_fast", without="compiled")) for f in (min, max)],
    ),
    Claim(
        GPU,
        "At #, `strided_sparse` is # times as fast and `fixed_sparse` # times. At #, they are # and # times as fast",
        lambda: [
            n
            for length in (65536, 4096)
            for n in (
                length,
                *(on_gpu(f"sparse: {v}_sparse, xformers, {length}")["times_as_fast"] for v in ("strided", "fixed")),
            )
        ],
    ),
    Claim(
        GPU,
        "between # and # positions (`strided_sparse`) or # and # (`fixed_sparse`)",
        lambda: [end for variant in ("strided", "fixed") for end in crossing(variant)],
    ),
    Claim(
        GPU,
        "by # bits per byte in fp32, and by # in bf16",
        lambda: [on_gpu(f"resume: killed, {precision}")["difference"] for precision in ("fp32", "bf16")],
    ),
    Claim(
        GPU,
        "took #, # and # times as many steps per second as one",
        lambda: [on_gpu("several: processes")[f"times_{n}"] for n in (2, 4, 8)],
    ),
    # ---- docs/systems.md
    Claim(
        SYSTEMS,
        "with # learning rates for each cell and # seeds",
        lambda: (runs(WO)["train.lr"].nunique(), conclusive_seeds("no_wo steps=600")),
    ),
    Claim(SYSTEMS, "(+# ± #), and a control", lambda: difference(WO_IMDB, "no_wo match=params")),
    Claim(
        SYSTEMS,
        "is # ± # bits per byte better after # steps and # ± # after #.",
        lambda: (
            *(abs(n) for n in difference(WO, "no_wo steps=200")),
            200,
            *(abs(n) for n in difference(WO, "no_wo steps=600")),
            600,
        ),
    ),
    Claim(SYSTEMS, "After # steps it is worse by # ± #, for", lambda: (1800, *difference(WO, "no_wo steps=1800"))),
    Claim(SYSTEMS, "rates, a factor of # apart", lambda: (2,)),
    Claim(SYSTEMS, "FLOPs, # TFLOP a run", lambda: (flops(GPT2).mean(),)),
    Claim(
        SYSTEMS,
        "# ± # bits per byte with 16k tokens, # ± # with 4k and # ± # with 1k against # ± #",
        lambda: [n for c in ("bpe16k", "bpe4k", "bpe1k", "bytes") for n in value(GPT2, c, "bits_per_byte")],
    ),
    *(
        Claim(SYSTEMS, f"| {name} | # ± # | # ± # |{POSITION_LENGTHS}", partial(position_row, name.removesuffix(" (control)")))
        for name in ("t5", "alibi", "sinusoidal", "none (control)")
    ),
    Claim(SYSTEMS, f"| rotary | # ± # | |{POSITION_LENGTHS}", partial(position_row, "rotary")),
    Claim(SYSTEMS, "| learned | # ± # | # ± # |", partial(position_row, "learned")),
    Claim(SYSTEMS, "beat xz (#)", lambda: (reference(POSITIONS, "xz"),)),
    Claim(SYSTEMS, "for new items its interval is ± #", lambda: row(f"{POSITIONS}/README.md", "t5")[3]),
    Claim(SYSTEMS, "are above gzip (#)", lambda: (reference(POSITIONS, "gzip"),)),
    Claim("README.md", "T5's bias is # ± # bits per byte better", lambda: [abs(n) for n in difference(POSITIONS, "t5")]),
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
    Claim(SYSTEMS, "has # times as many parameters", lambda: (110e6 / cells(BERT)["parameters"].max(),)),
    Claim(SYSTEMS, "sinusoidal positions has # ± # BLEU", lambda: value("multi30k-cpu", "dense sinusoidal", "bleu")),
    Claim(
        SYSTEMS,
        "the difference is +# ± #, and -# ± # when",
        lambda: [abs(n) for c in ("no_wo sinusoidal", "cross sinusoidal") for n in difference("multi30k-cpu", c)],
    ),
    Claim(SYSTEMS, "`narrow` (#, simultaneous ± #)", lambda: simultaneous("multi30k-cpu", "narrow sinusoidal")),
    Claim(SYSTEMS, "lower by # ± #", lambda: [abs(n) for n in difference("multi30k-cpu", "dense learned")]),
    Claim(SYSTEMS, "cell has # BLEU with greedy", lambda: value("multi30k-en-de-cpu", "dense", "bleu")[:1]),
    Claim(SYSTEMS, "decoding after # steps", lambda: (runs("multi30k-cpu")["steps"].max(),)),
    # ---- docs/concepts/verdicts.md
    Claim(VERDICTS, "at most # % of tables have one in", lambda: (simulated("moderation", "false", without=MANY_ODD).max(),)),
    Claim(
        VERDICTS,
        "are like this it is at most # %",
        lambda: (max(simulated("moderation", "false", word).max() for word in MANY_ODD),),
    ),
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
        "the flag marks # to # % of the false verdicts on skewed",
        lambda: ends(simulated("fragile", "caught", "skewness")),
    ),
    Claim(
        VERDICTS,
        "it marks # to # % with 5 seeds, # to # % with 8, and # to # % with 12",
        lambda: [end for n in (5, 8, 12) for end in ends(simulated("fragile", "alarms", "normal", f" {n} seeds"))],
    ),
    Claim(
        VERDICTS,
        "at most # % ± # % have a false verdict",
        lambda: [simulated("fixed-seeds", "false", "normal", column=column).max() for column in ("value", "error")],
    ),
    Claim(
        VERDICTS,
        "(skewness 6, all of it in one cell): # to # % of studies then have a false difference, and up to # % a false",
        lambda: [
            *ends(simulated("fixed-seeds", "false", "skewed_gap")),
            simulated("fixed-seeds", "false equivalence", "skewed_gap").max(),
        ],
    ),
    Claim(
        "docs/studies/length.md",
        "# of # verdicts after # steps have the same sign after #, a probability of # with an interval of # to #, and # "
        "verdicts are reversed: `delta` and `retention` are ahead of attention at first, and behind later",
        lambda: (*(table := row("validity-of-proxies/README.md", "100 to 900"))[3], *table[2], 100, 900, *table[5], *table[7]),
    ),
    Claim("docs/studies/length.md", "only # of # keep the sign", lambda: row("validity-of-proxies/README.md", "100 to 900")[4]),
    Claim(
        "docs/studies/length.md",
        "All # verdicts after # steps have the same sign after #",
        lambda: (row("validity-of-proxies/README.md", "300 to 900")[3][0], 300, 900),
    ),
]


@cache
def text_of(name: str) -> str:
    """Return a text in one line."""
    if name in TEXTS:
        page, ends = (ROOT / name).read_text(encoding="utf-8"), TEXTS[name]
        parts = zip(ends[::2], ends[1::2], strict=True)
        text = "\n".join(page[page.index(begin) :].partition(end)[0] for begin, end in parts)
        text = re.sub(r"^ {4}.*$", "", text, flags=re.M)  # commands
    else:
        lines = (ROOT / "ablations" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
        text = "\n".join(line.lstrip("# ") for line in lines if line.startswith("#") and "yaml-language-server" not in line)
    return re.sub(r"\s+", " ", text)


def found(claim: Claim) -> Iterator[re.Match[str]]:
    pattern = rf"([+-]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e-\d+)?|(?i:{'|'.join(WORDS)}))".join(
        map(re.escape, claim.sentence.split("#"))
    )
    yield from re.finditer(pattern, text_of(claim.text))


def agrees(printed: str, expected: float) -> bool:
    """Return True if a number is the expected one to its last decimal."""
    printed = str(WORDS.get(printed.lower(), printed)).replace(",", "")
    mantissa, _, exponent = printed.partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return abs(float(printed) - expected) <= 0.5 * 10**-decimals * (1 + 1e-6)


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


def test_ten_of_twelve_predicted_scores_were_near() -> None:
    assert predicted_scores() == 10
    assert predicted_signs() == 5, "of the twelve before"


def test_the_table_of_recipes_is_that_of_their_runs() -> None:
    text = (ROOT / "docs" / "how-to" / "claim.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `((?:docs|source)_\w+)` \| (.+) \|$", text, flags=re.MULTILINE)
    assert len(rows) == 6
    for recipe, found in rows:
        report = f"recipe-cpu/{recipe}"
        of_recipe = runs(report)[runs(report)["cell"].str.startswith(f"{recipe} ")]
        table = of_recipe.assign(arm=of_recipe["cell"].str.split().str[-1])
        scores = table.pivot(index="seed", columns="arm", values="bits_per_byte")
        window, without = scores["window"] - scores["dense"], scores["no_wo"] - scores["dense"]
        losses = f"{scores['dense'].mean():.3f} | {xz_of(report):.3f} | {window.mean():+.3f} | {without.mean():+.3f}"
        seconds = table[table["arm"] == "dense"]["seconds"].min()
        seeds = seeds_for(0.02, deviation=without.std())
        assert found == f"{losses} | {without.std():.3f} | {seeds} | {seconds:.0f}", recipe


def xz_of(report: str) -> float:
    task = "pydocs" if "/docs" in report else "pysource"
    scores = json.loads((REPORTS / report / "report.json").read_text(encoding="utf-8"))["info"]["reference_scores"]
    return next(score["value"] for score in scores if score["name"] == "xz" and score["task"] == task)


def seeds_for(size: float, *, deviation: float) -> int:
    """Return the seeds with which a paired t-test at 5 % finds a difference in 80 % of studies."""

    def power(n: int) -> float:
        return float(nct.sf(student.ppf(0.975, n - 1), n - 1, size / deviation * math.sqrt(n)))

    return next(n for n in range(2, 100) if power(n) >= 0.8)
