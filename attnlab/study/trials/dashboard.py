"""Optuna's dashboard of the searches of a runs folder."""

from __future__ import annotations

from threading import Thread
from wsgiref.simple_server import make_server

from attnlab._util.packages import require
from attnlab._util.process import as_interrupts
from attnlab.errors import UserError
from attnlab.study.trials.store import Store, shared_storage
from attnlab.tracking.client import runs_folder
from attnlab.tracking.ui import expect_free

HOST = "127.0.0.1"


def serve_dashboard(port: int) -> None:
    """Serve Optuna's dashboard until Ctrl-C and print its address. Optuna owns the queue of runs, too: only look.

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
    with make_server(HOST, port, wsgi(Store(folder, url).rdb)) as server:
        print(f"searches: http://{HOST}:{port}/dashboard/\nPress Ctrl-C to stop.", flush=True)
        try:
            with as_interrupts():  # in a thread of its own: the server would take an interrupt for an error of its page
                thread = Thread(target=server.serve_forever, daemon=True)
                thread.start()
                thread.join()
        except KeyboardInterrupt:
            print()
