"""The costs of models, traced once for each distinct shape of a model.

A model is constructed for its trace. An error of a user's class in its construction refuses the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from attnlab._util.raise_site import describe_error
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.models.base import model_class
from attnlab.models.parts import parts
from attnlab.tasks import Task

# Sections and fields of a run that affect no cost of its model, but for the precision, which decides the bytes of its cache.
COSTLESS = {"train", "evaluate", "machine", "seed"}


class BuildError(UserError):
    """The model of a configuration cannot be constructed or applied; the message is the reason for a refusal."""


@contextmanager
def build_errors(config: RunConfig, task: Task) -> Iterator[None]:
    """Turn every exception of the model's classes into a ``BuildError`` that names the line in the user's file."""
    try:
        yield
    except Exception as error:  # variants, position schemes and models are user code, which may raise anything
        classes = [cls for part in parts(config, task) for _, cls in part.classes]
        raise BuildError(one_line(describe_error(error, *classes, model_class(config, task)))) from error


class Traces:
    """The parameters and FLOPs of models. Configurations that differ only in ``COSTLESS`` fields share one trace.

    Each precision has a trace. One instance serves one plan, because a user's file may change before the next plan.
    """

    def __init__(self) -> None:
        self._known: MutableMapping[tuple[object, ...], dict[str, int] | BuildError] = {}
        self._lengths: dict[tuple[str, str], float | None] = {}

    def figures(self, config: RunConfig, task: Any) -> dict[str, int]:
        """Return ``attnlab.training.costs.plan_figures`` of a configuration.

        Raises:
            BuildError: the model cannot be constructed or applied.
        """
        from attnlab.training.costs import plan_figures

        return self._trace("figures", config, task, lambda: plan_figures(config, task))

    def parameters(self, config: RunConfig, task: Any) -> int:
        """Return the number of parameters, which needs no forward pass; raises as ``figures`` does."""
        from attnlab.training.costs import plan_parameters

        return self._trace("parameters", config, task, lambda: {"parameters": plan_parameters(config, task)})["parameters"]

    def mean_length(self, config: RunConfig, task: Any, split: str) -> float | None:
        """Return ``Task.mean_length``, which may read the prepared data, once for each task and split."""
        key = config.task.model_dump_json(), split
        if key not in self._lengths:
            self._lengths[key] = task.mean_length(split)
        return self._lengths[key]

    def decoding_flops(self, config: RunConfig, task: Any, *, tokens: int, beam: int) -> int:
        """Return ``attnlab.training.costs.decoding_flops``; raises as ``figures`` does."""
        from attnlab.training.costs import decoding_flops

        def trace() -> dict[str, int]:
            return {"flops": decoding_flops(config, task, tokens=tokens, beam=beam)}

        return self._trace(f"decoding {tokens} {beam}", config, task, trace)["flops"]

    def _trace(self, kind: str, config: RunConfig, task: Any, trace: Callable[[], dict[str, int]]) -> dict[str, int]:
        shape = task.kind, task.role, task.length, task.vocabulary, task.classes
        key = kind, shape, config.train.precision, config.model_dump_json(exclude=COSTLESS)
        if key not in self._known:
            try:
                with build_errors(config, task):
                    self._known[key] = trace()
            except BuildError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, BuildError):
            raise known
        return known
