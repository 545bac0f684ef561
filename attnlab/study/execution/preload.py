"""Imports of the server that runs are forked from: what training needs, and the module in which each run's process starts."""

import gc

import attnlab.training.preload  # noqa: F401 first: it collects no garbage while it imports torch

# isort: split
import attnlab.study.execution.child  # noqa: F401

gc.freeze()
