"""Optimizers for the matrices of the blocks of a model, with AdamW for its other parameters.

These optimizers update a matrix as a whole, and not each entry by itself. They are meant for the matrices of hidden layers,
which have the role ``matrix`` (``attnlab.nn.roles``), two dimensions, and a place in a block; embeddings, output layers, gains,
biases and kernels of convolutions need another optimizer. For the gradient G_t of a matrix of
m outputs and n inputs, and with decoupled weight decay as in AdamW:

- ``Muon``: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks",
  https://kellerjordan.github.io/posts/muon/. The momentum of G_t is replaced by the nearest matrix with orthonormal rows or
  columns. Liu et al. 2025, "Muon is Scalable for LLM Training", arXiv:2502.16982, section 2.2, multiply the update by
  0.2 sqrt(max(m, n)), so that its root mean square is about as large as for AdamW. Muon can then have the learning rate and the
  weight decay of AdamW. That is the default here (``adjust_lr_fn: match_rms_adamw``); in ``torch.optim.Muon`` it is not.
- ``NorMuon``: Li et al. 2025, "NorMuon: Making Muon more efficient and scalable", arXiv:2510.05491, algorithm 1. The rows of
  Muon's update, one for each neuron, differ in size; each is divided by the root of its mean square.
- ``SOAP``: Vyas et al. 2024, "SOAP: Improving and Stabilizing Shampoo using Adam", arXiv:2409.11321, algorithm 3. Adam, in the
  basis of the eigenvectors of L_t and R_t, averages of G_t G_t' and G_t' G_t.

Departure: W_Q, W_K and W_V of a variant that projects with one matrix are one matrix here, too.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor

Groups = Iterable[dict[str, Any]]
NEWTON_SCHULZ, NS_STEPS = (3.4445, -4.775, 2.0315), 5  # coefficients and number of iterations


class MatrixOptimizer(torch.optim.Optimizer):
    """An optimizer of matrices and ``torch.optim.AdamW`` as one optimizer.

    Args:
        params: groups with the key ``hidden``, True for the matrices of blocks.
        rule: class of an optimizer of matrices.
        options: arguments of ``rule``, beside ``lr`` and ``weight_decay``.
        lr: learning rate of the matrices.
        betas: of AdamW.
        weight_decay: of both.
        adamw_lr_scale: learning rate of AdamW, as a multiple of ``lr``.

    Attributes:
        splits_hidden: True for an optimizer with the key ``hidden`` in its groups.
    """

    splits_hidden: ClassVar[bool] = True

    def __init__(
        self,
        params: Groups,
        rule: Callable[..., torch.optim.Optimizer],
        options: dict[str, Any],
        lr: float,
        betas: tuple[float, float],
        weight_decay: float,
        adamw_lr_scale: float,
    ) -> None:
        if adamw_lr_scale <= 0:
            raise ValueError(f"expected adamw_lr_scale greater than 0, got {adamw_lr_scale}")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        for group in self.param_groups:
            if not group["hidden"]:
                group["lr_scale"] = group.get("lr_scale", 1.0) * adamw_lr_scale
        hidden, others = self._split()
        self._rule = rule(hidden, lr=lr, weight_decay=weight_decay, **options) if hidden else None
        self._adamw = torch.optim.AdamW(others, lr=lr, betas=betas, weight_decay=weight_decay, fused=True) if others else None
        self._share()

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override] as torch's own
        """Update all parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for optimizer in (self._rule, self._adamw):
            if optimizer is not None:
                optimizer.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the state that ``state_dict`` returned."""
        super().load_state_dict(state_dict)
        self._share()

    def _split(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the groups of matrices and the groups of AdamW."""
        hidden = [group for group in self.param_groups if group["hidden"]]
        return hidden, [group for group in self.param_groups if not group["hidden"]]

    def _share(self) -> None:
        """Let both optimizers read and write the groups and the state of this one, which ``state_dict`` returns."""
        for optimizer, groups in zip((self._rule, self._adamw), self._split(), strict=True):
            if optimizer is not None:
                optimizer.param_groups, optimizer.state = groups, self.state


class Muon(MatrixOptimizer):
    """Muon, for the matrices of blocks: ``torch.optim.Muon``.

    Args:
        momentum, nesterov, ns_coefficients, ns_steps, eps, adjust_lr_fn: as in ``torch.optim.Muon``.
        params, lr, betas, weight_decay, adamw_lr_scale: as for ``MatrixOptimizer``.
    """

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.1,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = NEWTON_SCHULZ,
        ns_steps: int = NS_STEPS,
        eps: float = 1e-7,
        adjust_lr_fn: str = "match_rms_adamw",
        adamw_lr_scale: float = 1.0,
    ) -> None:
        options = {"momentum": momentum, "nesterov": nesterov, "ns_coefficients": ns_coefficients, "ns_steps": ns_steps}
        options |= {"eps": eps, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, torch.optim.Muon, options, lr, betas, weight_decay, adamw_lr_scale)


class NorMuon(MatrixOptimizer):
    """NorMuon, for the matrices of blocks.

    Args:
        momentum, beta2: decay rates of the averages of gradients and of mean squares of rows, beta_1 and beta_2 in the paper.
        nesterov: Nesterov's momentum, as in the authors' code; False is algorithm 1.
        eps: added to each divisor.
        params, lr, betas, weight_decay, adamw_lr_scale: as for ``MatrixOptimizer``.
    """

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.1,
        *,
        momentum: float = 0.95,
        beta2: float = 0.95,
        nesterov: bool = True,
        eps: float = 1e-8,
        adamw_lr_scale: float = 1.0,
    ) -> None:
        _require_rates(momentum=momentum, beta2=beta2)
        options = {"momentum": momentum, "beta2": beta2, "nesterov": nesterov, "eps": eps}
        super().__init__(params, _NorMuonRule, options, lr, betas, weight_decay, adamw_lr_scale)


class SOAP(MatrixOptimizer):
    """SOAP, for the matrices of blocks.

    Departures from algorithm 3, as in the authors' code: averages have Adam's correction of their bias, the first step only
    computes the eigenvectors, and eigenvectors are sorted by their eigenvalues when they are updated.

    Args:
        soap_betas: decay rates of the averages of matrices, beta_1 and beta_2 in the paper; ``betas`` are AdamW's.
        precondition_frequency: steps between two updates of the eigenvectors, f in the paper.
        eps: added to each divisor.
        params, lr, betas, weight_decay, adamw_lr_scale: as for ``MatrixOptimizer``.
    """

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.1,
        *,
        soap_betas: tuple[float, float] = (0.95, 0.95),
        precondition_frequency: int = 10,
        eps: float = 1e-8,
        adamw_lr_scale: float = 1.0,
    ) -> None:
        _require_rates(**{f"soap_betas[{i}]": beta for i, beta in enumerate(soap_betas)})
        if precondition_frequency < 1:
            raise ValueError(f"expected precondition_frequency of at least 1, got {precondition_frequency}")
        options = {"soap_betas": soap_betas, "precondition_frequency": precondition_frequency, "eps": eps}
        super().__init__(params, _SOAPRule, options, lr, betas, weight_decay, adamw_lr_scale)


def _require_rates(**rates: float) -> None:
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            raise ValueError(f"expected {name} of at least 0 and less than 1, got {rate}")


class _Rule(torch.optim.Optimizer):
    """W_t = (1 - lr weight_decay) W_(t-1) - lr U_t, with an update U_t that depends on gradients and not on W."""

    def __init__(self, params: Groups, **defaults: Any) -> None:
        super().__init__(params, defaults)

    def update(self, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        """Return U_t (m, n) for a gradient (m, n), and change ``state`` in place; it is empty at first."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override] called without a closure
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    update = self.update(p.grad, self.state[p], group)
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])


class _NorMuonRule(_Rule):
    def update(self, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        if not state:
            state |= {"momentum": torch.zeros_like(gradient), "row_squares": torch.zeros_like(gradient[:, :1])}
        momentum, squares, eps = state["momentum"], state["row_squares"], group["eps"]
        momentum.lerp_(gradient, 1 - group["momentum"])
        smooth = gradient.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
        update = orthogonalize(smooth)
        squares.lerp_(update.square().mean(1, keepdim=True), 1 - group["beta2"])
        update = update / (squares.sqrt() + eps)
        return update * (0.2 * math.sqrt(update.numel()) / update.norm().clamp(min=eps))


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return a matrix with the singular vectors of ``matrix`` (m, n) and singular values near 1.

    Newton-Schulz iterations: X <- a X + b (X X') X + c (X X')^2 X. As in ``torch.optim.Muon``, they are computed in bfloat16,
    and here in float64 for a matrix in float64.
    """
    a, b, c = NEWTON_SCHULZ
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix if matrix.dtype == torch.float64 else matrix.bfloat16()
    x = x.mT if is_tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(NS_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return (x.mT if is_tall else x).to(matrix.dtype)


class _SOAPRule(_Rule):
    def update(self, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        beta1, beta2 = group["soap_betas"]
        if not state:  # no step, so that the basis of an update does not depend on its gradient
            left, right = (1 - beta2) * gradient @ gradient.mT, (1 - beta2) * gradient.mT @ gradient
            state |= {"step": 0, "average": torch.zeros_like(gradient), "squares": torch.zeros_like(gradient)}
            state |= {"left": left, "right": right, "q_left": _eigenvectors(left), "q_right": _eigenvectors(right)}
            return torch.zeros_like(gradient)
        state["step"] += 1
        step, average, squares = state["step"], state["average"], state["squares"]
        left, right, q_left, q_right = (state[name] for name in ("left", "right", "q_left", "q_right"))
        # Adam in the basis of the eigenvectors; the average is kept in the basis of W, so that it outlasts changes of theirs.
        average.lerp_(gradient, 1 - beta1)
        squares.lerp_((q_left.mT @ gradient @ q_right).square(), 1 - beta2)
        rotated = (q_left.mT @ average @ q_right) / (1 - beta1**step)
        update = q_left @ (rotated / ((squares / (1 - beta2**step)).sqrt() + group["eps"])) @ q_right.mT
        left.lerp_(gradient @ gradient.mT, 1 - beta2)
        right.lerp_(gradient.mT @ gradient, 1 - beta2)
        if step % group["precondition_frequency"] == 0:
            rows, columns = _refresh(left, q_left), _refresh(right, q_right)
            squares.copy_(squares[rows][:, columns])
        return update


def _eigenvectors(matrix: Tensor) -> Tensor:
    """Return the eigenvectors (n, n) of a symmetric matrix in columns, from the largest eigenvalue to the smallest."""
    finite = matrix.nan_to_num(0.0, 0.0, 0.0)  # eigh raises an error for others, before the loss shows that the run diverged
    return torch.linalg.eigh(finite)[1].flip(1).contiguous()


def _refresh(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Move approximate eigenvectors (n, n) in place towards the exact ones of a symmetric matrix, as in algorithm 4.

    Returns:
        The order (n,) in which the columns were taken, from the largest approximate eigenvalue to the smallest.
    """
    powers = matrix @ vectors
    order = (vectors * powers).sum(0).argsort(descending=True, stable=True)
    vectors.copy_(torch.linalg.qr(powers[:, order])[0])
    return order
