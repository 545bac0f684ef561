"""Check that an attention variant is correct, and measure its cost.

``check`` tests a class of any kind, built in or not. For a variant it tests the contract of ``attnlab.variants.Variant``,
for example shapes, causality and gradients. ``bench`` measures time and memory of single layers next to ``dense``.

    >>> from attnlab.testing import check
    >>> [result] = check("dense", position="rotary", roles=["causal"], only=["causality by gradient"])
    >>> result.status
    'passed'

On the command line: ``attnlab check`` and ``attnlab bench``.
"""

from attnlab.testing.benchmark.layer import BenchCase, LayerConfig
from attnlab.testing.benchmark.suite import BenchConfig, BenchResult, bench
from attnlab.testing.checks import CHECKS
from attnlab.testing.contract import CheckResult, CheckResults, check_component, check_variant
from attnlab.testing.dispatch import check
from attnlab.testing.other_contracts import check_model, check_position, check_task

__all__ = [
    "CHECKS",
    "BenchCase",
    "BenchConfig",
    "BenchResult",
    "CheckResult",
    "CheckResults",
    "LayerConfig",
    "bench",
    "check",
    "check_component",
    "check_model",
    "check_position",
    "check_task",
    "check_variant",
]
