"""Construct the model of a resolved configuration in the plan: an error of a user's class refuses its cell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attnlab._util.raise_site import describe_error
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.models.base import model_class
from attnlab.models.parts import parts
from attnlab.tasks import Task


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
