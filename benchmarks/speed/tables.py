"""The Markdown text and tables of each section, from its results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import pandas as pd

from benchmarks.speed import results
from benchmarks.speed.case import EQUAL, OURS, SHIPPED
from benchmarks.speed.profile import GROUPS
from benchmarks.speed.ratios import ALIKE, against, groups, medians, on, spread, times_as_fast
from benchmarks.speed.sparse import DENSE, SPARSE
from benchmarks.speed.text import EVALUATION, FLOOR, IMDB, IMDB_BOUNDS, PROFILE, READERS, STEP, XL
from benchmarks.speed.text import SPARSE as SPARSE_TEXT
from benchmarks.speed.xl import MEMORY, ORIGINAL, SLIDING

TIMES = "attnlab, times as fast"
TOP = 12  # number of longest operations in the profile's table
LOOP_PARTS = ("evaluation_seconds", "logging_seconds", "checkpoint_seconds")  # parts of a run other than its steps


Frames = Mapping[str, pd.DataFrame]  # section -> the rows of its CSV file


@dataclass(frozen=True)
class Section:
    """A section of the page: its title, and a function from all results to its text."""

    title: str
    text: Callable[[Frames], str]


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is left-aligned, the others right-aligned."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def step(frames: Frames) -> str:
    heads = ["", "parameters", "ms, as shipped", TIMES, "ms, equal settings", TIMES]
    text = STEP
    for (device, precision), some in groups(frames["step"], "device", "precision"):
        ms, ratio = medians(some), against(some)
        rows = []
        for name in dict.fromkeys(ms["name"]):
            row = [str(name), f"{on(some, name=name, quantity='parameters')['value'].iloc[0]:,.0f}"]
            for settings in (SHIPPED, EQUAL):
                selection = {"name": name, "settings": settings}
                row += [spread(on(ms, **selection)["value"], 0), times_as_fast(on(ratio, **selection)["ratio"])]
            rows.append(row)
        text += f"\n### {precision}, {device}\n\n{markdown(heads, rows)}"
    return text


def floor(frames: Frames) -> str:
    frame, text = frames["floor"], FLOOR
    for (device,), _ in groups(frame, "device"):
        rate = results.rates(frame, device)
        ways = list(dict.fromkeys(zip(rate["precision"], rate["part"], strict=True)))
        rows = [
            [str(item), *(spread(on(rate, item=item, precision=p, part=way)["rate"], 0) for p, way in ways)]
            for item in dict.fromkeys(rate["item"])
        ]
        text += f"\n### {device}\n\n{markdown(['', *(f'{p}, {way}' for p, way in ways)], rows)}"
        rows, peers = [], []
        for (precision,), _ in groups(on(frame, name=OURS, device=device), "precision"):
            floors = results.floors(frame, device, precision)
            for settings in (SHIPPED, EQUAL):
                name, ms = results.fastest_ms(frames["step"], precision, settings, device) if "step" in frames else ("", [])
                if ms:
                    most = median(ms) / floors["own"].median()
                    peers.append([f"{precision}, {settings}", name, spread(ms, 0), f"{most:.2f}"])
            figures = [spread(floors[name], 0) for name in ("step", "own", "best")]
            shares = [spread(100 * floors[name] / floors["step"], 0) for name in ("own", "best")]
            rows.append([precision, f"{floors['gflop'].iloc[0]:,.1f}", *figures, *shares])
        heads = ["", "GFLOP a step", "attnlab's step, ms", "floor at each product's rate, ms", "floor at the best rate, ms"]
        text += "\n" + markdown([*heads, "% of the first reached", "% of the second reached"], rows)
        if peers:
            heads = ["", "fastest peer", "its step, ms", "times as fast if a step were only its products"]
            text += "\n" + markdown(heads, peers)
    return text


def xl(frames: Frames) -> str:
    frame = frames["xl"]
    contexts = frame["part"].str.startswith("context")
    layers, evaluation = frame.drop(index=frame.index[contexts]), frame.drop(index=frame.index[~contexts])
    if layers.empty:  # the original implementation is not installed
        return _evaluation(evaluation)
    text = XL.format(difference=f"{on(layers, quantity='difference')['value'].max():.1e}")
    heads = ["", "attnlab, ms", "original as shipped, ms", TIMES, "attnlab, ms", "original at equal settings, ms", TIMES]
    ms, rows = medians(layers), []
    for (device, part, precision), some in groups(ms, "device", "part", "precision"):
        row = [f"{part}, {precision}, {device}"]
        for settings in (SHIPPED, EQUAL):
            selected = on(some, settings=settings)
            row += [spread(on(selected, name=OURS)["value"], 1), spread(on(selected, name=ORIGINAL)["value"], 0)]
            row.append(times_as_fast(results.original(layers, part, precision, settings, device)))
        rows.append(row)
    return text + markdown(heads, rows) + _evaluation(evaluation)


def _evaluation(frame: pd.DataFrame) -> str:
    pairs = against(frame, base=SLIDING, quantity="bytes_per_s")
    rows = []
    for (device, part), some in groups(on(pairs, name=MEMORY), "device", "part"):
        figures = [spread(some[name], digits) for name, digits in (("value_base", 1), ("value", 0))]
        rows.append([f"{part.removeprefix('context ')}, {device}", *figures, times_as_fast(some["ratio"], 0)])
    heads = ["context, bytes", "`dense`, sliding by 1, bytes/s", "`transformer_xl`, bytes/s", "times as fast"]
    return EVALUATION + markdown(heads, rows)


def profile(frames: Frames) -> str:
    text = PROFILE
    for (device, precision), some in groups(frames["profile"], "device", "precision"):
        parts = on(some, quantity="group_ms")
        ms = {group: on(parts, item=group)["value"].tolist() for group in GROUPS}
        whole = [sum(of) for of in zip(*ms.values(), strict=True)]
        rows = [
            [group, spread(ms[group], 1), spread([100 * a / b for a, b in zip(ms[group], whole, strict=True)], 1)]
            for group in GROUPS
        ]
        rows.append(["together", spread(whole, 1), "100.0"])
        operations = [
            (item, timings["value"].median()) for (item,), timings in groups(on(some, quantity="operation_ms"), "item")
        ]
        top = sorted(operations, key=lambda pair: -pair[1])[:TOP]
        listed = [[item, f"{ms:.1f}", f"{100 * ms / median(whole):.1f}"] for item, ms in top]
        text += f"\n### {precision}, {device}\n\n{markdown(['', 'ms a step', '% of it'], rows)}"
        text += f"\nThe {TOP} longest operations:\n\n{markdown(['', 'ms a step', '% of it'], listed)}"
    return text


def imdb(frames: Frames) -> str:
    frame, rows = frames["imdb"], []
    for (of,), some in groups(on(frame, part=""), "device"):
        steps = len(on(some, quantity="step_seconds")) // some["round"].nunique()
        epoch, test = (results.alone(some, name, of) for name in ("epoch", "test"))
        rows.append([of, str(steps), spread(epoch), spread(test, 1), spread(results.padding_percent(some, of))])
    heads = ["", "steps timed", "an epoch, minutes (scaled)", "evaluation of test, s (measured)", "padding, % of tokens"]
    text = IMDB + markdown(heads, rows)
    for (of,), some in groups(frame, "device"):
        bounds = results.imdb_bounds(some)
        if len(bounds):
            rows = [
                [str(part), spread(seconds["epoch"]), spread(seconds["evaluation"], 1)]
                for (part,), seconds in groups(bounds, "part")
            ]
            text += f"\n{IMDB_BOUNDS}{markdown([f'alone, {of}', 'an epoch, minutes', 'evaluation of test, s'], rows)}"
    return text + _readers(frame)


def _readers(frame: pd.DataFrame) -> str:
    """Return the table of attnlab's epoch and evaluation next to each peer's."""
    every, steps = results.scaled(frame), frame.query("part != '' and quantity == 'step_seconds'")
    epoch, test = (against(every, quantity=name) for name in ("epoch", "test"))
    rows = []
    for (device, settings, name), some in groups(epoch, "device", "settings", "name"):
        figures = [spread(some["value"], 1), times_as_fast(some["ratio"])]
        reads = on(test, device=device, settings=settings, name=name)
        rows.append([f"{name}, {device}, {settings}", *figures, spread(reads["value"], 0), times_as_fast(reads["ratio"])])
    heads = ["", "an epoch, minutes (scaled)", TIMES, "evaluation of test, s (scaled)", TIMES]
    count = max((len(group) for _, group in groups(steps, *ALIKE, "name", "round")), default=0)
    return f"\n{READERS.format(count=count)}{markdown(heads, rows)}" if rows else ""


def sparse(frames: Frames) -> str:
    frame, text = frames["sparse"], SPARSE_TEXT
    for (device, precision), some in groups(frame, "device", "precision"):
        memory = [name for name in ("saved_mib", "peak_mib") if len(on(some, quantity=name))]
        rows = []
        for length in dict.fromkeys(some["part"]):
            selected = on(some, part=str(length))
            ms, row = medians(selected), [f"{int(length):,}"]
            row += [spread(on(ms, name=DENSE, settings=s)["value"], 1) for s in (SHIPPED, EQUAL)]
            for name in (DENSE, *SPARSE):
                if name != DENSE:
                    of = [results.beside_dense(selected, name, int(length), s, device) for s in (SHIPPED, EQUAL)]
                    ratios = [times_as_fast(values, 1) for values in of]
                    row += [spread(on(ms, name=name, settings=EQUAL)["value"], 1), *ratios]
                row += [spread(on(medians(selected, of), name=name, settings=EQUAL)["value"], 1) for of in memory]
            rows.append(row)
        megabytes = [name.replace("_mib", " MiB") for name in memory]
        heads = ["length", "dense SDPA as shipped, ms", "with the settings, ms", *megabytes]
        for name in SPARSE:
            heads += [f"{name}, ms", "times as fast as shipped", "as with the settings", *megabytes]
        text += f"\n### {precision}, {device}\n\n{markdown(heads, rows)}"
    return text


def loop_table(rows: pd.DataFrame) -> str:
    """Return the rows of ``loop.csv`` as a Markdown table."""
    heads = ["run", "wall s", "steps s", "drawing batches", "start s", "evaluation s", "logging s", "checkpoints s", "5 % from"]
    lines = []
    for row in rows.to_dict("records"):
        seconds = [f"{row[name]:.2f}" for name in ("startup_seconds", *LOOP_PARTS)]
        share, steps = f"{row['data_share_of_steps']:.2%} of steps", f"{row['steps_for_5_percent']:,} steps"
        name = f"{row['task']}, {row['steps']} steps, {row['start']}"
        lines.append([name, f"{row['wall_seconds']:.1f}", f"{row['train_seconds']:.1f}", share, *seconds, steps])
    return markdown(heads, lines)


SECTIONS = {
    "step": Section("A training step", step),
    "floor": Section("The arithmetic floor", floor),
    "profile": Section("Where a step's time goes", profile),
    "xl": Section("Transformer-XL", xl),
    "imdb": Section("IMDb", imdb),
    "sparse": Section("Sparse attention", sparse),
}
