"""What may be typed after `attnlab`: verbs, their arguments, and what each argument may be."""

from __future__ import annotations

import argparse

from attnlab._version import __version__
from attnlab.cli.arguments import Parser

EPILOG = "Runs are kept in ./runs (or ATTNLAB_RUNS), data sets in the user's cache (or ATTNLAB_DATA)."


def parser() -> argparse.ArgumentParser:
    """Everything that may be typed."""
    found = Parser(
        prog="attnlab",
        description="A testbed for attention variants, with an ablation runner.",
        epilog=EPILOG,
    )
    found.add_argument("--version", action="version", version=f"attnlab {__version__}")
    verbs = found.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    _add_studies(verbs)
    _add_submit(verbs)
    _add_results(verbs)
    _add_rest(verbs)
    for verb in verbs.choices.values():
        verb.add_argument("--debug", action="store_true", help="show a traceback for a mistake, too")
    return found


def _add_studies(verbs: argparse._SubParsersAction[Parser]) -> None:
    plan = verbs.add_parser("plan", help="the cells of a study, refusals with reasons, estimated cost")
    run = verbs.add_parser("run", help="run a study; again = go on where it stopped")
    for verb in (plan, run):
        verb.add_argument("study", help="a YAML file")
        _add_choices(verb)
    plan.add_argument(
        "--tflops",
        type=_positive,
        metavar="X",
        help="rate for the time estimate (default: half a second's measurement)",
    )
    _add_settling(run)
    _add_running(run)
    train = verbs.add_parser(
        "train",
        help="one run by the same machinery: attnlab train task=pydocs variant=no_wo",
        description="One run of the study 'train' (study=NAME for another), 1000 steps unless train.steps or "
        "train.epochs says otherwise.",
    )
    train.add_argument("assignments", nargs="+", metavar="key=value", help="variant=no_wo task=pydocs train.lr=1e-3")
    train.set_defaults(only=[])
    _add_running(train)


def _add_choices(verb: Parser) -> None:
    verb.add_list("--set", goes_on=_assigns, metavar="KEY=VALUE", help="train.steps=50")
    verb.add_list("--only", goes_on=_assigns, metavar="AXIS=VALUE[,VALUE]", help="variant=no_wo,dense")


def _add_running(verb: Parser) -> None:
    _add_sharing(verb)
    verb.add_argument("--no-reference-scores", action="store_true", help="leave out the trivial baselines (gzip, n-gram, ...)")
    verb.add_argument("--no-report", action="store_true", help="do not write reports/STUDY/ at the end")


def _add_sharing(verb: Parser) -> None:
    verb.add_argument("--workers", type=_count, default=1, metavar="N", help="runs at a time (default 1)")
    verb.add_argument(
        "--storage", metavar="URL", help="postgresql://... whose queue any number of machines share (or ATTNLAB_STORAGE)"
    )
    verb.add_list("--retry", goes_on=str.isidentifier, metavar="STATE", help="try these again: failed, diverged, ...")


def _add_settling(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--until-conclusive", action="store_true", help="add seeds where a verdict is open; corrected for the looks"
    )
    verb.add_argument("--max-seeds", type=_count, metavar="N", help="no more than these, with --until-conclusive (default 12)")


def _add_submit(verbs: argparse._SubParsersAction[Parser]) -> None:
    submit = verbs.add_parser("submit", help="run a study on several machines, as jobs of Slurm")
    submit.add_argument("study", help="a YAML file")
    _add_choices(submit)
    submit.add_argument("--machines", type=_count, default=1, metavar="N", help="jobs, each on a machine (default 1)")
    _add_settling(submit)
    _add_sharing(submit)
    submit.add_argument("--local", action="store_true", help="no Slurm: start the jobs on this machine")
    submit.add_argument(
        "--timeout", type=_minutes, default=24 * 60, metavar="TIME", help="of a job: 8h (default 1d); then it queues again"
    )
    submit.add_argument("--cpus", type=_count, metavar="N", help="of each machine")
    submit.add_argument("--gpus", type=_count, metavar="N", help="of each machine")
    submit.add_argument("--partition", metavar="NAME", help="of Slurm")
    submit.add_list("--slurm", goes_on=_assigns, type=_pair, metavar="KEY=VALUE", help="of sbatch: account=lab")


def _add_results(verbs: argparse._SubParsersAction[Parser]) -> None:
    report = verbs.add_parser("report", help="write reports/STUDY/: page, tables, plots")
    report.add_argument("study", nargs="+", help="a study's name; several: one page above the report of each")
    report.add_argument("--out", metavar="FOLDER", help="where to (default reports/STUDY; several studies need it)")
    maps = verbs.add_parser("maps", help="attention maps of one test input by each cell's trained model, for the report")
    maps.add_argument("study", help="a study's name")
    maps.add_argument("--length", type=_count, default=48, metavar="N", help="tokens of the input (default 48)")
    runs = verbs.add_parser("runs", help="the studies there are, or the runs of one")
    runs.add_argument("study", nargs="?", help="a study's name")
    _add_questions(runs)
    ui = verbs.add_parser("ui", help="the MLflow UI on these runs, for this machine only (127.0.0.1)")
    ui.add_argument("study", nargs="?", help="print this study's address only")
    ui.add_argument("--port", type=_port, default=5000, metavar="N", help="default 5000")
    generate = verbs.add_parser("generate", help="sample text from a trained language model")
    generate.add_argument("run", help="an MLflow run's id (or its beginning), its name, or a folder with model.pt")
    generate.add_argument("--prompt", help="text to go on from (default: 256 bytes of the validation split)")
    generate.add_argument("--temperature", type=_temperature, default=0.5, metavar="T", help="default 0.5; 0: the likeliest")
    generate.add_argument("--length", type=_count, default=600, metavar="N", help="bytes to sample (default 600)")
    generate.add_argument("--seed", type=int, default=0, metavar="N", help="of the sampling (default 0)")


def _add_questions(runs: Parser) -> None:
    runs.description = "Columns are those of attnlab.load_runs; of a dotted one its last part will do (lr)."
    runs.add_list(
        "--where",
        goes_on=lambda word: any(sign in word for sign in "=<>"),
        metavar="CONDITION",
        help="variant=no_wo,dense, 'seed!=0', 'accuracy>=0.85'; nothing after = means: has none. Several: all must hold",
    )
    runs.add_argument("--columns", default="", metavar="A,B", help="name,seed,state,accuracy; or all")
    runs.add_argument("--sort", default="", metavar="COLUMN", help="from the least up; --sort=-COLUMN from the most down")
    runs.add_argument("--format", choices=("table", "csv", "json"), default="table", help="default: table")


def _add_rest(verbs: argparse._SubParsersAction[Parser]) -> None:
    kinds = ("variants", "positions", "tasks", "backends", "keys")
    listed = verbs.add_parser("list", help="variants, positions, tasks and backends, with file and line; the keys of a study")
    listed.add_argument("kind", nargs="?", choices=kinds, metavar="|".join(kinds))
    listed.add_list("--imports", goes_on=lambda word: word not in kinds, metavar="FILE", help="Python files to import first")
    check = verbs.add_parser(
        "check",
        help="the contract of an attention variant, on anyone's: attnlab check my_lab/cosine.py:Cosine",
        description="Exit code 0: what the variant declares is true; 1: a check failed; 2: it cannot be had like this.",
    )
    check.add_argument("variant", metavar="NAME|PATH", help="a name, file.py:Class or package.module:Class")
    check.add_argument("--position", metavar="NAME", help="check all with this position scheme (default: none)")
    check.add_argument("--backend", metavar="NAME", help="check all with this backend (default: its first)")
    check.add_argument("--device", default="auto", help="auto (default), cpu, cuda or cuda:N")
    check.add_list("--options", goes_on=_assigns, metavar="KEY=VALUE", help="of the variant: stride=4")
    _add_bench(verbs)
    data = verbs.add_parser("data", help="the data sets in the cache: list, fetch, verify")
    data.add_argument("action", nargs="?", choices=("list", "fetch", "verify"), default="list")
    data.add_argument("names", nargs="*", metavar="NAME", help="default: all")


def _add_bench(verbs: argparse._SubParsersAction[Parser]) -> None:
    bench = verbs.add_parser(
        "bench",
        help="time, memory and growth of an attention layer beside dense: attnlab bench my_lab/cosine.py:Cosine",
        description="One layer, forward and backward, with each backend at each length, in turns with dense.",
    )
    bench.add_argument("variants", nargs="+", metavar="NAME|PATH", help="names, file.py:Class or package.module:Class")
    bench.add_argument(
        "--lengths", type=_counts, default=[256, 512, 1024, 2048], metavar="N,N", help="default 256,512,1024,2048"
    )
    bench.add_argument("--batch", type=_count, default=2, metavar="N", help="sequences (default 2)")
    bench.add_argument("--dim", type=_count, default=256, metavar="N", help="model width (default 256)")
    bench.add_argument("--heads", type=_count, default=8, metavar="N", help="default 8")
    bench.add_argument("--backend", type=_names, default=[], metavar="NAME,NAME", help="default: all they offer")
    bench.add_argument("--position", default="none", metavar="NAME", help="position scheme of every layer (default none)")
    bench.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="default fp32")
    bench.add_argument("--device", default="auto", help="auto (default), cpu, cuda or cuda:N")
    how = "of the variants (default: as suits the length)"
    bench.add_list("--options", goes_on=_assigns, metavar="KEY=VALUE", help=how)
    bench.add_argument("--rounds", type=_count, default=7, metavar="N", help="turns of each case (default 7)")
    bench.add_argument(
        "--torch-defaults", action="store_true", help="also dense with SDPA under PyTorch's own process settings"
    )
    bench.add_argument("--out", metavar="PATH", help="writes PATH.md, PATH.csv and plots (default reports/bench/NAMES)")


def _assigns(word: str) -> bool:
    return "=" in word


def _counts(text: str) -> list[int]:
    return [_count(word) for word in text.split(",")]


def _names(text: str) -> list[str]:
    return text.split(",")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"expected a port from 1 to 65535, got {text!r}")
    return int(text)


def _minutes(text: str) -> int:
    number, unit = text[:-1], {"m": 1, "h": 60, "d": 24 * 60}.get(text[-1:])
    if unit is None or not number.isdigit() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"expected a time such as 90m, 8h or 2d, got {text!r}")
    return int(number) * unit


def _pair(text: str) -> str:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return text


def _positive(text: str) -> float:
    number = _number(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return number


def _temperature(text: str) -> float:
    number = _number(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")  # which is in no range
