"""One curve for several cells: a polynomial with a minimum, shifted to the optimum of each cell.

Each cell c has losses ``y[l, s]`` at positions ``x[l]`` (the logarithm of a learning rate) with seeds s. Their means over
seeds are fitted by least squares with

    loss(x) = m_c + k2 (x - x_c)^2 + k3 (x - x_c)^3 + k4 (x - x_c)^4,

where the optimum ``x_c`` and the loss ``m_c`` at the optimum are the cell's own, and the shape (k2, k3, k4) is common to all
cells. With k3 = k4 = 0, the curves are parabolas with one curvature. Curves of learning rates are lopsided: the loss rises
more steeply above the optimum than below. A parabola through a lopsided curve errs by an amount that depends on the distance
of the optimum from the nearest rates, and therefore differs between cells; the higher terms remove that error at almost no
cost in power, because all cells share them. The degree is the smallest one that fits (`ACCEPT`).

A fitted parameter is, to first order, a linear function of the losses. Applied to the losses of one seed it gives one value
per seed, whose mean over seeds is the parameter. Differences between cells can then be tested by a paired t-test over seeds
as if they were measured; the scatter of these values includes that of the shape and of the optimum's position, because both
are fitted to the same losses.

The fit is tested by the F-test for lack of fit: the scatter of the means around the curve against that of the seeds around
the means, with the level of each seed in each cell removed.

References:
    Draper, N. R. and Smith, H. (1998). Applied Regression Analysis, chapters 2 (lack of fit) and 24 (nonlinear). Wiley.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

MAX_DEGREE = 4
ACCEPT = 0.25  # smallest p-value of the test for lack of fit at which a degree is accepted without trying the next one
TOLERANCE = 1e-9  # relative to the range of the losses
RESOLUTION = 200  # positions at which a fitted curve is searched for a lower value than at its optimum


@dataclass(frozen=True)
class CellLosses:
    """The losses of one cell, each position with the same seeds.

    Attributes:
        positions: L positions, ascending.
        losses: L x S losses; lower is better.
        seeds: The S seeds.
    """

    positions: numpy.ndarray
    losses: numpy.ndarray
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class FittedOptimum:
    """The optimum of one cell.

    Attributes:
        position: Position of the optimum.
        loss: Loss at the optimum.
        seed_positions, seed_losses: The contribution of each seed: values whose means are `position` and `loss`.
        inside: The optimum lies within the cell's positions, and the fitted curve is not lower at any other of them.
        misfit: Mean squared distance of the cell's means from the curve, times the number of seeds.
    """

    position: float
    loss: float
    seed_positions: tuple[float, ...]
    seed_losses: tuple[float, ...]
    inside: bool
    misfit: float


@dataclass(frozen=True)
class SharedCurve:
    """A fitted curve.

    Attributes:
        shape: Coefficients of the second and higher powers of the distance from the optimum.
        optima: The optimum of each cell, in the order given.
        p: P-value of the test for lack of fit; None if there is nothing to test it with (one seed, or as many parameters as
            means).
    """

    shape: tuple[float, ...]
    optima: tuple[FittedOptimum, ...]
    p: float | None

    def rise(self, distance: float) -> float:
        """Return the loss above that of the optimum, at a distance from the optimum."""
        return sum(coefficient * distance**power for power, coefficient in enumerate(self.shape, start=2))


def fit_shared_curve(cells: Sequence[CellLosses]) -> SharedCurve | None:
    """Fit one curve to several cells.

    Args:
        cells: Each with at least two positions, and one with at least three.

    Returns:
        The curve of the smallest degree whose test for lack of fit has a p-value of at least `ACCEPT`, or else the one with
        the largest p-value; None if no curve with a minimum fits.
    """
    import numpy

    means = numpy.concatenate([cell.losses.mean(axis=1) for cell in cells])
    offset, scale = float(means.min()), float(numpy.ptp(means))
    if scale <= TOLERANCE * abs(offset):
        return None
    scaled = [CellLosses(cell.positions, (cell.losses - offset) / scale, cell.seeds) for cell in cells]
    parameters, best = _start(scaled), None
    for degree in range(2, min(MAX_DEGREE, max(len(cell.positions) for cell in cells) - 1) + 1):
        parameters = numpy.append(parameters, [0.0] * (2 * len(cells) + degree - 1 - len(parameters)))
        fit = _fit(scaled, parameters)
        if fit is None:
            continue
        parameters, curve = fit
        if curve.p is None or curve.p >= ACCEPT:
            return _rescale(curve, offset, scale)
        best = max(best, curve, key=lambda curve: curve.p or 0.0) if best else curve
    return _rescale(best, offset, scale) if best else None


def _start(cells: Sequence[CellLosses]) -> numpy.ndarray:
    """Return the parameters of the parabolas with one curvature: (loss, position) of each cell's optimum, and the curvature.

    The curvature is the slope of the losses over the squared positions, both without their parts that are linear in position.
    """
    import numpy

    lines, products, squares = [], 0.0, 0.0
    for cell in cells:
        design = numpy.stack([numpy.ones_like(cell.positions), cell.positions], axis=1)
        projection = numpy.linalg.pinv(design)
        square, mean = cell.positions**2, cell.losses.mean(axis=1)
        bend = square - design @ (projection @ square)
        products += len(cell.seeds) * float(bend @ mean)
        squares += len(cell.seeds) * float(bend @ bend)
        lines.append((projection @ mean, projection @ square))
    curvature = max(products / squares, TOLERANCE)
    parameters = []
    for of_loss, of_square in lines:
        level, slope = of_loss - curvature * of_square
        parameters += [level - slope**2 / (4 * curvature), -slope / (2 * curvature)]
    return numpy.array([*parameters, curvature])


def _fit(cells: Sequence[CellLosses], start: numpy.ndarray) -> tuple[numpy.ndarray, SharedCurve] | None:
    """Fit the curve whose parameters are laid out as in `start`; None if the fit does not converge to a minimum."""
    import numpy
    from scipy.optimize import least_squares

    positions, owners, means, weights = _stack(cells)

    def model(parameters: numpy.ndarray) -> numpy.ndarray:
        distance = positions - parameters[1 : 2 * len(cells) : 2][owners]
        return parameters[0 : 2 * len(cells) : 2][owners] + _rise(parameters[2 * len(cells) :], distance)

    def jacobian(parameters: numpy.ndarray) -> numpy.ndarray:
        shape, rows = parameters[2 * len(cells) :], numpy.arange(len(positions))
        distance = positions - parameters[1 : 2 * len(cells) : 2][owners]
        matrix = numpy.zeros((len(positions), len(parameters)))
        matrix[rows, 2 * owners] = 1.0
        matrix[rows, 2 * owners + 1] = -sum(k * c * distance ** (k - 1) for k, c in enumerate(shape, start=2))
        matrix[:, 2 * len(cells) :] = distance[:, None] ** numpy.arange(2, 2 + len(shape))
        return matrix * weights[:, None]

    jac: Any = jacobian
    result = least_squares(lambda p: weights * (model(p) - means), start, jac=jac, method="lm", xtol=1e-12, ftol=1e-12)
    parameters: numpy.ndarray = result.x
    if not result.success or parameters[2 * len(cells)] <= 0:
        return None
    # First-order effect of each mean on each parameter; the weights turn the pseudo-inverse back to unweighted losses.
    effects = numpy.linalg.pinv(jacobian(parameters)) * weights
    residuals = means - model(parameters)
    p = _lack_of_fit(cells, float((weights**2) @ residuals**2), len(means) - len(parameters))
    optima = _optima(cells, parameters, effects, weights**2 * residuals**2)
    return parameters, SharedCurve(tuple(map(float, parameters[2 * len(cells) :])), optima, p)


def _stack(cells: Sequence[CellLosses]) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Return the positions, cells, mean losses and weights (square roots of the numbers of seeds) of all cells in a row."""
    import numpy

    owners = numpy.repeat(numpy.arange(len(cells)), [len(cell.positions) for cell in cells])
    means = numpy.concatenate([cell.losses.mean(axis=1) for cell in cells])
    weights = numpy.sqrt([len(cell.seeds) for cell in cells])[owners]
    return numpy.concatenate([cell.positions for cell in cells]), owners, means, weights


def _rise(shape: Sequence[float] | numpy.ndarray, distance: numpy.ndarray) -> numpy.ndarray:
    import numpy

    return numpy.polynomial.polynomial.polyval(distance, [0.0, 0.0, *shape])


def _lack_of_fit(cells: Sequence[CellLosses], squares: float, parameters_left: int) -> float | None:
    """Return the p-value of the F-test for lack of fit.

    Args:
        cells: The cells.
        squares: Weighted sum of the squared residuals of the means.
        parameters_left: Number of means minus number of parameters.
    """
    import numpy
    from scipy.special import fdtrc

    error, degrees = 0.0, 0
    for cell in cells:
        losses = cell.losses
        scatter = losses - losses.mean(axis=1, keepdims=True) - losses.mean(axis=0, keepdims=True) + losses.mean()
        error += float(numpy.sum(scatter**2))
        degrees += (losses.shape[0] - 1) * (losses.shape[1] - 1)
    if parameters_left <= 0 or degrees == 0:
        return None
    if error <= TOLERANCE**2 * degrees:  # every seed has the same curve
        return 1.0 if squares <= TOLERANCE**2 * parameters_left else 0.0
    return float(fdtrc(parameters_left, degrees, squares / parameters_left / (error / degrees)))


def _optima(
    cells: Sequence[CellLosses], parameters: numpy.ndarray, effects: numpy.ndarray, misfits: numpy.ndarray
) -> tuple[FittedOptimum, ...]:
    """Return the optimum of each cell with the contribution of each of its seeds.

    Args:
        cells: The cells.
        parameters: As in `_start`, P of them.
        effects: P x M derivatives of the parameters by the M means of all cells.
        misfits: M weighted squared residuals.
    """
    import numpy

    deviations = {  # seed -> M deviations of its losses from the means; zero in cells that lack the seed
        seed: numpy.concatenate([_deviation(cell, seed) for cell in cells]) for cell in cells for seed in cell.seeds
    }
    shape, end, optima = parameters[2 * len(cells) :], 0, []
    for i, cell in enumerate(cells):
        loss, position = float(parameters[2 * i]), float(parameters[2 * i + 1])
        changes = numpy.stack([effects[2 * i : 2 * i + 2] @ deviations[seed] for seed in cell.seeds], axis=1)
        low, high = float(cell.positions[0]), float(cell.positions[-1])
        curve = _rise(shape, numpy.linspace(low, high, RESOLUTION) - position)
        start, end = end, end + len(cell.positions)
        optima.append(
            FittedOptimum(
                position,
                loss,
                tuple(map(float, position + changes[1])),
                tuple(map(float, loss + changes[0])),
                inside=low <= position <= high and bool(curve.min() >= -TOLERANCE),
                misfit=float(misfits[start:end].mean()),
            )
        )
    return tuple(optima)


def _deviation(cell: CellLosses, seed: int) -> numpy.ndarray:
    """Return the deviations of one seed's losses from the cell's means, zero if the cell lacks the seed."""
    import numpy

    if seed not in cell.seeds:
        return numpy.zeros(len(cell.positions))
    return cell.losses[:, cell.seeds.index(seed)] - cell.losses.mean(axis=1)


def _rescale(curve: SharedCurve, offset: float, scale: float) -> SharedCurve:
    """Return the curve in the unit of the losses."""
    optima = tuple(
        FittedOptimum(
            optimum.position,
            offset + scale * optimum.loss,
            optimum.seed_positions,
            tuple(offset + scale * loss for loss in optimum.seed_losses),
            optimum.inside,
            scale**2 * optimum.misfit,
        )
        for optimum in curve.optima
    )
    return SharedCurve(tuple(scale * coefficient for coefficient in curve.shape), optima, curve.p)
