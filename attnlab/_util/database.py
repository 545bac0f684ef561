"""Addresses of shared databases: conversion of a user's address to one that SQLAlchemy opens with the installed driver."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attnlab._util.files import causes, describe_disk_error, describe_error
from attnlab._util.packages import require
from attnlab.errors import UserError

if TYPE_CHECKING:
    from sqlalchemy import URL

EXPECTED = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
SCHEMES = ("postgresql", "postgres")
CREATION = 0x61_74_74_63  # number of an advisory lock in PostgreSQL: "attc"
DRIVER = "psycopg"  # of the extra "postgres"; the default driver of postgresql:// depends on SQLAlchemy's version


def storage_url(text: str, *, where: str = "--storage") -> str:
    """Return the address with its driver: ``postgresql://...`` -> ``postgresql+psycopg://...``.

    Args:
        text: ``postgresql://``, ``postgres://`` or ``postgresql+DRIVER://`` with at least a database.
        where: the option or key that holds the address, for the message.

    Raises:
        UserError: the address is invalid, or the driver is not installed. The message does not repeat a password.
    """
    url = _parsed(text, where)
    kind, _, driver = url.drivername.partition("+")
    if kind not in SCHEMES:
        raise UserError(f"expected {EXPECTED}, got an address of {kind!r}", where)
    if not url.database:
        raise UserError(f"expected {EXPECTED}, got no database in {url.render_as_string()!r}", where)
    driver = driver or DRIVER
    if driver == DRIVER:
        require("PostgreSQL", DRIVER, where=where)
    elif importlib.util.find_spec(driver) is None:
        raise UserError(f"PostgreSQL requires the driver {driver!r}, which is not installed", where)
    return url.set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)


def is_postgresql(text: str) -> bool:
    """Return True when ``storage_url`` accepts addresses of this scheme."""
    return text.partition(":")[0].partition("+")[0] in SCHEMES


@contextmanager
def one_at_a_time(url: str) -> Iterator[None]:
    """Run the block in one process at a time per database: if two processes create the same tables at once, one fails.

    Args:
        url: as ``storage_url`` returns it; for any other store this does nothing.
    """
    if not is_postgresql(url):
        yield
        return
    from sqlalchemy import NullPool, create_engine, text

    with create_engine(url, poolclass=NullPool).connect() as connection:  # closing it releases the lock, even after a crash
        connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": CREATION})
        yield


def require_apart(storage: str, tracking: str) -> None:
    """Require different databases for Optuna and MLflow: both store their schema version in a table of the same name.

    Raises:
        UserError: the two addresses name the same database.
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


def is_conflict(error: BaseException) -> bool:
    """Return whether another process inserted the same key at the same time: the call sees its row when it is repeated."""
    names = ("UniqueViolation", "SerializationFailure", "DeadlockDetected")  # of PostgreSQL's drivers
    return any(type(cause).__name__ in names or "UNIQUE constraint failed" in str(cause) for cause in causes(error))


def outage(error: BaseException) -> str | None:
    """Return why a database did not respond (a lost connection, a lock), or None when a further attempt cannot help."""
    from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

    if describe_disk_error(error) is not None:
        return None
    for cause in causes(error):
        if name := getattr(cause, "sqlite_errorname", ""):
            return describe_error(cause) if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) else None
    for cause in causes(error):
        if isinstance(cause, DBAPIError) and (
            cause.connection_invalidated or isinstance(cause, (OperationalError, InterfaceError))
        ):
            return describe_error(cause.orig or cause)
    return None
