"""Figures of the tables and targets, one per round, from a section's CSV file."""

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.speed.case import OURS, SHIPPED
from benchmarks.speed.ratios import ALIKE, against, groups, medians, on
from benchmarks.speed.sparse import DENSE


def values(frame: pd.DataFrame, quantity: str, device: str) -> list[float]:
    """Return the values of a quantity that each round has once."""
    return on(frame, quantity=quantity, device=device)["value"].tolist()


def fastest_way(frame: pd.DataFrame, at_a_time: int, ratio: str, device: str) -> tuple[list[float], str]:
    """Return the ratios of the peer with the smallest median ratio in the time to a verdict, and its name.

    Args:
        ratio: the column of the ratios.
    """
    rows: Any = frame[(frame["at_a_time"] == at_a_time) & frame[ratio].notna()]
    return _smallest(on(rows.assign(name=rows["way"], ratio=rows[ratio]), device=device))


def fastest_peer(frame: pd.DataFrame, precision: str, settings: str, device: str) -> tuple[list[float], str]:
    """Return the ratios of the peer with the smallest median ratio, and its name. attnlab's own cases are not peers."""
    peers = against(on(frame, device=device, precision=precision, settings=settings))
    return _smallest(peers.drop(index=peers.index[peers["name"].str.startswith(OURS)]))


def fastest_reader(frame: pd.DataFrame, quantity: str, settings: str, device: str) -> tuple[list[float], str]:
    """Return the ratios of the peer with the smallest median ratio in an ``epoch`` or on ``test`` of IMDb, and its name."""
    return _smallest(against(on(scaled(frame), device=device, settings=settings), quantity=quantity))


def _smallest(peers: pd.DataFrame) -> tuple[list[float], str]:
    if peers.empty:
        return [], ""
    name = str(peers.groupby("name")["ratio"].median().idxmin())
    return on(peers, name=name)["ratio"].tolist(), name


def fastest_ms(frame: pd.DataFrame, precision: str, settings: str, device: str) -> tuple[str, list[float]]:
    """Return the peer with the smallest median milliseconds, and these.

    It may differ from ``fastest_peer``, because ratios include attnlab's noise.
    """
    ms = medians(on(frame, precision=precision, settings=settings, device=device))
    ms = ms.drop(index=ms.index[ms["name"].str.startswith(OURS)])
    if ms.empty:
        return "", []
    name = str(ms.groupby("name")["value"].median().idxmin())
    return name, on(ms, name=name)["value"].tolist()


def original(frame: pd.DataFrame, part: str, precision: str, settings: str, device: str) -> list[float]:
    """Return the ratios of the original Transformer-XL's time to attnlab's."""
    return against(on(frame, device=device, part=part, precision=precision, settings=settings))["ratio"].tolist()


def floors(frame: pd.DataFrame, device: str, precision: str) -> pd.DataFrame:
    """Return one row per round, in ms: attnlab's step, and the floors at each product's rate and at the best rate."""
    lines = []
    for _, rows in groups(on(frame, device=device, precision=precision, settings="medium"), "round"):
        of = {name: on(rows, quantity=name) for name in ("gflop", "count", "ms")}
        ours, every = on(of["ms"], name=OURS), on(of["ms"], name="products")
        gflop, count = (of[name].set_index("item")["value"] for name in ("gflop", "count"))
        product = every["item"].str.partition(": ")[0]
        rate = product.map(gflop) / every["value"]  # GFLOP/ms
        own = float((every["value"] * product.map(count)).sum())
        forward = float(on(rows, quantity="forward_gflop")["value"].iloc[0])
        lines.append({"step": ours["value"].median(), "own": own, "best": 3 * forward / rate.max(), "gflop": 3 * forward})
    return pd.DataFrame(lines)


def rates(frame: pd.DataFrame, device: str) -> pd.DataFrame:
    """Return one row per product, precision and round: ``rate`` in GFLOP/s over the product and its backward pass."""
    some = on(frame, device=device, name="products")
    some = some.assign(item=some["item"].str.partition(": ")[0])
    lines = []
    for keys, rows in groups(some, "item", "part", "precision", "round"):
        gflop, ms = (on(rows, quantity=name)["value"] for name in ("gflop", "ms"))
        lines.append((*keys[:3], 1e3 * len(ms) * gflop.sum() / ms.sum()))
    return pd.DataFrame(lines, columns=["item", "part", "precision", "rate"])


def beside_dense(frame: pd.DataFrame, name: str, length: int, settings: str, device: str) -> list[float]:
    """Return the ratios of dense SDPA's time to a sparse variant's."""
    some = on(frame, device=device, part=str(length), settings=settings)
    return on(against(some, base=name), name=DENSE)["ratio"].tolist()


def growth(frame: pd.DataFrame, name: str, quantity: str, device: str) -> list[float]:
    """Return for each round the exponent of a quantity's growth with the length, by least squares on logarithms."""
    every = medians(on(frame, device=device, name=name, settings=SHIPPED), quantity)
    lines = [(np.log(rows["part"].astype(float)), np.log(rows["value"])) for _, rows in groups(every, "round")]
    return [float(np.polyfit(x, y, 1)[0]) for x, y in lines]


def scaled(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per case and round: minutes per ``epoch`` and seconds of ``test``, scaled by tokens to the whole."""
    lines = []
    for keys, rows in groups(frame, *ALIKE, "name", "round"):
        for timed, whole, unit in (("step", "epoch", 60), ("evaluation", "test", 1)):
            quantities = (f"{timed}_seconds", f"{timed}_tokens", f"{whole}_tokens")
            seconds, tokens, every = (sum(on(rows, quantity=name)["value"]) for name in quantities)
            if tokens:
                lines.append((*keys, whole, seconds / tokens * every / unit))
    return pd.DataFrame(lines, columns=[*ALIKE, "name", "round", "quantity", "value"])


def alone(frame: pd.DataFrame, quantity: str, device: str) -> list[float]:
    """Return the values of ``scaled`` for the cases without a peer."""
    return values(on(scaled(frame), part=""), quantity, device)


def imdb_bounds(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per part and round, and one for their sum: ``epoch`` in minutes, ``evaluation`` in seconds."""
    lines = []
    for _, rows in groups(frame, "round"):
        epoch, evaluation = (
            on(rows, quantity=f"{name}_bound_seconds").set_index("item")["value"] for name in ("epoch", "evaluation")
        )
        lines += [(part, epoch[part] / 60, evaluation[part]) for part in epoch.index]
        lines += [("together", epoch.sum() / 60, evaluation.sum())] if len(epoch) else []
    return pd.DataFrame(lines, columns=["part", "epoch", "evaluation"])


def padding_percent(frame: pd.DataFrame, device: str) -> list[float]:
    return [100 * share for share in values(frame, "padding", device)]
