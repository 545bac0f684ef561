"""Study files with something wrong in them: mutators of text and of values, each a pure function of its seed.

``mutant(seed, number)`` is one file. What every one of them must end in stands in ``test_fuzz``.
"""

import copy
import json
import random
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from attnlab.config.run import RunConfig
from attnlab.config.validation import field_names
from attnlab.config.yaml import parse
from attnlab.registry import POSITIONS, TASKS, VARIANTS
from tests.support.paths import ROOT
from tests.support.studies import STUDY

EVERYTHING = """\
# every key that a study can have
study: everything.1
imports: [cosine.py]
base:
  task: {name: pydocs, length: 24, sampling: contiguous}
  position: {name: rotary}
  backend: auto
  model: {dim: 12, depth: 1, heads: 2, ff_mult: 1.5, activation: relu, norm: post, mem_len: 0, tie_embeddings: true}
  train:
    steps: 20
    batch_size: 4
    gradient_accumulation: 2
    lr: 3e-4
    betas: [0.9, 0.98]
    warmup: 0.1
    grad_clip: null
    precision: bf16
    checkpoint_selection: best
  evaluate: {protocol: sliding, stride: 8, valid_limit: 1_000}
  machine: {device: cpu, threads: 1, matmul_precision: medium}
grid:
  variant: [dense, {name: strided_sparse, stride: 7}, {name: cosine, length: 5}, cosine.py:Cosine]
  train.lr: [1e-3, 3e-4]
  task.length: [24]
skip:
  - where: {variant: [dense, cosine], train.lr: 3e-4}
    because: seen before
seeds: [0, 1, 2]
baseline: {variant: dense, train.lr: 1e-3}
metric: bits_per_byte
margin: 0.02
retries: 2
"""


SEARCHED = """\
# and every key that a searched one can have
study: searched
base:
  task: {name: pydocs, length: 24}
  model: {dim: 12, depth: 1, heads: 2}
  train: {steps: 100, batch_size: 4, eval_every: 10}
  machine: {device: cpu}
grid:
  variant: [dense, no_wo]
  position: [learned, rotary]
search:
  trials: 8
  seed: 7
  space:
    train.lr: {low: 1e-4, high: 1e-2, log: true}
    train.batch_size: {low: 2, high: 8, step: 2}
    model.activation: {choices: [relu, gelu]}
    train.betas: {choices: [[0.9, 0.95], [0.9, 0.98]]}
  sampler: {name: TPESampler, n_startup_trials: 3, multivariate: true}
  pruner: {name: HyperbandPruner, min_resource: 10, max_resource: 100}
confirm:
  seeds: [100, 101]
baseline: {variant: dense}
run: {memory_limit: 8GiB, timeout: 30m}
retries: 0
"""


class Raw(str):
    """YAML to be written as it stands."""


# What may stand where a value should: wrong types, wrong sizes, words with a meaning elsewhere, and traps.
RAW = """
.nan|.inf|-.inf|2020-01-01|2020-01-01T10:00:00Z|0o17|0x_|1__0|+1|1:30|- 1|~|<<|=|!!int x|!!float x|!!bool maybe
!!binary aGk=|!!set {a}|!!python/name:os.system|!!python/object/apply:os.system ['touch executed']|!x y|!<x> y|&a [*a]
*nothing|"\\0"|"\\ud800"|"\\U00110000"|"\\x1b[2J"|"a\\nb"|{? [1]: 2}|{1: 2}|{null: 1}|{a: 1, a: 2}|{<<: {a: 1}}
[,]|{,}|%|@|`
"""
VALUES: list[Any] = [
    *(Raw(text) for text in RAW.strip().replace("\n", "|").split("|")),
    *(0, -1, 1, 7, 10**9, 10**18, 2**63, 10**400, 0.5, -0.5, 1e-320, 1e308, True, False, None),
    *("", " ", "x", "no", "dense ", "DENSE", "8", "1e-3", "x" * 5_000, "é", "\u202e", "💥", "a\tb", "a,b", "a=b", "{}", "[]"),
    *("/dev/zero", "/etc/passwd", "..", "~nobody/x", "~", "os:system", "collections:OrderedDict", "a:b:c", ":x", "x:"),
    *("torch.nn:Linear", "attnlab.variants:Variant", "attnlab.variants.dense:Dense", "cosine.py:Cosine", "nothing.py:X"),
    *([], {}, [[]], [[[1]]], [None], [1, [2]], {"": 1}, {"name": ""}, {"name": None}, {"name": []}, {"name": "dense"}),
    *({"name": "dense", "x": 1}, {"options": {}}, {"name": "dense", "options": {"name": 1}}, {"name": "x", "match": 1}),
]
SNIPPETS = ["\t", "\r", "\r\n", "\0", "\x07", "\x85", "\u2028", "\ufeff", "\ud800", "  ", "\n", "é", "💥", "'", '"']
SNIPPETS += [": ", "- ", "? ", "# ", "| ", "> ", "&a ", "*a ", "!!str ", "!a ", "{", "}", "[", "]", ",", "<<: ", "---\n"]
SNIPPETS += ["...\n", "%YAML 1.1\n---\n", "%TAG ! tag:x,1:\n---\n", "x" * 50_000, "\n" * 9_000, "9" * 5_000]
SNIPPETS += ["[" * 3_000, "{a: " * 3_000, "- " * 3_000]


@cache
def bases() -> list[str]:
    """The studies that ship and those here; models one block deep, so that planning them takes no time."""
    shipped = [path.read_text() for folder in ("ablations", "examples") for path in sorted((ROOT / folder).rglob("*.yaml"))]
    return [re.sub(r"depth: \d+", "depth: 1", text) for text in (*shipped, STUDY, SEARCHED, SEARCHED, EVERYTHING, EVERYTHING)]


@cache
def _tree(text: str) -> Any:
    return parse(text, name="base")[0]


def mutant(seed: int, number: int) -> bytes:
    """One file with one to three mutations."""
    rng = random.Random(f"{seed} {number}")
    text, times = rng.choice(bases()), rng.choice((1, 1, 1, 2, 3))
    if rng.random() < 0.5:
        tree = copy.deepcopy(_tree(text))
        for _ in range(times):
            rng.choice(TREE)(rng, tree)
        text = emit(tree)
    else:
        for _ in range(times):
            text = rng.choice(TEXT)(rng, text)
    data = text.encode("utf-8", errors="surrogatepass")
    return rng.choice(BYTES)(rng, data) if rng.random() < 0.05 else data


def assignment(rng: random.Random, *, good: str) -> str:
    """``key=value`` as it may stand on a command line: one of ``good``, or one with something wrong in it."""
    word = rng.choice(good.split())
    chance = rng.random()
    if chance < 0.5:
        return word
    if chance < 0.7:
        return scribble(rng, word)
    key = rng.choice([word.partition("=")[0], rng.choice([*paths(), "study", "metric", "margin", "baseline", "grid", "base"])])
    return f"{key}={value(rng)}"


def value(rng: random.Random) -> str:
    """A value in flow style."""
    return rng.choice(names()) if rng.random() < 0.4 else _flow(rng.choice(VALUES))


@cache
def names() -> list[str]:
    """Words that a study is made of."""
    known = {*VARIANTS.names(), *POSITIONS.names(), *TASKS.names()}
    searched = ["RandomSampler", "GridSampler", "CmaEsSampler", "NopPruner", "PatientPruner", "train.lr", "8GiB", "90s"]
    return [*sorted(known), *searched, "auto", "sdpa", "cpu", "cuda", "bf16", "1", "0.1", "best"]


@cache
def paths() -> list[str]:
    """Every dotted path of a run."""
    sections = ("model", "train", "evaluate", "machine")
    inner = [f"{section}.{name}" for section in sections for name in field_names(RunConfig, (section,))]
    return [*field_names(RunConfig, ()), *inner, "task.length", "variant.stride", "task.nothing", "seed", "a.b.c", "."]


def emit(tree: Any) -> str:
    """A value as YAML: the two outer levels of a mapping as blocks, what is in them in flow style."""
    if not isinstance(tree, dict) or not tree:
        return _flow(tree)
    return "\n".join(f"{_key(k)}: {_inner(v)}" for k, v in tree.items()) + "\n"


def _inner(tree: Any) -> str:
    if not isinstance(tree, dict) or not tree:
        return _flow(tree)
    return "".join(f"\n  {_key(k)}: {_flow(v)}" for k, v in tree.items())


def _flow(tree: Any) -> str:
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{_key(k)}: {_flow(v)}" for k, v in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(_flow, tree)) + "]"
    return tree if isinstance(tree, Raw) else str(tree) if isinstance(tree, int) and tree > 2**70 else json.dumps(tree)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w.]+", key) else _flow(key)


# ---------------------------------------------------------------- text


def scribble(rng: random.Random, text: str) -> str:
    """Characters put in, taken out or replaced."""
    i = rng.randrange(len(text) + 1)
    new = rng.choice([rng.choice(SNIPPETS), chr(rng.randrange(32, 127)), chr(rng.randrange(0x2100)), ""])
    return text[:i] + new + text[i + rng.choice((0, 1, 1, 5)) :]


def _lines(rng: random.Random, text: str) -> str:
    """Lines left out, written twice, swapped, or moved in or out."""
    lines = text.splitlines(keepends=True) or [""]
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    line = lines[i]
    moved = ["  " + line, " " + line, "\t" + line, line[1:], line.lstrip()]
    lines[i : i + 1] = rng.choice([[], [line, line], [lines[j]], *([each] for each in moved)])
    return "".join(lines)


def _word(rng: random.Random, text: str) -> str:
    """One word replaced by a value, by another word of the file, or by itself with two letters swapped."""
    found = list(re.finditer(r"[\w.]+", text))
    if not found:
        return text
    at = rng.choice(found)
    word, i = at[0], rng.randrange(len(at[0]))
    swapped = word[:i] + word[i + 1 : i + 2] + word[i] + word[i + 2 :]
    new = rng.choice((value(rng), value(rng), rng.choice(found)[0], swapped, swapped))
    return text[: at.start()] + new + text[at.end() :]


def _whole(rng: random.Random, text: str) -> str:
    """The file cut off, written twice, in other line ends, wrapped, or full of aliases of aliases."""
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(30))
    cut = rng.randrange(len(text) + 1)
    ways = [text[:cut], text[cut:], text + text, text.replace("\n", "\r\n"), text.replace("\n", "\r"), f"[{text}]"]
    rare = [bomb + text, text + bomb, f"{text}---\n{text}", "", "# nothing\n", f"- {text}"]
    return rng.choice(ways if rng.random() < 0.8 else rare)


TEXT: list[Callable[[random.Random, str], str]] = [scribble, scribble, _lines, _word, _word, _whole]
BYTES: list[Callable[[random.Random, bytes], bytes]] = [
    lambda rng, data: data[: (i := rng.randrange(len(data) + 1))] + rng.randbytes(rng.randrange(1, 9)) + data[i:],
    lambda rng, data: data.decode(errors="replace").encode(rng.choice(("utf-16", "utf-32", "utf-8-sig"))),
    lambda rng, data: rng.randbytes(rng.randrange(300)),
    lambda rng, data: b"",
]


# ---------------------------------------------------------------- values


def _holders(tree: Any) -> list[Any]:
    """Every mapping and list that holds something."""
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return ([tree] if inner else []) + [found for child in inner for found in _holders(child)]


def _place(rng: random.Random, tree: Any) -> tuple[Any, Any]:
    """A mapping or list of the tree, and a key or number in it."""
    holder = rng.choice(_holders(tree) or [{"empty": tree}])
    return holder, rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))


def _replace(rng: random.Random, tree: Any) -> None:
    holder, key = _place(rng, tree)
    holder[key] = rng.choice((rng.choice(VALUES), rng.choice(names()), [holder[key]], {"name": holder[key]}, [holder[key]] * 2))


def _swap(rng: random.Random, tree: Any) -> None:
    (one, i), (other, j) = _place(rng, tree), _place(rng, tree)
    one[i], other[j] = json.loads(json.dumps(other[j])), json.loads(json.dumps(one[i]))  # copies: no loops


def _rename(rng: random.Random, tree: Any) -> None:
    holder, key = _place(rng, tree)
    if isinstance(holder, dict):
        new = rng.choice([*paths(), key[1:], key + "s", key.upper(), str(rng.choice(VALUES))])
        holder[new] = holder.pop(key)


def _drop(rng: random.Random, tree: Any) -> None:
    holder, key = _place(rng, tree)
    del holder[key]


def _set(rng: random.Random, tree: Any) -> None:
    """A field of the base or an axis of the grid, well or badly named, with one value or several."""
    path = rng.choice(paths())
    few = [rng.choice(VALUES), *rng.sample(names(), rng.randrange(3))]
    part = tree.setdefault(rng.choice(("base", "grid")), {}) if isinstance(tree, dict) else {}
    if isinstance(part, dict):
        section, _, name = path.partition(".")
        inner = part.get(section)
        if isinstance(inner, dict) and name:
            inner[name] = few[0]
        else:
            part[path] = rng.choice((few, few[0]))


def _tune(rng: random.Random, tree: Any) -> None:
    """A number that stands there already, larger or smaller: the study may still be a good one."""
    holder, key = _place(rng, tree)
    old = holder[key]
    if isinstance(old, int | float) and not isinstance(old, bool):
        holder[key] = rng.choice((old * 2, old * 10**9, max(1, old // 2), old / 3, rng.randrange(99)))


TREE: list[Callable[[random.Random, Any], None]] = [_replace, _replace, _swap, _rename, _drop, _set, _tune, _tune, _tune]
