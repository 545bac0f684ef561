"""Hypothesis strategies for malformed studies: mutated values, mutated text and unusual encodings."""

import copy
import json
import re
from functools import cache
from typing import Any

from hypothesis import strategies as st

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
  model: {dim: 12, depth: 1, heads: 2, ff_mult: 1.5, feed_forward: relu, norm: post, mem_len: 0, tie_embeddings: true}
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
    model.feed_forward: {choices: [relu, gelu]}
    train.betas: {choices: [[0.9, 0.95], [0.9, 0.98]]}
  sampler: {name: TPESampler, n_startup_trials: 3, multivariate: true}
  pruner: {name: HyperbandPruner, min_resource: 10, max_resource: 100}
confirm:
  seeds: [100, 101]
baseline: {variant: dense}
run: {memory_limit: 8GiB, timeout: 30m}
retries: 0
"""

# The tasks that read files of one's own, which the fuzzer's folder has.
OWN_DATA = """\
study: own-data
base:
  task:
    {name: csv, path: reviews.csv, text: review, label: opinion, labels: [good, bad], delimiter: ",", vocabulary: 99}
  model: {dim: 12, depth: 1, heads: 2}
  train: {steps: 20, batch_size: 4}
  machine: {device: cpu}
grid:
  variant: [dense, no_wo]
seeds: [0, 1]
baseline: {variant: dense}
"""
OWN_TOKENS = OWN_DATA.replace(
    OWN_DATA.splitlines()[3].strip(),
    "{name: tokens, path: tokens.npy, vocabulary: 999, valid: tokens.npy, token_bytes: bytes.txt, length: 24}",
)

# YAML to insert verbatim in place of a value: special numbers, tags, anchors, aliases, unusual keys, invalid syntax.
RAW = """
.nan|.inf|-.inf|2020-01-01|2020-01-01T10:00:00Z|0o17|0x_|1__0|+1|1:30|- 1|~|<<|=|!!int x|!!float x|!!bool maybe
!!binary aGk=|!!set {a}|!!python/name:os.system|!!python/object/apply:os.system ['touch executed']|!x y|!<x> y|&a [*a]
*nothing|"\\0"|"\\ud800"|"\\U00110000"|"\\x1b[2J"|"a\\nb"|{? [1]: 2}|{1: 2}|{null: 1}|{a: 1, a: 2}|{<<: {a: 1}}
[,]|{,}|%|@|`
"""
NUMBERS = [0, -1, 1, 7, 10**9, 10**18, 2**63, 10**400, 0.5, -0.5, 1e-320, 1e308, True, False, None]
TEXTS = ["", " ", "no", "dense ", "DENSE", "8", "1e-3", "x" * 5_000, "é", "\u202e", "💥", "a\tb", "a,b", "a=b", "{}", "~"]
TEXTS += ["/dev/zero", "/etc/passwd", "..", "~nobody/x", "os:system", "collections:OrderedDict", "a:b:c", ":x", "x:"]
TEXTS += ["torch.nn:Linear", "attnlab.variants:Variant", "attnlab.variants.dense:Dense", "cosine.py:Cosine", "nothing.py:X"]
COLLECTIONS: list[Any] = [[], {}, [[]], [[[1]]], [None], [1, [2]], {"": 1}, {"name": ""}, {"name": None}, {"name": []}]
COLLECTIONS += [{"name": "dense"}, {"name": "dense", "x": 1}, {"options": {}}, {"name": "dense", "options": {"name": 1}}]
COLLECTIONS += [{"name": "x", "match": 1}]
SNIPPETS = ["\t", "\r", "\r\n", "\0", "\x07", "\x85", "\u2028", "\ufeff", "\ud800", "  ", "\n", "é", "💥", "'", '"', ""]
SNIPPETS += [": ", "- ", "? ", "# ", "| ", "> ", "&a ", "*a ", "!!str ", "!a ", "{", "}", "[", "]", ",", "<<: ", "---\n"]
SNIPPETS += ["...\n", "%YAML 1.1\n---\n", "%TAG ! tag:x,1:\n---\n", "x" * 50_000, "\n" * 9_000, "9" * 5_000]
SNIPPETS += ["[" * 3_000, "{a: " * 3_000, "- " * 3_000]
ALIASES_OF_ALIASES = "a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(30))


class Raw(str):
    """YAML that ``emit`` writes verbatim."""


@cache
def base_studies() -> list[str]:
    """Return the studies of the repository and those above, with models of one block, so that planning them is fast."""
    shipped = [path.read_text() for folder in ("ablations", "examples") for path in sorted((ROOT / folder).rglob("*.yaml"))]
    return [re.sub(r"depth: \d+", "depth: 1", text) for text in (EVERYTHING, SEARCHED, STUDY, OWN_DATA, OWN_TOKENS, *shipped)]


def names() -> list[str]:
    """Return words with a meaning in a study."""
    known = {*VARIANTS.names(), *POSITIONS.names(), *TASKS.names()}
    searched = ["RandomSampler", "GridSampler", "CmaEsSampler", "NopPruner", "PatientPruner", "train.lr", "8GiB", "90s"]
    return [*sorted(known), *searched, "auto", "sdpa", "cpu", "cuda", "bf16", "1", "0.1", "best"]


def paths() -> list[str]:
    """Return every dotted path of a run, and some that are not fields."""
    sections = ("model", "train", "evaluate", "machine")
    inner = [f"{section}.{name}" for section in sections for name in field_names(RunConfig, (section,))]
    return [*field_names(RunConfig, ()), *inner, "task.length", "variant.stride", "task.nothing", "seed", "a.b.c", "."]


raw_values = st.sampled_from(RAW.strip().replace("\n", "|").split("|")).map(Raw)
values: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(TEXTS),
    st.deferred(lambda: st.sampled_from(names())),
    st.sampled_from(COLLECTIONS).map(copy.deepcopy),
    raw_values,
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
)
keys = st.one_of(st.deferred(lambda: st.sampled_from(paths())), st.text(max_size=8))


def emit(tree: Any) -> str:
    """Return a value as YAML, in flow style within a block mapping of the top level."""
    if not isinstance(tree, dict) or not tree:
        return _flow(tree)
    return "".join(f"{json.dumps(key)}: {_flow(value)}\n" for key, value in tree.items())


def _flow(tree: Any) -> str:
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_flow(value)}" for key, value in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(_flow, tree)) + "]"
    return tree if isinstance(tree, Raw) else json.dumps(tree)


def _containers(tree: Any) -> list[Any]:
    """Return every mapping and list of a tree that is not empty."""
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return ([tree] if children else []) + [inner for child in children for inner in _containers(child)]


@st.composite
def _entries(draw: st.DrawFn, tree: Any) -> tuple[Any, Any]:
    """Draw a mapping or list of the tree, and a key or an index in it."""
    container = draw(st.sampled_from(_containers(tree)))
    return container, draw(st.sampled_from(list(container) if isinstance(container, dict) else range(len(container))))


def _mutate(draw: st.DrawFn, tree: dict[str, Any]) -> None:
    """Change one entry of the tree in place: its value, its type, its key, or its number of occurrences."""
    container, key = draw(_entries(tree))
    value = container[key]
    match draw(st.sampled_from(["tune", "replace", "retype", "rename", "delete", "duplicate", "swap", "add"])):
        case "tune" if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 10**300:
            container[key] = draw(st.sampled_from([value * 2, value * 10**9, max(1, value // 2), value / 3, 5]))
        case "retype":
            container[key] = draw(
                st.sampled_from([[value], {"name": value}, [value] * 2, str(value), {"low": 0, "high": value}])
            )
        case "rename" if isinstance(container, dict):
            new = draw(st.one_of(keys, st.sampled_from([str(key)[1:], f"{key}s", str(key).upper()])))
            container[new] = container.pop(key)
        case "delete" if len(tree) > 1:
            del container[key]
        case "duplicate" if isinstance(container, list):
            container.append(copy.deepcopy(value))
        case "swap":
            other_container, place = draw(_entries(tree))
            container[key], other_container[place] = copy.deepcopy(other_container[place]), copy.deepcopy(container[key])
        case "add":
            section = tree.setdefault(draw(st.sampled_from(["base", "grid"])), {})
            if isinstance(section, dict):
                section[draw(keys)] = draw(st.one_of(values, st.lists(values, max_size=3)))
        case _:
            container[key] = draw(values)


@st.composite
def _mutated_values(draw: st.DrawFn) -> str:
    tree = copy.deepcopy(parse(draw(st.sampled_from(base_studies())), name="base")[0])
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        if tree:
            _mutate(draw, tree)
    return emit(tree)


def _mutate_text(draw: st.DrawFn, text: str) -> str:
    """Insert, replace or delete characters, move a line, replace a word, or change the whole text."""
    start = draw(st.integers(0, len(text)))
    match draw(st.sampled_from(["characters", "line", "word", "whole"])):
        case "characters":
            end = start + draw(st.sampled_from([0, 1, 5]))
            return text[:start] + draw(st.one_of(st.sampled_from(SNIPPETS), st.characters())) + text[end:]
        case "line":
            lines = text.splitlines(keepends=True) or [""]
            i, j = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
            line = lines[i]
            moved = [[], [line, line], [lines[j]], ["  " + line], [" " + line], ["\t" + line], [line[1:]], [line.lstrip()]]
            lines[i : i + 1] = draw(st.sampled_from(moved))
            return "".join(lines)
        case "word" if words := list(re.finditer(r"[\w.]+", text)):
            word = draw(st.sampled_from(words))
            new = draw(st.one_of(values.map(_flow), st.sampled_from(words).map(lambda other: other[0])))
            return text[: word.start()] + new + text[word.end() :]
    crlf, cr = text.replace("\n", "\r\n"), text.replace("\n", "\r")
    bombs = [ALIASES_OF_ALIASES + text, text + ALIASES_OF_ALIASES]
    whole = [text[:start], text[start:], text + text, crlf, cr, f"[{text}]", f"{text}---\n{text}", f"- {text}", "# nothing\n"]
    return draw(st.sampled_from([*whole, *bombs]))


@st.composite
def _mutated_text(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(base_studies()))
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        text = _mutate_text(draw, text)
    return text


@st.composite
def _mutated_bytes(draw: st.DrawFn) -> bytes:
    text = draw(st.sampled_from(base_studies()))
    data = text.encode()
    i = draw(st.integers(0, len(data)))
    noise = draw(st.binary(max_size=9))
    encoded = [text.encode(name) for name in ("utf-16", "utf-32", "utf-8-sig")]
    return draw(st.sampled_from([data[:i] + noise + data[i:], noise, b"", *encoded]))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogatepass")


# Values twice: mutated values reach past the parser more often than mutated text.
files = st.one_of(
    _mutated_values().map(_encoded), _mutated_values().map(_encoded), _mutated_text().map(_encoded), _mutated_bytes()
)
