"""Tests of metrics as (sum, count) pairs, and of their names."""

import math

import pytest

from attnlab._util.metrics import Mean, format_metric, merge


def test_batches_of_unequal_size_have_an_exact_mean():
    total = merge([{"accuracy": (3.0, 3)}, {"accuracy": (0.0, 7)}])
    assert total["accuracy"] == (3.0, 10)
    assert total["accuracy"].value == 0.3


def test_names_that_only_some_batches_have():
    total = merge([{"a": (1.0, 2)}, {"b": (5.0, 4)}, {"a": (1.0, 1)}])
    assert total == {"a": (2.0, 3), "b": (5.0, 4)}


def test_nothing_has_no_mean():
    assert math.isnan(Mean().value)
    assert merge([]) == {}


def test_a_mean_adds_and_unpacks():
    total, count = Mean(1.5, 2) + Mean(0.5, 3)
    assert (total, count) == (2.0, 5)


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2.0000"), (0.0, "0.0000"), (2e-9, "2.0e-09"), (-2e-9, "-2.0e-09"), (2e68, "2.0000e+68"), (1.4e6, "1400000.0000")]
    + [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan")],
)
def test_a_metric_has_no_digits_that_mean_nothing(value: float, text: str) -> None:
    assert format_metric(value) == text
