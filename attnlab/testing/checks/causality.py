"""Who sees whom: nothing ahead in a causal role, both sides in a bidirectional one, the source in cross-attention."""

import torch

from attnlab.testing.checks.target import LENGTHS, LONG, Check, CheckTarget, Failure, T, number

# Length -> positions: every one of few, and of many those around the borders of blocks that are powers of 2.
PLACES = {**{t: range(t) for t in LENGTHS}, LONG: (63, 64, 65, 128, 129, 200, 256, LONG - 1)}
MASK = (
    "Query i may attend to keys up to position i + s - t only: pass AttentionMask(causal=self.causal) to attend, or hide with "
    "`~layers.causal_mask(t, s)`, whose diagonal is visible."
)


def by_value(subject: CheckTarget) -> str:
    """Changing input j changes no output before j, and does change output j."""
    subject.need("causal")
    worst, least = 0.0, float("inf")
    for t, places in PLACES.items():
        cell = subject.build("causal", length=max(t, T))
        x, new = subject.noise(1, t), subject.noise(1, t, seed=2)
        with torch.no_grad():
            y = cell(x)
            for j in places:
                other = x.clone()
                other[:, j] = new[:, j]
                changed = (cell(other) - y).abs().amax((0, 2))  # (t,)
                case = f"causal, batch 1, length {t}: changing input {j} changes"
                before = changed[:j].max().item() if j else 0.0
                if not before <= subject.tolerance:
                    i = int((changed[:j] > subject.tolerance).nonzero()[0])
                    raise Failure(f"{case} output {i}, which comes before it, by {number(changed[i].item())}", MASK)
                if not changed[j].item() > subject.tolerance:
                    raise Failure(f"{case} nothing in output {j}", f"A token must see itself. {MASK}")
                worst, least = max(worst, before), min(least, changed[j].item())
    return f"before j {number(worst)}, at j at least {number(least)}, every j of {LENGTHS[-1]}, {len(PLACES[LONG])} of {LONG}"


def by_gradient(subject: CheckTarget) -> str:
    """The gradient of output i to input j is zero for j after i, and not zero for j = i."""
    subject.need("causal")
    worst = 0.0
    for t, places in PLACES.items():
        cell = subject.build("causal", length=max(t, T))
        x = subject.noise(1, t).requires_grad_()
        y = (cell(x) * subject.noise(1, t, seed=3)).sum((0, 2))  # (t,)
        for i in places:
            reach = torch.autograd.grad(y[i], x, retain_graph=True)[0].abs().amax((0, 2))  # (t,)
            case = f"causal, batch 1, length {t}: the gradient of output {i} to input"
            after = reach[i + 1 :].max().item() if i + 1 < t else 0.0
            if not after <= subject.tolerance:
                j = i + 1 + int((reach[i + 1 :] > subject.tolerance).nonzero()[0])
                raise Failure(f"{case} {j}, which comes after it, is {number(reach[j].item())}", MASK)
            if not reach[i].item() > 0:
                raise Failure(f"{case} {i} is zero", f"A token must learn from itself: is something detached? {MASK}")
            worst = max(worst, after)
    return f"after i {number(worst)}, every i of {LENGTHS[-1]}, {len(PLACES[LONG])} of {LONG}"


def both_sides(subject: CheckTarget) -> str:
    """In a bidirectional role a later input reaches an earlier output; in cross-attention every source position counts."""
    if "bidirectional" not in subject.roles:
        subject.need("cross")
    found = []
    for role in (role for role in ("bidirectional", "cross") if role in subject.roles):
        cell = subject.build(role)
        for n in LENGTHS:
            x, context = subject.inputs(role, 1, n, s=n)
            tried = x if context is None else context
            with torch.no_grad():
                y = cell(x, context)
                for j in range(1, n):
                    other = tried.clone()
                    other[:, j] = subject.noise(1, n, seed=2)[:, j]
                    z = cell(other) if context is None else cell(x, other)
                    early = (z - y).abs()[:, : j if context is None else n]
                    if not early.max().item() > subject.tolerance:
                        what = "input" if context is None else "source position"
                        raise Failure(
                            f"{role}, batch 1, length {n}: changing {what} {j} changes no output before it"
                            if context is None
                            else f"{role}, batch 1, length {n}: changing {what} {j} changes no output",
                            "Apply the causal mask only where self.causal is true."
                            if context is None
                            else "Keys and values must come from `context` where one is given.",
                        )
        found.append(role)
    return f"{', '.join(found)}: every position up to {LENGTHS[-1]}"


CHECKS = [
    Check("causality by value", by_value),
    Check("causality by gradient", by_gradient),
    Check("sees both sides", both_sides),
]
