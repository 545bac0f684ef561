"""Imports of the fork server: torch and everything that training needs, loaded before the first run is forked.

``gc.freeze`` excludes these objects from garbage collection: a run's collections visit its own objects only, and memory
pages that the processes share stay shared.
"""

import gc

gc.disable()

import torch._dynamo  # noqa: E402, F401 a step of an optimizer imports it, which takes two seconds

import attnlab.training.train  # noqa: E402, F401

gc.freeze()
gc.enable()
