"""Optuna's dashboard of the searches of a runs folder, to look at only."""

from __future__ import annotations

import json
import socketserver
from collections.abc import Callable, Collection, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from attnlab._util.packages import require
from attnlab._util.process import as_interrupts
from attnlab.errors import UserError
from attnlab.study.trials.store import Store, shared_storage
from attnlab.tracking.client import runs_folder
from attnlab.tracking.ui import expect_free

HOST = "127.0.0.1"
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def serve_dashboard(port: int) -> None:
    """Serve Optuna's dashboard until Ctrl-C and print its address. Requests that would change a search are rejected.

    `ATTNLAB_RUNS` names the runs folder (default `runs`), and `ATTNLAB_STORAGE` the queue that several machines share.

    Raises:
        UserError: optuna-dashboard is not installed, the folder has no searches, or the port is in use.
    """
    require("Optuna's dashboard", "optuna_dashboard", where="--search")
    from optuna_dashboard import wsgi

    folder, url = runs_folder(None), shared_storage(None)
    if url is None and not (folder / "optuna.db").exists():
        raise UserError(f"no searches in {folder} yet: expected its optuna.db (ATTNLAB_RUNS names another folder)")
    expect_free(HOST, port)
    application = read_only(wsgi(Store(folder, url).rdb), hosts=hosts_of(port))
    with make_server(HOST, port, application, _Server, _Handler) as server:
        print(f"searches: http://{HOST}:{port}/dashboard/\nPress Ctrl-C to stop.", flush=True)
        try:
            with as_interrupts():
                server.serve_forever()
        except KeyboardInterrupt:
            print()


def hosts_of(port: int) -> tuple[str, ...]:
    """Return the values of the Host header in requests of the printed address; browsers leave out the port 80 of HTTP."""
    return tuple(f"{name}{ending}" for name in (HOST, "localhost") for ending in (f":{port}", *([""] if port == 80 else [])))


def read_only(application: Application, *, hosts: Collection[str]) -> Application:
    """Return the application without the requests that change anything: Optuna owns the queue of runs, too.

    Args:
        hosts: the values of the Host header to answer. A page of another site with a name that resolves to this machine
            (DNS rebinding) sends another one.
    """

    def reading(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("HTTP_HOST", "").lower() not in hosts:
            reason = "expected the address that attnlab printed"
        elif environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return application(environ, start_response)
        else:
            reason = "attnlab serves this page to look at only"
        start_response("403 Forbidden", [("Content-Type", "application/json")])
        return [json.dumps({"reason": reason}).encode()]

    return reading


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Print no line for each request."""
