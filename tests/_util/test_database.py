"""Tests of addresses of a shared storage: accepted ones, refused ones, and that no message repeats a password."""

import importlib.util

import pytest

from attnlab._util.database import require_apart, storage_url
from attnlab.errors import UserError

GOOD = "postgresql://ann:se%2Fcret@db.lab:6000/optuna"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_every_way_to_write_it_names_the_driver(scheme: str) -> None:
    assert storage_url(GOOD.replace("postgresql", scheme)) == "postgresql+psycopg://ann:se%2Fcret@db.lab:6000/optuna"


def test_a_socket_folder_and_options_stay() -> None:
    assert storage_url("postgresql://ann@/optuna?host=/run/pg") == "postgresql+psycopg://ann@/optuna?host=%2Frun%2Fpg"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sqlite:///secret.db", "got an address of 'sqlite'"),
        ("redis://:secret@host", "got an address of 'redis'"),
        ("postgresql://ann:secret@host", r"got no database in 'postgresql://ann:\*\*\*@host'"),
        ("secret", "got something that is no address"),
        ("postgresql://ann:secret@host:port/db", "got something that is no address"),
        ("postgresql+pg9000://ann:secret@host/db", "the driver 'pg9000', which is not installed$"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        storage_url(text)
    assert str(caught.value).startswith("--storage: ") and "secret" not in str(caught.value)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"psycopg.* pip install 'attnlab\[postgres\]'"):
        storage_url(GOOD)


@pytest.mark.parametrize("same", [GOOD, "postgres://bob@db.lab:6000/optuna", "postgresql+psycopg2://db.lab:6000/optuna"])
def test_mlflow_needs_a_database_of_its_own(same: str) -> None:
    with pytest.raises(UserError, match="apart from MLflow's, got 'optuna' for both") as caught:
        require_apart(GOOD, same)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("other", ["http://ann:pw@db.lab:6000/optuna", "sqlite:///a.db", GOOD.replace("optuna", "mlflow")])
def test_another_store_is_apart(other: str) -> None:
    require_apart(GOOD, other)
