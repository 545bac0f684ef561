"""What the server that runs are forked from imports before it forks: torch, and whatever training needs.

The collector never looks at these objects again: a run's own look at its own alone is quick, and the pages that
the processes share stay shared (Python's ``gc.freeze`` is made for this).
"""

import gc

gc.disable()

import torch._dynamo  # noqa: E402, F401 counting FLOPs imports it, for a second and a half

import attnlab.training.train  # noqa: E402, F401

gc.freeze()
gc.enable()
