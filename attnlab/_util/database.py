"""Addresses of shared databases: what a person types, made into what SQLAlchemy opens with the driver that is here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attnlab.errors import UserError

if TYPE_CHECKING:
    from sqlalchemy import URL

EXPECTED = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
SCHEMES = ("postgresql", "postgres")
CREATION = 0x61_74_74_63  # the number of a lock in PostgreSQL: "attc"
DRIVER = "psycopg"  # the extra "postgres"; which one plain postgresql:// means depends on SQLAlchemy's version


def storage_url(text: str, *, where: str = "--storage") -> str:
    """The address with its driver in it: ``postgresql://...`` -> ``postgresql+psycopg://...``.

    Args:
        text: ``postgresql://``, ``postgres://`` or ``postgresql+DRIVER://`` with at least a database.
        where: what to call the place it stands in, for the message.

    Raises:
        UserError: it is no such address, or the driver is not installed. A password in it is not repeated.
    """
    url = _parsed(text, where)
    kind, _, driver = url.drivername.partition("+")
    if kind not in SCHEMES:
        raise UserError(f"expected {EXPECTED}, got an address of {kind!r}", where)
    if not url.database:
        raise UserError(f"expected {EXPECTED}, got no database in {url.render_as_string()!r}", where)
    driver = driver or DRIVER
    if importlib.util.find_spec(driver) is None:
        hint = ": pip install 'attnlab[postgres]'" if driver == DRIVER else ""
        raise UserError(f"PostgreSQL needs the driver {driver!r}, which is not installed{hint}", where)
    return url.set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)


def is_postgresql(text: str) -> bool:
    """Whether an address is one for ``storage_url``."""
    return text.partition(":")[0].partition("+")[0] in SCHEMES


@contextmanager
def one_at_a_time(url: str) -> Iterator[None]:
    """Inside, no other process that shares this database is inside: tables that two create at once fail one of them.

    Args:
        url: as ``storage_url`` returns it; for any other store this does nothing.
    """
    if not is_postgresql(url):
        yield
        return
    from sqlalchemy import NullPool, create_engine, text

    with create_engine(url, poolclass=NullPool).connect() as connection:  # its end, however it ends, gives the lock back
        connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": CREATION})
        yield


def require_apart(storage: str, tracking: str) -> None:
    """Optuna's and MLflow's tables do not go into one database: both keep their version in one of the same name.

    Raises:
        UserError: the two addresses name the same one.
    """
    if not is_postgresql(tracking):
        return
    ours, theirs = _parsed(storage, "--storage"), _parsed(tracking, "MLFLOW_TRACKING_URI")
    if _place(ours) == _place(theirs):
        text = f"expected a database apart from MLflow's, got {ours.database!r} for both"
        raise UserError(f"{text} (CREATE DATABASE makes another)", "--storage")


def _parsed(text: str, where: str) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(text)
    except (ArgumentError, ValueError):  # its message repeats the text, which may hold a password
        raise UserError(f"expected {EXPECTED}, got something that is no address", where) from None


def _place(url: URL) -> tuple[object, ...]:
    return url.host, url.port or 5432, url.database, tuple(sorted(url.query.items()))
