"""Tests of optimizers of matrices and of cautious weight decay, against their formulas written out in float64."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from attnlab import plan
from attnlab.training.matrix_optimizers import SOAP, MatrixOptimizer, Muon, NorMuon, orthogonalize
from attnlab.training.optim import build_optimizer
from tests.support.small_runs import tiny

Matrix = NDArray[numpy.float64]
SHAPES = [(3, 5), (5, 3)]
STEPS = 8


def gradients(shape: tuple[int, ...], *, steps: int = STEPS) -> list[Matrix]:
    random = numpy.random.default_rng(5)
    mixing = random.normal(size=(shape[0], shape[0]))  # rows of unequal sizes, which depend on each other
    return [mixing @ random.normal(size=shape) * (1 + step) for step in range(steps)]


def trajectory(cls: type[MatrixOptimizer], gradients: list[Matrix], start: Matrix, **options: Any) -> list[Matrix]:
    """Return the matrix after each step of an optimizer, in float64."""
    weight = nn.Parameter(torch.tensor(start))
    optimizer = cls([{"params": [weight], "hidden": True}], **options)
    path = []
    for gradient in gradients:
        weight.grad = torch.tensor(gradient)
        optimizer.step()
        path.append(weight.detach().numpy().copy())
    return path


def newton_schulz(matrix: Matrix) -> Matrix:
    """Newton-Schulz iterations change singular values alone: s <- a s + b s^3 + c s^5."""
    u, s, v = numpy.linalg.svd(matrix, full_matrices=False)
    s = s / numpy.linalg.norm(matrix)
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    return (u * s) @ v


def normuon(gradients: list[Matrix], start: Matrix, *, lr: float, decay: float, nesterov: bool) -> list[Matrix]:
    """Algorithm 1 of Li et al. 2025, one row at a time."""
    weight, average = start.copy(), numpy.zeros_like(start)
    squares, path = [0.0] * len(start), []
    for gradient in gradients:
        average = 0.95 * average + 0.05 * gradient
        update = newton_schulz(0.05 * gradient + 0.95 * average if nesterov else average)
        for i in range(len(update)):
            squares[i] = 0.95 * squares[i] + 0.05 * float(numpy.mean(update[i] ** 2))
            update[i] = update[i] / (squares[i] ** 0.5 + 1e-8)
        rms = float(numpy.mean(update**2)) ** 0.5
        weight = weight - lr * decay * weight - 0.2 * lr * update / rms
        path.append(weight)
    return path


def soap(gradients: list[Matrix], start: Matrix, *, lr: float, decay: float, frequency: int) -> list[Matrix]:
    """Algorithm 3 of Vyas et al. 2024: Adam of the flattened matrix, in a basis that is a Kronecker product."""
    m, n = start.shape
    weight, average, squares = start.flatten(), numpy.zeros(m * n), numpy.zeros(m * n)
    left, right = (0.1 * g for g in (gradients[0] @ gradients[0].T, gradients[0].T @ gradients[0]))
    bases = [numpy.linalg.eigh(matrix)[1][:, ::-1] for matrix in (left, right)]
    weight = weight - lr * decay * weight  # no update in the first step
    path = [weight.reshape(m, n)]
    for t, gradient in enumerate(gradients[1:], start=1):
        basis = numpy.kron(*bases)  # of flattened matrices: (Q_L x Q_R)' vec(G) = vec(Q_L' G Q_R)
        average = 0.8 * average + 0.2 * gradient.flatten()
        squares = 0.9 * squares + 0.1 * (basis.T @ gradient.flatten()) ** 2
        adam = basis.T @ average / (1 - 0.8**t) / (numpy.sqrt(squares / (1 - 0.9**t)) + 1e-8)
        weight = weight - lr * decay * weight - lr * basis @ adam
        left = 0.9 * left + 0.1 * gradient @ gradient.T
        right = 0.9 * right + 0.1 * gradient.T @ gradient
        if t % frequency == 0:
            orders = []
            for i, matrix in enumerate((left, right)):
                power = matrix @ bases[i]
                orders.append(numpy.argsort(-numpy.einsum("ij,ij->j", bases[i], power), kind="stable"))
                power = power[:, orders[i]]
                upper = numpy.linalg.cholesky(power.T @ power).T  # Q of power = QR, where R'R is power' power
                bases[i] = power @ numpy.linalg.inv(upper)
            squares = squares.reshape(m, n)[numpy.ix_(*orders)].flatten()
        path.append(weight.reshape(m, n))
    return path


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nesterov", [True, False])
def test_normuon_is_algorithm_1(shape: tuple[int, int], nesterov: bool) -> None:
    start = numpy.random.default_rng(1).normal(size=shape)
    expected = normuon(gradients(shape), start, lr=0.1, decay=0.3, nesterov=nesterov)
    got = trajectory(NorMuon, gradients(shape), start, lr=0.1, weight_decay=0.3, nesterov=nesterov)
    assert numpy.allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("shape", [(3, 4), (4, 3)])
@pytest.mark.parametrize("frequency", [1, 3])
def test_soap_is_algorithm_3(shape: tuple[int, int], frequency: int) -> None:
    start, steps = numpy.random.default_rng(1).normal(size=shape), gradients(shape)
    steps[0][:] = [[1.0 + i + 3 * j + (i * j) % 2 for j in range(shape[1])] for i in range(shape[0])]
    expected = soap(steps, start, lr=0.1, decay=0.3, frequency=frequency)
    options = {"soap_betas": (0.8, 0.9), "precondition_frequency": frequency}
    got = trajectory(SOAP, steps, start, lr=0.1, weight_decay=0.3, **options)
    assert numpy.allclose(got[0], start * (1 - 0.03))
    assert numpy.allclose(got, expected, rtol=1e-7, atol=1e-9)


def test_soap_does_not_depend_on_a_rotation_of_inputs_and_outputs_as_adam_does() -> None:
    random = numpy.random.default_rng(2)
    u, v = (numpy.linalg.qr(random.normal(size=(4, 4)))[0] for _ in range(2))
    start, steps = random.normal(size=(4, 4)), gradients((4, 4))
    plain = trajectory(SOAP, steps, start, lr=0.1, precondition_frequency=1)
    turned = trajectory(SOAP, [u @ step @ v for step in steps], u @ start @ v, lr=0.1, precondition_frequency=1)
    assert numpy.allclose(turned, [u @ weight @ v for weight in plain], atol=1e-6)


def test_an_update_of_muon_is_nearly_orthogonal_and_has_the_size_of_adamw_s() -> None:
    weight = nn.Parameter(torch.zeros(24, 40))
    optimizer = Muon([{"params": [weight], "hidden": True}], lr=0.1, weight_decay=0.0)
    weight.grad = torch.randn(24, 40, generator=torch.Generator().manual_seed(1))
    optimizer.step()
    update = weight.detach() / (0.1 * 0.2 * 40**0.5)
    singular = torch.linalg.svdvals(update)
    assert (singular > 0.5).all() and (singular < 1.5).all()
    assert 0.1 < weight.square().mean().sqrt() / 0.1 < 0.3, "AdamW's is between 0.2 and 0.4 (Liu et al. 2025)"
    ours = orthogonalize(weight.grad)
    assert (update + ours).square().mean() < 0.05**2 * ours.square().mean(), "the same iterations, rounded to bfloat16"


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(2)
    return [nn.Parameter(torch.randn(4, 4, generator=generator)), nn.Parameter(torch.randn(4, generator=generator))]


def step(optimizer: torch.optim.Optimizer, own: list[nn.Parameter], seed: int) -> None:
    for p in own:
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(seed))
    optimizer.step()


@pytest.mark.parametrize("cls", [Muon, NorMuon, SOAP])
def test_an_optimizer_shares_state_with_its_parts_after_loading(cls: Callable[..., MatrixOptimizer]) -> None:
    def make(own: list[nn.Parameter]) -> MatrixOptimizer:
        return cls([{"params": own[:1], "hidden": True}, {"params": own[1:], "hidden": False}], lr=0.1)

    first = parameters()
    optimizer = make(first)
    step(optimizer, first, 3)
    second = [nn.Parameter(p.detach().clone()) for p in first]
    other = make(second)
    other.load_state_dict(deepcopy(optimizer.state_dict()))
    for seed in (4, 5):
        step(optimizer, first, seed)
        step(other, second, seed)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert len(other.state_dict()["state"]) == 2


@pytest.mark.parametrize("cls", [NorMuon, SOAP])
def test_a_matrix_without_gradients_stays_finite_and_one_with_nan_gradients_becomes_nan(cls: Any) -> None:
    """A unit that died, and a run that diverged, which its loss must show."""
    for value, finite in ((0.0, True), (float("nan"), False)):
        weight = nn.Parameter(torch.ones(3, 4))
        optimizer = cls([{"params": [weight], "hidden": True}], lr=0.1)
        for _ in range(3):
            weight.grad = torch.full((3, 4), value)
            optimizer.step()
        assert bool(weight.isfinite().all()) is finite


# ---------------------------------------------------------------- cautious weight decay


@pytest.mark.parametrize("name", ["adamw", {"name": "adam", "decoupled_weight_decay": True}, "muon", "normuon", "soap"])
def test_cautious_decay_follows_the_update_where_it_moves_a_weight_towards_zero(name: Any) -> None:
    """The updates of these optimizers do not depend on weights, so that a run without decay gives them."""
    lr, decay = 0.05, 0.5

    def run(**fields: Any) -> list[dict[str, torch.Tensor]]:
        config = tiny(train__optimizer=name, train__lr=lr, **{f"train__{key}": value for key, value in fields.items()})
        model = nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(6, 4)]), "head": nn.Linear(4, 3)}).double()
        random = torch.Generator().manual_seed(0)
        for p in model.parameters():
            p.data = torch.randn(p.shape, generator=random, dtype=torch.float64)
        optimizer = build_optimizer(model, config.train)
        path = [{key: value.clone() for key, value in model.state_dict().items()}]
        for _ in range(6):
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=random, dtype=torch.float64)
            optimizer.step()
            path.append({key: value.clone() for key, value in model.state_dict().items()})
        return path

    plain, cautious = run(weight_decay=0.0), run(weight_decay=decay, cautious_decay=True)
    spared = decayed = 0
    for key, start in plain[0].items():
        x = start.clone()
        for before, after in zip(plain, plain[1:], strict=False):
            move = after[key] - before[key]
            for i in range(x.numel()):
                own = x.view(-1)[i]
                towards_zero = move.view(-1)[i] * own <= 0
                shrinks = x.dim() == 2 and bool(towards_zero)
                spared, decayed = spared + (not shrinks), decayed + shrinks
                x.view(-1)[i] = own + move.view(-1)[i] - (lr * decay * own if shrinks else 0.0)
        assert torch.allclose(cautious[-1][key], x, rtol=0, atol=1e-9), key
    assert spared and decayed


def test_cautious_decay_without_decay_or_as_the_default_changes_nothing() -> None:
    base = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 16, "heads": 2}, "train": {"steps": 3}}
    study = {"study": "s", "base": {**base, "variant": "dense"}, "grid": {"train.cautious_decay": [False, True]}}
    assert len(plan(study).cells) == 2
    study["base"]["train"] = {"steps": 3, "weight_decay": 0.0}
    dead = plan(study)
    assert any("cautious_decay" in note and "weight_decay is 0" in note for note in dead.notes)
    config = tiny()
    assert config.replace({"train.cautious_decay": True}).fingerprint() != config.fingerprint()
