"""The contract of position schemes: the built-in ones pass, and each check catches its mutants."""

import pytest

from attnlab.errors import UserError
from attnlab.positions import Position
from attnlab.registry import POSITIONS
from attnlab.testing import CheckResult, check_position
from attnlab.testing.position_checks import POSITION_CHECKS
from tests.mutants.positions import CORRECT, POSITION_MUTANTS, AnyRole, Recency

CASES = [(name, mutant) for name, mutants in POSITION_MUTANTS.items() for mutant in mutants]
NECESSARY = {"Zeros": {"gradients"}, "MixesRows": {"temperature"}, "Counts": {"parts"}}  # checks that detect the same mistake


def failures(scheme: str | type[Position]) -> dict[str, CheckResult]:
    return {result.check: result for result in check_position(scheme) if result.status == "failed"}


@pytest.mark.parametrize("scheme", [*POSITIONS.names(), *CORRECT])
def test_correct_schemes_pass(scheme: str | type[Position]) -> None:
    results = check_position(scheme)
    assert [result.check for result in results] == list(POSITION_CHECKS)
    assert not [result for result in results if result.status == "failed"]
    assert all(result.detail for result in results)


@pytest.mark.parametrize(("name", "mutant"), CASES, ids=lambda value: getattr(value, "__name__", str(value).replace(" ", "_")))
def test_a_mutant_is_caught_by_its_check_alone(name: str, mutant: type[Position]) -> None:
    caught = failures(mutant)
    assert set(caught) - NECESSARY.get(mutant.__name__, set()) == {name}, caught
    assert not caught[name].traceback, "the property must fail, not the scheme raise"
    assert caught[name].detail and caught[name].advice


def test_every_check_has_a_mutant() -> None:
    assert POSITION_MUTANTS.keys() == POSITION_CHECKS.keys()


def test_sizes_options_and_names_are_taken() -> None:
    (result,) = check_position("rotary", heads=5, dim=30, only=["shapes"])
    assert "5 heads of width 6" in result.detail
    results = check_position("rotary", heads=3, dim=21)  # an odd width of a head
    assert {result.status for result in results} == {"refused"} and "even head width" in results[0].detail
    assert check_position("learned", options={"std": 0.5}, only=["shapes"])[0].status == "passed"
    started: list[str] = []
    reported = check_position(Recency, only=["shapes", "state"], start=started.append)
    assert started == [result.check for result in reported] == ["shapes", "state"]


@pytest.mark.parametrize(
    ("scheme", "options", "only", "words"),
    [
        ("rotry", None, None, "did you mean 'rotary'"),
        ("learned", {"sdt": 1.0}, None, "did you mean 'std'"),
        ("learned", {"std": "wide"}, None, "expected a number"),
        ("rotary", None, ["shape"], "did you mean 'shapes'"),
        (POSITION_CHECKS.__class__, None, None, "attnlab.positions.Position"),
    ],
)
def test_invalid_arguments_are_user_errors(scheme: str, options: dict | None, only: list[str] | None, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_position(scheme, options=options, only=only)


def test_an_exception_names_the_line_of_the_scheme() -> None:
    class Raises(AnyRole):
        def distance(self, t: int, s: int):  # noqa: ANN202
            raise ValueError("no distance")

    (result,) = check_position(Raises)
    assert result.check == "shapes" and "no distance (test_position_contract.py:" in result.detail
