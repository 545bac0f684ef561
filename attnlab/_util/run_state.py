"""The states of a run, as records, results and reports name them."""

from enum import StrEnum


class RunState(StrEnum):
    """Progress or outcome of a run. MLflow's tags and result files store the values."""

    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"  # stopped early by its search
    DIVERGED = "diverged"  # a loss became NaN or infinite
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"  # its study stopped or its parent process died
    REFUSED = "refused"  # the plan does not support its cell


class Reset(StrEnum):
    """The files of an earlier attempt that a run's process removes before it trains."""

    NONE = ""
    RESULT = "result"  # the result and the checkpoints that led to it; checkpoints of an attempt without a result stay
    FOLDER = "folder"  # result, checkpoints and model


WITHOUT_RESULT = frozenset({RunState.FAILED, RunState.TIMED_OUT, RunState.INTERRUPTED})  # the next call trains these again
COUNTS_AS_FAILURE = frozenset({RunState.FAILED, RunState.TIMED_OUT})  # attempts that use up the study's ``retries``
NOT_COMPARED = frozenset(
    {"search", "stage"}
)  # phases of a study whose runs are in no cell: trials, runs that others start from
