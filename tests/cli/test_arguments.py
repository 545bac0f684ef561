"""What may be typed in which order: an option that takes several words leaves the verb's own arguments alone."""

from typing import Any

import pytest

from attnlab.cli.parser import parser
from attnlab.errors import UserError


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("plan --set train.steps=30 wo.yaml", {"set": ["train.steps=30"], "study": "wo.yaml"}),
        ("plan --set a=1 b=2 --set c=3 wo.yaml --tflops 2", {"set": ["a=1", "b=2", "c=3"], "study": "wo.yaml", "tflops": 2.0}),
        ("run wo.yaml --set a=1 b=2 --only c=x,y d=z", {"set": ["a=1", "b=2"], "only": ["c=x,y", "d=z"]}),
        ("plan --set=a=1 wo.yaml", {"set": ["a=1"], "study": "wo.yaml"}),
        ("plan --set a=1 -- wo.yaml", {"set": ["a=1"], "study": "wo.yaml"}),
        ("run --retry failed timed_out runs/wo.yaml", {"retry": ["failed", "timed_out"], "study": "runs/wo.yaml"}),
        ("train --retry failed variant=no_wo", {"retry": ["failed"], "assignments": ["variant=no_wo"]}),
        ("check --options kernel=2 mamba.py:SSM", {"options": ["kernel=2"], "variant": "mamba.py:SSM"}),
        ("bench --options a=1 b=2 dense wide", {"options": ["a=1", "b=2"], "variants": ["dense", "wide"]}),
        ("submit --slurm account=lab qos=low wo.yaml", {"slurm": ["account=lab", "qos=low"], "study": "wo.yaml"}),
        ("list --imports one.py other.py variants", {"imports": ["one.py", "other.py"], "kind": "variants"}),
        ("runs --where a=1 b<2 --where c!= wo", {"where": ["a=1", "b<2", "c!="], "study": "wo"}),
        ("list --imports one.py", {"imports": ["one.py"], "kind": None}),
        ("plan wo.yaml --set train.steps", {"set": ["train.steps"]}),  # no assignment, which is said where it is read
    ],
)
def test_options_and_arguments_stand_in_any_order(words: str, expected: dict[str, Any]) -> None:
    given = vars(parser().parse_args(words.split()))
    assert {name: given[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("plan --set", "--set: expected at least one argument (see attnlab plan --help)"),
        ("plan --set --tflops 2 wo.yaml", "--set: expected at least one argument"),
        ("plan wo.yaml --port 1", "unrecognized arguments: --port 1 (see attnlab plan --help)"),
        ("submit wo.yaml --slurm account", "expected KEY=VALUE, got 'account'"),
        ("ui --port 99999", "--port: expected a port from 1 to 65535, got '99999'"),
        ("ui --port 0", "--port: expected a port from 1 to 65535, got '0'"),
        ("plan wo.yaml --tflops 0", "--tflops: expected a number above 0, got '0'"),
        ("plan wo.yaml --tflops=-1", "--tflops: expected a number above 0, got '-1'"),
        ("plan wo.yaml --tflops inf", "--tflops: expected a number above 0, got 'inf'"),
        ("generate run --temperature=-1", "--temperature: expected a number of at least 0, got '-1'"),
        ("--nothing", "see attnlab --help"),
    ],
)
def test_a_mistake_points_to_the_help_of_its_verb(words: str, expected: str) -> None:
    with pytest.raises(UserError) as raised:
        parser().parse_args(words.split())
    assert expected in str(raised.value)
