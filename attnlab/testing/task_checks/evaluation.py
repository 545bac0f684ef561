"""Evaluation: disjoint splits, scores that add up and point in the stated direction, and exact bytes.

Masked language models: the visible part of a row does not tell which token a mask hides.

Diagnostics: the solution agrees with the targets, at every level, and no constant answer beats chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice, pairwise, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab._util.metrics import Mean
from attnlab.errors import UserError
from attnlab.registry import check_options
from attnlab.tasks import IGNORED, SPLITS, Batch, Task
from attnlab.tasks.diagnostics.base import Diagnostic, level_label
from attnlab.tasks.masking import predicted_tokens
from attnlab.tasks.validation import SAME_LOSS, losses_of_parts
from attnlab.testing.checks.result import Check, Failure, NotDeclared
from attnlab.testing.task_checks.target import FEW_ROWS, ROWS, TaskTarget, real_tokens, same

LEVEL_ROWS = 200  # of a level whose commonest target is compared with chance
SOLVED = 20  # of these, rows that are solved
DEVIATIONS = 4  # standard errors by which a constant answer, or a shared passage, may be more frequent
MASKED_BATCHES = 20  # of training rows
MASKED_ROWS = 16  # of a batch
KEPT = 0.3  # largest share of predicted tokens that may stand in their own place: BERT keeps 10 %
REVEALED = 0.5  # largest share of predicted tokens that a fixed rule may find in the rest of a row
WINDOWS = 24  # neighboring rows of an evaluation whose scored tokens are compared
OVERLAP = 4  # tokens at the end of a row and at the start of the next that are no chance
SHARED = 0.2  # share of rows of a split that may also occur in another, above what train shares with itself
TRAIN_TOKENS = 1 << 20  # of an evaluation of train
LOSS_BATCHES = 3
DRAWN, MOST_DRAWN = 64, 512  # training batches, spread over two epochs, that are compared with valid and test
SPLIT_TOKENS = 1 << 23  # of valid and of test that they are compared with
PASSAGE = 32  # tokens
MULTIPLIER = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio, for multiplicative hashing
TRAIN_BATCHES = 20  # in which the classes are counted


def repeatable(target: TaskTarget) -> str:
    """An evaluation repeats exactly, and its scores depend neither on the batch size nor on a prefix of the batches."""
    rows = 4 * ROWS
    first, again = (list(target.evaluation("valid", rows=rows)) for _ in range(2))
    if len(first) != len(again) or not all(map(same, first, again)):
        raise Failure(
            "two evaluations of valid differ", "Evaluate the same items in the same order, whatever was called before."
        )
    by_size = [list(target.evaluation("valid", rows=rows, batch_size=n)) for n in (1, ROWS, 7)]
    for batches in by_size:
        items = torch.cat([batch.items for batch in batches if batch.items is not None] or [torch.zeros(0)])
        if len(items.unique()) < len(items):
            raise Failure(
                f"{len(items)} rows of valid have {len(items.unique())} different items",
                "`items` are indices of the rows within the evaluation: they do not begin at 0 again in each batch.",
            )
    for predicted in ("nothing", "wrong"):
        alone, *others = (target.score(batches, predicted) for batches in by_size)
        for other, (name, mean) in product(others, alone.items()):
            if not _agrees(mean, other[name]):
                raise Failure(
                    f"{name} on valid is {mean.value:g} with batches of 1, else {other[name].value:g} "
                    f"(counts {float(mean.count):g} and {float(other[name].count):g})",
                    "score() returns sums and counts of the batch: (total, number of items). A batch size must not leave out, "
                    "repeat or reorder what is scored: keep the last, smaller batch.",
                )
    count = sum(_predicted(batch) if target.counts_tokens else len(batch.inputs) for batch in first)
    if count > target.limit(rows):
        raise Failure(f"limit={target.limit(rows):,} gives {count:,} items", "Evaluate at most `limit` items.")
    return f"{count:,} items, the same twice and in batches of 1, {ROWS} and 7"


def _agrees(one: Mean, other: Mean) -> bool:
    return math.isclose(one.value, other.value, rel_tol=1e-6, abs_tol=1e-9) and float(one.count) == float(other.count)


def _predicted(batch: Batch) -> int:
    """Return the number of predicted tokens."""
    return int((batch.targets != IGNORED).sum())


def chance(target: TaskTarget) -> str:
    """The metric is better for right than for uniform or wrong predictions, in the stated direction; states chance level."""
    task, rows = target.task, target.few_rows()
    values: dict[str, float] = {}
    for predicted in ("right", "nothing", "wrong"):
        scores = {name: mean.value for name, mean in target.score(rows, predicted).items()}
        if target.generates and predicted != "nothing":
            scores |= target.generated(predicted)
        if task.metric in scores:
            values[predicted] = scores[task.metric]
        elif not target.generates or predicted != "nothing":
            raise Failure(
                f"the scores are {', '.join(scores) or 'none'}, without the metric {task.metric}", "Return the metric."
            )
    if not all(map(math.isfinite, values.values())):
        raise Failure(f"{task.metric}: {_shown(values)}", "The score of finite logits must be finite.")
    better = values["right"] < values["wrong"] if task.direction == "min" else values["right"] > values["wrong"]
    if not better:
        raise Failure(
            f"{task.metric} ({task.direction}): {_shown(values)}",
            "`direction` is the better one: min or max; and score() must compare logits with the targets.",
        )
    if "nothing" not in values:
        return f"{task.metric} of right tokens {values['right']:.4g}, of wrong ones {values['wrong']:.4g}"
    if target.is_language_model:
        return f"{task.metric} at chance (uniform) {values['nothing']:.4g}, of right predictions {values['right']:.4g}"
    return _describe_classes(target, task)


def _shown(values: dict[str, float]) -> str:
    return ", ".join(f"{value:.4g} of {name if name != 'nothing' else 'uniform'} predictions" for name, value in values.items())


def _describe_classes(target: TaskTarget, task: Task) -> str:
    """Return chance level and the share of the most frequent class in training; raise ``Failure`` if there is one class."""
    classes = torch.cat([target.train(step, batch_size=32).targets for step in range(TRAIN_BATCHES)])
    counts = classes.bincount(minlength=task.classes)
    share = counts.max().item() / len(classes)
    if task.classes > 1 and share == 1.0:
        raise Failure(
            f"all {len(classes)} training rows have class {int(counts.argmax())} of {task.classes}",
            "A constant prediction would be perfect: shuffle the rows, and check the labels.",
        )
    return f"accuracy at chance {1 / task.classes:.4g}, of the most frequent class in train {share:.4g}"


def loss(target: TaskTarget) -> str:
    """The loss is a differentiable scalar, lowest for right predictions, and ignores positions without a target."""
    batch = target.train(0)
    losses = {name: target.task.loss(target.logits(batch, name), batch) for name in ("right", "nothing", "wrong")}
    if any(value.dim() for value in losses.values()) or not all(map(torch.isfinite, losses.values())):
        raise Failure(f"loss() returned {losses['nothing']}", "Return one finite number: the mean over the targets.")
    if not losses["right"] < losses["nothing"] < losses["wrong"]:
        shown = _shown({name: value.item() for name, value in losses.items()})
        raise Failure(f"loss: {shown}", "The loss is the negative log-likelihood of the targets: lower is better.")
    batch = _without_some_targets(batch) if target.is_language_model else batch
    output = target.logits(batch, "nothing")
    logits, targets = (output.tokens, predicted_tokens(batch)) if target.is_masked else (output, batch.targets)
    logits.requires_grad_()
    value = target.task.loss(output, batch)
    gradient = torch.autograd.grad(value, logits)[0] if value.requires_grad else None
    if gradient is None or not gradient.abs().max() > 0:
        raise Failure("loss() has no gradient", "Compute it from the logits, without detach(), .item() or argmax.")
    ignored = targets == IGNORED
    if target.is_language_model and ignored.any() and gradient[ignored].abs().max() > 0:
        raise Failure("logits at positions without a target get a gradient", f"Pass ignore_index={IGNORED} to cross_entropy.")
    for step in range(LOSS_BATCHES):
        batch = target.train(step, batch_size=FEW_ROWS)
        batch = _without_some_targets(batch) if target.is_language_model else batch
        whole, parts = losses_of_parts(target.task, batch, rows=FEW_ROWS)
        if not math.isclose(whole, parts, rel_tol=SAME_LOSS, abs_tol=SAME_LOSS):
            raise Failure(
                f"loss() of {FEW_ROWS} rows is {whole:.4g}, of one at a time, weighted by their targets, {parts:.4g}",
                "Return the mean over the targets of the batch: a sum or a mean over rows has another gradient with "
                "gradient_accumulation, and runs with it are refused.",
            )
    return f"{losses['nothing']:.4g} nats of uniform predictions, {losses['right']:.2g} of right ones"


def _without_some_targets(batch: Batch) -> Batch:
    """Return the batch without the first targets of each row, of another number in each, so that a loss must leave them out."""
    scored = batch.targets != IGNORED
    rank, count = scored.cumsum(1), scored.sum(1, keepdim=True)
    left_out = (rank <= 1 + torch.arange(len(scored))[:, None]) & (rank < count)
    return replace(batch, targets=batch.targets.masked_fill(left_out, IGNORED))


def disjoint(target: TaskTarget) -> str:
    """Rows and passages of a split do not occur in another one, nor those of ``valid`` and ``test`` in training batches."""
    length = target.task.length
    pieces = {
        split: _pieces(target, target.evaluation(split, rows=max(1, tokens // length), batch_size=64))
        for split, tokens in zip(SPLITS, (TRAIN_TOKENS, SPLIT_TOKENS, SPLIT_TOKENS), strict=True)
    }
    by_chance = _share(pieces["train"][::2], pieces["train"][1::2])  # of a task with few possible rows
    shares = {}
    for split, other in (("valid", "train"), ("test", "train"), ("test", "valid")):
        shares[split, other] = share = _share(pieces[split], pieces[other][1::2])
        if share > by_chance + SHARED:
            advice = "The splits must not share any item: cut a text before it is sampled."
            raise Failure(f"{share:.0%} of the rows or passages of {split} occur in {other}", advice)
    for split in SPLITS[1:]:
        _require_not_drawn(target, pieces["train"], pieces[split], split)
    return f"at most {max(shares.values()):.1%} of the rows or passages are shared; {by_chance:.1%} within train"


def _require_not_drawn(target: TaskTarget, train: list[np.ndarray], rows: list[np.ndarray], split: str) -> None:
    """Raise ``Failure`` when training batches hold more of ``valid`` or ``test`` than an evaluation of ``train`` does.

    A quarter of the share that the split would have if training read it like ``train`` is too much. The smaller that share, the
    more rows are drawn: the test of a text of 90, 5 and 5 % is a twentieth of what is then drawn.
    """
    epoch = target.task.steps_per_epoch(32)
    whole = len(rows) / (len(rows) + 32 * epoch)
    number = min(max(DRAWN, math.ceil(1 / whole)), MOST_DRAWN)
    steps = sorted({i * 2 * epoch // number for i in range(number)})
    drawn = _pieces(target, (target.train(step, seed=i % 2, batch_size=32) for i, step in enumerate(steps)))
    known = np.unique(np.concatenate(rows))
    share, usual = (float(np.isin(np.concatenate(part), known).mean()) for part in (drawn, train))
    error = (share * (1 - share) / len(drawn) + usual * (1 - usual) / len(train)) ** 0.5
    if share > usual + max(DEVIATIONS * error, whole / 4):
        raise Failure(
            f"{share:.1%} of the rows or passages of train_batch() occur in {split}, {usual:.1%} of those of "
            'eval_batches("train")',
            "train_batch() must draw from the training split alone.",
        )


def _pieces(target: TaskTarget, batches: Iterable[Batch]) -> list[np.ndarray]:
    """Return for each row the hashes of its passages or, when it is padded or has a class, of the whole row."""
    found: list[np.ndarray] = []
    for batch in batches:
        batch = (
            replace(batch, inputs=torch.where(batch.targets < 0, batch.inputs, batch.targets)) if target.is_masked else batch
        )
        tokens = (batch.inputs if target.is_masked else real_tokens(batch)).numpy().astype(np.int64) + 1  # padding adds nothing
        whole = batch.mask is not None or not target.is_language_model
        width = tokens.shape[1] if whole else min(PASSAGE, tokens.shape[1] // 2 + 1)
        hashes = np.zeros((len(tokens), tokens.shape[1] - width + 1), np.uint64)
        for k in range(width):
            hashes += np.uint64(pow(MULTIPLIER, k + 1, 1 << 64)) * tokens[:, k : k + hashes.shape[1]].astype(np.uint64)
        real = np.ones_like(hashes, bool) if whole else tokens[:, width - 1 :] > 0
        found += [row[kept] for row, kept in zip(hashes, real, strict=True) if kept.any()]
    return found


def _share(rows: list[np.ndarray], others: list[np.ndarray]) -> float:
    """Return the share of the pieces of ``rows`` that occur in ``others``."""
    return float(np.isin(np.concatenate(rows), np.concatenate(others)).mean()) if rows and others else 0.0


def exact_bytes(target: TaskTarget) -> str:
    """Bits per byte count every predicted byte: as many bytes as the targets decode to."""
    task = target.task
    if task.metric != "bits_per_byte":
        raise NotDeclared(f"the metric is {task.metric}")
    segments = list(target.evaluation("valid", rows=FEW_ROWS))
    predicted, scored = sum(map(_predicted, segments)), target.score(segments, "nothing")["bits_per_byte"]
    for row in (row for batch in segments for row in batch.split(len(batch.inputs))):
        expected, counted = _bytes_of(task, row), float(target.score([row], "nothing")["bits_per_byte"].count)
        if expected is not None and counted != expected:
            raise Failure(
                f"score() counts {counted:g} bytes, the {_predicted(row)} targets of the row decode to {expected}",
                "The count of bits_per_byte is the number of bytes of the predicted tokens, not of tokens or of all positions.",
            )
    bits = predicted * math.log2(task.vocabulary)
    if not math.isclose(float(scored.sum), bits, rel_tol=1e-5):
        raise Failure(
            f"uniform predictions of {predicted} tokens have {float(scored.sum):.6g} bits, expected {bits:.6g}",
            "The sum of bits_per_byte is the negative log2-likelihood of all targets: nats / ln 2, added up in float64.",
        )
    return f"{float(scored.count):,.0f} bytes of {predicted:,} tokens"


def scored_once(target: TaskTarget) -> str:
    """No token is scored twice, under both protocols: the scored tokens of a row do not begin the next one."""
    if target.task.kind != "language_model":
        raise NotDeclared("no language model of a text")
    numbers = {}
    for protocol, stride in (("segment", None), ("sliding", max(1, target.task.length // 3))):
        batches = target.evaluation("valid", rows=WINDOWS, batch_size=1, protocol=protocol, stride=stride)
        rows = [batch.targets[batch.targets != IGNORED] for batch in islice(batches, 4 * WINDOWS)]
        numbers[protocol] = sum(map(len, rows))
        if overlap := _overlap(rows):
            raise Failure(
                f"protocol {protocol}: the last {overlap} scored tokens of each row are the first ones of the next",
                f"Each token is scored once: set targets that an earlier window has counted to {IGNORED}.",
            )
    if target.counts_tokens and numbers["sliding"] != numbers["segment"]:
        raise Failure(
            f"protocol sliding scores {numbers['sliding']:,} tokens, segment {numbers['segment']:,}",
            f"Each token is scored once: set targets that an earlier window has counted to {IGNORED}.",
        )
    return f"{numbers['segment']:,} tokens, each once under both protocols"


def _overlap(rows: list[Tensor]) -> int:
    """Return the number of tokens with which all rows end and the next ones begin, from ``OVERLAP`` on; 0 for none."""
    pairs = [pair for pair in pairwise(rows) if min(map(len, pair)) >= OVERLAP][: WINDOWS - 1]
    for n in range(OVERLAP, min((len(row) for pair in pairs for row in pair), default=0) + 1):
        if all(torch.equal(one[-n:], other[:n]) for one, other in pairs) and len(torch.cat(rows).unique()) > n:
            return n
    return 0


def _bytes_of(task: Task, row: Batch) -> int | None:
    """Return the number of bytes of the targets of a row; None when their text is unknown or ends in part of a character."""
    ids = row.targets[row.targets != IGNORED].tolist()
    if task.vocabulary == 256:
        return len(ids)  # bytes
    try:
        text = task.decode(ids)
    except NotImplementedError:
        return None
    return None if "\ufffd" in text else len(text.encode())


def encoding(target: TaskTarget) -> str:
    """``encode`` and ``decode`` are inverse, as ``attnlab generate`` requires."""
    task = target.task
    if type(task).encode is Task.encode or type(task).decode is Task.decode:
        raise NotDeclared("encode() or decode() is not defined")
    batch = target.train(0, batch_size=1)
    ids = batch.inputs[0] if batch.mask is None else batch.inputs[0][batch.mask[0]]
    text = task.decode(ids.tolist())
    if "\ufffd" in text:
        text = text.replace("\ufffd", "")  # part of a character
    again = task.decode(task.encode(text))
    if again != text:
        at = next((i for i, (a, b) in enumerate(zip(again, text, strict=False)) if a != b), min(len(again), len(text)))
        raise Failure(
            f"decode(encode(text)) differs at character {at}: {again[at : at + 12]!r}, expected {text[at : at + 12]!r}",
            "encode() returns the token ids of a text, decode() the text of token ids.",
        )
    encoded = task.encode(text)
    if encoded and not 0 <= min(encoded) <= max(encoded) < task.vocabulary:
        raise Failure(f"encode() returns {min(encoded)} to {max(encoded)}", f"Token ids are 0 to {task.vocabulary - 1}.")
    return f"{len(text):,} characters, {len(encoded):,} tokens"


def planned_tokens(target: TaskTarget) -> str:
    """``eval_tokens`` estimates what an evaluation reads, with every row at full length."""
    task, rows = target.task, 4 * ROWS
    estimate = task.eval_tokens("valid", limit=target.limit(rows), protocol="segment", stride=None)
    if estimate is None:
        raise NotDeclared("eval_tokens() returns None: the plan omits the cost of evaluation")
    read = sum(len(batch.inputs) for batch in target.evaluation("valid", rows=rows)) * task.length
    if not read / 2 <= estimate <= 2 * read:
        raise Failure(f"eval_tokens() is {estimate:,}, an evaluation reads {read:,}", "Count rows times the length.")
    return f"estimated {estimate:,} tokens, read {read:,}"


def hidden_tokens(target: TaskTarget) -> str:
    """A model cannot read a predicted token off its own place, a neighbor, the end of a row, or another field of the batch."""
    if not target.is_masked or target.task.role == "causal":
        raise NotDeclared("no masked language model")
    batches = [target.train(step, batch_size=MASKED_ROWS) for step in range(MASKED_BATCHES)]
    batches += list(islice(target.evaluation("valid", rows=4 * MASKED_ROWS, batch_size=MASKED_ROWS), 4))
    rules = [_rules(batch) for batch in batches]
    shares = {name: _masked_share([of_batch[name] for of_batch in rules if name in of_batch]) for name in rules[0]}
    kept = shares.pop("its own place")
    if kept > KEPT:
        raise Failure(
            f"{kept:.0%} of the predicted tokens stand unchanged in their own place",
            "Replace most of the predicted tokens: BERT keeps 10 % of them, so that models do not rely on [MASK].",
        )
    for name, share in shares.items():
        if share > REVEALED:
            raise Failure(
                f"{share:.0%} of the predicted tokens can be read off {name}",
                "Build the inputs from the masked tokens alone, and draw masks and replacements without reading the tokens.",
            )
    return (
        f"{kept:.0%} of the predicted tokens are kept, and at most {max(shares.values()):.0%} can be read off the rest of a row"
    )


def _rules(batch: Batch) -> dict[str, Tensor]:
    """Return for each simple rule which of the predicted tokens (n,) it finds: bool."""
    row, column = (batch.targets != IGNORED).nonzero(as_tuple=True)
    wanted, t = batch.targets[row, column], batch.inputs.shape[1]
    here = batch.inputs[row, column]
    rules = {"its own place": here == wanted}
    for offset in range(1 - t, t):
        if offset:
            place = column + offset
            inside = (place >= 0) & (place < t)
            seen = batch.inputs[row, place.clamp(0, t - 1)] == wanted
            rules[f"the token {abs(offset)} {'after' if offset > 0 else 'before'} it"] = seen & inside
    for place in (0, 1, t - 2, t - 1):
        rules[f"position {place} of its row"] = batch.inputs[row, place] == wanted
    random = (here != wanted) & (here != here.mode().values)  # the most frequent replacement is the mask
    difference = (here - wanted)[random]
    rules["a fixed distance to a random token"] = difference == (difference.mode().values if len(difference) else 0)
    for name in ("segments", "items", "labels"):
        field = getattr(batch, name)
        if field is not None:
            rules[name] = (field[row, column] if field.dim() == 2 else field[row]) == wanted
    return rules


def _masked_share(tensors: list[Tensor]) -> float:
    """Return the share of True in boolean tensors together; 0 when they are empty."""
    values = torch.cat(tensors).double()
    return values.mean().item() if len(values) else 0.0


def solution(target: TaskTarget) -> str:
    """At every level there are rows, ``solve`` gives their targets, and no constant answer is above ``chance``."""
    cls = target.cls
    if not issubclass(cls, Diagnostic):
        raise NotDeclared("no diagnostic")
    for options in (target.options, *cls.levels):
        task, case = _build(cls, options), level_label(options)
        try:
            inputs, targets = task.rows("test", LEVEL_ROWS)
        except UserError as error:
            raise Failure(f"{case}: {error.message}", "Refuse such options in the constructor.") from error
        for row in range(SOLVED):
            _check_solution(task, inputs[row].tolist(), targets[row], f"{case}, row {row} of test")
        _check_chance(task, inputs, targets, case)
    return f"{1 + len(cls.levels)} sizes: solve() gives the targets, chance {target.construct().chance():.3g}"  # type: ignore[attr-defined]


def _build(cls: type[Diagnostic], options: Mapping[str, Any]) -> Diagnostic:
    try:
        check_options(cls, dict(options), what=cls.__name__)
        return cls(**options)
    except UserError as error:
        raise Failure(f"level {level_label(options)}: {error.message}", "`levels` are options of the constructor.") from error


def _check_solution(task: Diagnostic, inputs: list[int], targets: np.ndarray, case: str) -> None:
    """Raise ``Failure`` unless the solution of a row has its targets."""
    solved = task.solve(inputs)
    if len(solved) != len(inputs):
        raise Failure(f"{case}: solve() returns {len(solved)} numbers", f"Return one for each of the {len(inputs)} inputs.")
    for position in np.flatnonzero(targets != IGNORED):
        if solved[position] != targets[position]:
            raise Failure(
                f"{case}, position {position}: solve() returns {solved[position]}, the target is {targets[position]}",
                "draw() and solve() define the same targets; the second one from the inputs alone.",
            )


def _check_chance(task: Diagnostic, inputs: np.ndarray, targets: np.ndarray, case: str) -> None:
    """Raise ``Failure`` when the commonest target is above chance by more than the rows of the test explain."""
    chance = task.chance()
    if not 0 <= chance < 1:
        raise Failure(f"{case}: chance() is {chance:g}", "Return the accuracy of the best guess, from 0 to 1.")
    _, first = np.unique(inputs, axis=0, return_index=True)
    scored = targets[first][targets[first] != IGNORED]
    token, share = int(np.bincount(scored).argmax()), float(np.bincount(scored).max() / len(scored))
    if share > chance + DEVIATIONS * (max(chance, 1 / len(first)) / len(first)) ** 0.5:
        raise Failure(
            f"{case}: the answer {token} alone has an accuracy of {share:.3g}, chance() is {chance:.3g}",
            "chance() is the best accuracy without the ability, at least the accuracy of the commonest target.",
        )


CHECKS = (
    Check("repeatable evaluation", repeatable),
    Check("chance level", chance),
    Check("loss", loss),
    Check("disjoint splits", disjoint),
    Check("scored once", scored_once),
    Check("exact bytes", exact_bytes),
    Check("encoding", encoding),
    Check("planned tokens", planned_tokens),
    Check("hidden tokens", hidden_tokens),
    Check("solution", solution),
)
