"""Imports of the server from which ``overhead_processes`` forks runs: attnlab's own, and the module that records starts."""

import attnlab.study.execution.preload  # noqa: F401
import benchmarks.overhead_processes  # noqa: F401 registers a function that each forked process calls
