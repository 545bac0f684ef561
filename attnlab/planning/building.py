"""Construct the model of a resolved configuration in the plan: an error of a user's class refuses its cell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attnlab._util.raise_site import describe_error
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.registry import MODELS, POSITIONS, TASKS, VARIANTS


class BuildError(UserError):
    """The model of a configuration cannot be constructed or applied; the message is the reason for a refusal."""


@contextmanager
def build_errors(config: RunConfig) -> Iterator[None]:
    """Turn every exception of the model's classes into a ``BuildError`` that names the line in the user's own file."""
    try:
        yield
    except Exception as error:  # variants, position schemes and models are user code, which may raise anything
        assert config.position is not None  # resolved
        variant, position = VARIANTS.get(config.variant.name), POSITIONS.get(config.position.name)
        model = MODELS.get(TASKS.get(config.task.name).kind)
        raise BuildError(one_line(describe_error(error, variant, position, model))) from error
