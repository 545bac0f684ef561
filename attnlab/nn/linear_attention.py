"""Recurrences of a matrix-valued state, computed in chunks.

Linear attention with decay (Yang et al. 2024, arXiv:2312.06635; Dao & Gu 2024, arXiv:2405.21060) and the delta rule
with decay (Yang et al. 2025, arXiv:2412.06464; Kimi Team 2025, arXiv:2510.26692). For each head, with a state S (d, e):

    S_i = Diag(a_i) S_(i-1) + k_i v_i^T                                        y_i = S_i^T q_i    ``linear_attention``
    S_i = (I - k_i (beta_i * k_i)^T) Diag(a_i) S_(i-1) + k_i (w_i * v_i)^T     y_i = S_i^T q_i    ``delta_rule``

A chunk of C positions is computed by matrix products; the states between chunks follow one after the other. In a chunk that
starts from S, with g_i = log a_1 + ... + log a_i:

    y_i = (q_i exp(g_i)) S + sum_(j <= i) A_ij v_j                A_ij = sum_c q_ic k_jc exp(g_ic - g_jc)

The exponents g_i - g_j are never positive, so that any decay is computed without overflow. Decays of channels do not factor out
of A: queries of the later half of a chunk and keys of the earlier half both decay towards the border between them, and the
halves are treated in the same way, down to single positions.

The delta rule writes u_i = w_i * v_i - S_(i-1)^T (a_i * beta_i * k_i) instead of v_i. Within a chunk these solve a unit
triangular system (the UT transform of Yang et al. 2024, arXiv:2406.06484):

    (I + L) U = W * V - (beta * K * exp(g)) S                     L_ij = sum_c beta_ic k_ic k_jc exp(g_ic - g_jc), j < i

Letters: ``b`` batch, ``h`` heads, ``t`` queries, ``s`` keys, ``n`` chunks, ``C`` positions of a chunk, ``d`` width of keys,
``e`` width of values. Everything is computed in float32, or in float64 for inputs in float64, under autocast as well.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 64  # positions


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None = None, *, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute causal linear attention with decay.

    Args:
        q: (b, h, t, d), the queries of the last t positions.
        k: (b, h, s, d). ``q`` and ``k`` may have one head, which serves all heads of ``v``.
        v: (b, h, s, e).
        log_decay: log a, at most 0; (b, h, s, 1) for a decay of heads, (b, h, s, d) for a decay of channels. None: no decay.
        state: (b, h, d, e), the state before the first key; None: zeros.

    Returns:
        y (b, h, t, e), in the dtype of ``v``, and the state (b, h, d, e) after the last position.

    Examples:
        >>> one = torch.ones(1, 1, 4, 1)
        >>> y, state = linear_attention(one, one, one, one * torch.tensor(0.5).log())
        >>> y.flatten()
        tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    with without_autocast(v.device):
        memory, inputs = _split(k, k, v, log_decay, t=q.shape[2])
        if memory is not None:
            state = _additive_states(memory, state)[1]
        states, state = _additive_states(inputs, state)
        return _outputs(q, inputs, states, inputs.v).to(v.dtype), state


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor | None = None,
    *,
    write: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the delta rule with decay.

    Args:
        q: (b, h, t, d), the queries of the last t positions.
        k: (b, h, s, d), of length 1, or 0 for a position that leaves the state as it is.
        v: (b, h, s, e).
        beta: between 0 and 2: the share of the value under a key that the new value replaces; (b, h, s, 1), or (b, h, s, d) for
            the share of each channel of the key.
        log_decay: log a, at most 0; (b, h, s, 1) for a decay of heads, (b, h, s, d) for a decay of channels. None: no decay.
        write: w, the share of the new value that is written, (b, h, s, 1 or e); None: ``beta``, of width 1.
        state: (b, h, d, e), the state before the first key; None: zeros.

    Returns:
        y (b, h, t, e), in the dtype of ``v``, and the state (b, h, d, e) after the last position.

    Examples:
        >>> key, beta = torch.ones(1, 1, 3, 1), torch.ones(1, 1, 3, 1)
        >>> y, state = delta_rule(key, key, torch.tensor([1.0, 5.0, 3.0]).view(1, 1, 3, 1), beta)
        >>> y.flatten(), state.flatten()  # a new value replaces the one under the same key
        (tensor([1., 5., 3.]), tensor([3.]))
    """
    with without_autocast(v.device):
        beta = beta.to(_dtype(v))
        memory, inputs = _split(k, beta * k, (beta if write is None else write) * v, log_decay, t=q.shape[2])
        if memory is not None:
            state = _delta_states(memory, state)[2]
        states, written, state = _delta_states(inputs, state)
        return _outputs(q, inputs, states, written).to(v.dtype), state


def sum_over_keys(q: Tensor, k: Tensor, v: Tensor, *, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute linear attention of every query to every key, in the same terms.

    Args:
        q: (b, h, t, d).
        k: (b, h, s, d).
        v: (b, h, s, e).
        state: (b, h, d, e), the sum over further keys; None: there are none.

    Returns:
        y (b, h, t, e), in the dtype of ``v``, and the state S = sum_j k_j v_j^T (b, h, d, e).
    """
    with without_autocast(v.device):
        total = k.to(_dtype(v)).mT @ v.to(_dtype(v))
        total = total if state is None else state + total
        return (q.to(total.dtype) @ total).to(v.dtype), total


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which products are computed in the dtype of their factors."""
    if device.type == "meta":  # where the plan counts operations, and autocast does not exist
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def _dtype(v: Tensor) -> torch.dtype:
    """Return the dtype of the state: float32, or float64 for values in float64."""
    return torch.promote_types(v.dtype, torch.float32)


class _Chunks(NamedTuple):
    """The inputs of a recurrence, divided into chunks.

    Attributes:
        k: (b, h, n, C, d).
        erased: (b, h, n, C, d), beta * k in the delta rule; k in linear attention, which erases nothing.
        v: (b, h, n, C, e), w * v in the delta rule.
        g: (b, h, n, C, 1 or d), the sum of the log decays from the start of the chunk.
    """

    k: Tensor
    erased: Tensor
    v: Tensor
    g: Tensor

    @property
    def kept(self) -> Tensor:
        """The share of a state that is left at the end of each chunk, (b, h, n, 1 or d, 1)."""
        return self.g[..., -1:, :].mT.exp()

    @property
    def decayed_keys(self) -> Tensor:
        """The keys, decayed up to the end of their chunk, (b, h, n, C, d)."""
        return self.k * (self.g[..., -1:, :] - self.g).exp()


def _split(k: Tensor, erased: Tensor, v: Tensor, log_decay: Tensor | None, *, t: int) -> tuple[_Chunks | None, _Chunks]:
    """Return the chunks of the positions before the first query, or None, and the chunks of the last t positions."""
    s = v.shape[2]
    if log_decay is None:
        log_decay = v.new_zeros(1, 1, s, 1)
    inputs = [z.to(_dtype(v)) for z in (k, erased, v, log_decay)]
    memory = _divide(*(z[:, :, : s - t] for z in inputs)) if s > t else None
    return memory, _divide(*(z[:, :, s - t :] for z in inputs))


def _divide(k: Tensor, erased: Tensor, v: Tensor, log_decay: Tensor) -> _Chunks:
    size = min(CHUNK, 1 << (v.shape[2] - 1).bit_length())  # a power of 2, for the halves
    k, erased, v, log_decay = (_chunked(z, size) for z in (k, erased, v, log_decay))
    return _Chunks(k, erased, v, log_decay.cumsum(-2))


def _chunked(z: Tensor, size: int) -> Tensor:
    """Divide z (b, h, s, d) into chunks (b, h, n, size, d); zeros at the end leave a state as it is."""
    return F.pad(z, (0, 0, 0, -z.shape[2] % size)).unflatten(2, (-1, size))


def _additive_states(inputs: _Chunks, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the states before each chunk (b, h, n, d, e), and the one after the last."""
    added = inputs.decayed_keys.mT @ inputs.v
    kept = inputs.kept
    last = torch.zeros_like(added[:, :, 0]) if state is None else state
    states = []
    for i in range(added.shape[2]):
        states.append(last)
        last = kept[:, :, i] * last + added[:, :, i]
    return torch.stack(states, dim=2), last


def _delta_states(inputs: _Chunks, state: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the states before each chunk (b, h, n, d, e), the written values U (b, h, n, C, e), and the last state."""
    lower = _products(inputs.erased, inputs.k, inputs.g).tril(-1)  # L
    # The system is solved for both terms of its right side, before the state is known: U = fresh - stale S.
    terms = torch.cat([inputs.v, inputs.g.exp() * inputs.erased], dim=-1)
    solution = torch.linalg.solve_triangular(lower, terms, upper=False, unitriangular=True)
    fresh, stale = solution.split([inputs.v.shape[-1], inputs.k.shape[-1]], dim=-1)
    keys, kept = inputs.decayed_keys.mT, inputs.kept
    last = fresh.new_zeros(*fresh.shape[:2], stale.shape[-1], fresh.shape[-1]) if state is None else state
    states, written = [], []
    for i in range(fresh.shape[2]):
        states.append(last)
        written.append(fresh[:, :, i] - stale[:, :, i] @ last)
        last = kept[:, :, i] * last + keys[:, :, i] @ written[-1]
    return torch.stack(states, dim=2), torch.stack(written, dim=2), last


def _outputs(q: Tensor, inputs: _Chunks, states: Tensor, written: Tensor) -> Tensor:
    """Return y (b, h, t, e) from the states before each chunk and the values that are written in it."""
    chunks = _chunked(q.to(states.dtype), inputs.k.shape[-2])
    y = (chunks * inputs.g.exp()) @ states + _products(chunks, inputs.k, inputs.g) @ written
    return y.flatten(2, 3)[:, :, : q.shape[2]]


def _products(q: Tensor, k: Tensor, g: Tensor) -> Tensor:
    """Return A (..., C, C): the products of queries and keys under their decay, 0 for keys ahead."""
    if g.shape[-1] == 1:
        return q @ k.mT * decays(g)
    a = (q * k).sum(-1)[..., None, None]  # (..., C, 1, 1): blocks of one position
    for width in (1 << i for i in range(q.shape[-2].bit_length() - 1)):
        q_halves, k_halves, g_halves = (z.unflatten(-2, (-1, 2, width)) for z in (q, k, g))  # (..., C / 2 width, 2, width, d)
        border = g_halves[..., 0, -1:, :]
        later = q_halves[..., 1, :, :] * (g_halves[..., 1, :, :] - border).exp()
        earlier = k_halves[..., 0, :, :] * (border - g_halves[..., 0, :, :]).exp()
        first, second = a.unflatten(-3, (-1, 2)).unbind(-3)
        upper = torch.cat([first, torch.zeros_like(first)], dim=-1)
        a = torch.cat([upper, torch.cat([later @ earlier.mT, second], dim=-1)], dim=-2)
    return a.squeeze(-3)


def decays(g: Tensor) -> Tensor:
    """Return exp(g_i - g_j) for j <= i, else 0, from g (..., C, 1): (..., C, C)."""
    ahead = torch.ones(g.shape[-2], g.shape[-2], dtype=torch.bool, device=g.device).triu(1)
    return (g - g.mT).masked_fill(ahead, float("-inf")).exp()
