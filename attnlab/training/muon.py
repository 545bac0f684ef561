"""Muon for the matrices of the blocks of a model, and AdamW for its other parameters.

Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks", https://kellerjordan.github.io/posts/muon/:
the momentum of a matrix is replaced by the nearest matrix with orthonormal rows or columns. Muon is meant for the matrices of
hidden layers; embeddings, output layers, gains, biases and kernels of convolutions need another optimiser.

Liu et al. 2025, "Muon is Scalable for LLM Training", arXiv:2502.16982, section 2.2, multiply the update of an a x b matrix by
0.2 sqrt(max(a, b)), so that its root mean square is about as large as for AdamW. Muon can then have the learning rate
and the weight decay of AdamW. That is the default here (``adjust_lr_fn: match_rms_adamw``); in ``torch.optim.Muon`` it is not.

Departure: W_Q, W_K and W_V of a variant that projects with one matrix are orthogonalized together.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch


class Muon(torch.optim.Optimizer):
    """``torch.optim.Muon`` and ``torch.optim.AdamW`` as one optimiser.

    Args:
        params: groups with the key ``hidden``, True for the matrices of blocks.
        lr: learning rate of Muon.
        betas: of AdamW.
        weight_decay: of both.
        momentum, nesterov, ns_coefficients, ns_steps, eps, adjust_lr_fn: of Muon, as in ``torch.optim.Muon``.
        adamw_lr_scale: learning rate of AdamW, as a multiple of ``lr``.

    Attributes:
        splits_hidden: True for an optimiser with the key ``hidden`` in its groups.
    """

    splits_hidden: ClassVar[bool] = True

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.1,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        ns_steps: int = 5,
        eps: float = 1e-7,
        adjust_lr_fn: str = "match_rms_adamw",
        adamw_lr_scale: float = 1.0,
    ) -> None:
        muon = {"momentum": momentum, "nesterov": nesterov, "ns_coefficients": ns_coefficients, "ns_steps": ns_steps}
        muon |= {"eps": eps, "adjust_lr_fn": adjust_lr_fn}
        if adamw_lr_scale <= 0:
            raise ValueError(f"expected adamw_lr_scale greater than 0, got {adamw_lr_scale}")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        for group in self.param_groups:
            if not group["hidden"]:
                group["lr_scale"] = group.get("lr_scale", 1.0) * adamw_lr_scale
        hidden, others = self._split()
        self._muon = torch.optim.Muon(hidden, lr=lr, weight_decay=weight_decay, **muon) if hidden else None
        self._adamw = torch.optim.AdamW(others, lr=lr, betas=betas, weight_decay=weight_decay, fused=True) if others else None
        self._share()

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override] as torch's own
        """Update all parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for optimizer in (self._muon, self._adamw):
            if optimizer is not None:
                optimizer.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the state that ``state_dict`` returned."""
        super().load_state_dict(state_dict)
        self._share()

    def _split(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the groups of Muon and the groups of AdamW."""
        hidden = [group for group in self.param_groups if group["hidden"]]
        return hidden, [group for group in self.param_groups if not group["hidden"]]

    def _share(self) -> None:
        """Let both optimisers read and write the groups and the state of this one, which ``state_dict`` returns."""
        for optimizer, groups in zip((self._muon, self._adamw), self._split(), strict=True):
            if optimizer is not None:
                optimizer.param_groups, optimizer.state = groups, self.state
