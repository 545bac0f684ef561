"""Checks of the section ``sweep`` against the rest of a study."""

from attnlab.config.axes import text
from attnlab.config.search_checks import check_free_path
from attnlab.config.study import StudyConfig
from attnlab.errors import UserError


def check_sweep(study: StudyConfig) -> None:
    """Check that no value is listed twice, and that neither a search nor the grid sets the swept field.

    Raises:
        UserError: the first mistake, with its place.
    """
    if study.sweep is None:
        return
    if study.search is not None:
        message = "expected one of 'sweep' and 'search', got both: a search chooses a value in each cell, a sweep tries all"
        raise UserError(message, study.where("sweep", key=True))
    path = study.sweep.path
    check_free_path(study, path, section="sweep", place=study.where("sweep", path, key=True))
    values = study.sweep.listed
    for i, value in enumerate(values):
        if value in values[:i]:
            place = study.where("sweep", path, i)
            raise UserError(f"sweep.{path}: expected each value once, got {text(value)} again", place)
