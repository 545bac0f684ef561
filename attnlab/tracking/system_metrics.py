"""Load of the machine during a run, under the names that MLflow's page "System metrics" shows.

The parent of a study reads it, so that no run is slowed down; MLflow's monitor is a thread in each training process.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

PREFIX = "system/"
INTERVAL_SECONDS = 10.0  # MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL overrides it


class SystemMetrics:
    """CPU, memory, and with ``nvidia-ml-py`` GPU utilization of this machine, at intervals.

    ``MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING=false`` switches it off.
    """

    def __init__(self) -> None:
        from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING as ENABLED
        from mlflow.environment_variables import MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL as INTERVAL

        interval = INTERVAL.get()
        self._interval = INTERVAL_SECONDS if interval is None else float(interval)
        self._monitors = _monitors() if ENABLED.get() or not ENABLED.is_set() else []
        self._due = time.monotonic() + self._interval if self._monitors else math.inf
        for monitor in self._monitors:  # utilization is measured from one reading to the next
            monitor.collect_metrics()

    def read(self) -> dict[str, float]:
        """Return the metrics if the interval has passed since the last reading, else an empty dictionary."""
        if time.monotonic() < self._due:
            return {}
        self._due = time.monotonic() + self._interval
        values: dict[str, float] = {}
        for monitor in self._monitors:
            monitor.clear_metrics()
            monitor.collect_metrics()
            values |= {f"{PREFIX}{name}": value for name, value in monitor.aggregate_metrics().items()}
        return values


def _monitors() -> list[CPUMonitor | GPUMonitor]:
    """Return MLflow's monitors that work on this machine."""
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

    try:
        return [CPUMonitor(), GPUMonitor()]
    except (ImportError, RuntimeError):  # no nvidia-ml-py, or no GPU
        return [CPUMonitor()]
