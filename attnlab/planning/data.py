"""The data of the cells of a plan: sizes of splits, and what the tasks say about them."""

from collections.abc import Sequence
from contextlib import suppress

from attnlab.errors import UserError
from attnlab.planning.matching import CellPair
from attnlab.tasks import SPLITS


def data_sizes(cells: Sequence[CellPair]) -> dict[str, str]:
    """Return the number of items of each split as text, by the name of the cell; nothing of tasks that do not know it."""
    sizes: dict[str, str] = {}
    for cell, resolution in cells:
        with suppress(Exception):  # any exception: the task may be the user's own, and later steps report its errors
            task, evaluate = resolution.task, resolution.config.evaluate
            limits = {"valid": evaluate.valid_limit, "test": evaluate.test_limit if evaluate.test else 0}
            noun = getattr(task, "text_unit", "row")
            counts = {split: size for split in SPLITS if (size := task.split_size(split)) is not None}
            texts = [_size_text(split, size, limits.get(split), noun) for split, size in counts.items()]
            texts += [f"{task.classes} classes"] if task.classes else []
            sizes[cell.name] = ", ".join(texts)
    return sizes


def _size_text(split: str, size: int, limit: int | None, noun: str) -> str:
    scored = "" if limit == 0 or split == "train" else " (all scored)" if (limit or size) >= size else f" ({limit:,} scored)"
    return f"{split} {size:,} {noun}s{scored}"


def data_notes(cells: Sequence[CellPair]) -> dict[str, tuple[str, ...]]:
    """Return the notes of each cell's task on its data, by the name of the cell.

    Raises:
        UserError: the method ``data_notes`` of a user's task failed.
    """
    notes: dict[tuple[str | None, str], tuple[str, ...]] = {}  # of several cells: by their data and the options of their task
    keys = {cell.name: (resolution.config.data, resolution.config.task.model_dump_json()) for cell, resolution in cells}
    for cell, resolution in cells:
        if resolution.refusal is None and (key := keys[cell.name]) not in notes:
            try:
                notes[key] = tuple(resolution.task.data_notes())
            except UserError as error:
                raise UserError(error.message, error.where or cell.where("task")) from error
            except Exception as error:  # any exception: the task may be the user's own
                message = f"task {resolution.config.task.label}: data_notes() failed: {type(error).__name__}: {error}"
                raise UserError(message, cell.where("task")) from error
    return {cell.name: notes[keys[cell.name]] for cell, resolution in cells if resolution.refusal is None}
