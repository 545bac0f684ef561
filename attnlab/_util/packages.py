"""Packages that only some studies and commands need, and the extra of attnlab that installs each."""

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from attnlab.errors import UserError


class Optional(NamedTuple):
    """A package of an extra, and a limit of its wheels or ""."""

    package: str
    extra: str
    limit: str = ""


OPTIONAL = {  # by the module that attnlab, or a package that it starts, imports
    "flask": Optional("mlflow", "ui"),  # of MLflow's server; mlflow-skinny, which attnlab requires, has all but the server
    "matplotlib": Optional("matplotlib", "paper"),
    "optuna_dashboard": Optional("optuna-dashboard", "dashboard"),
    "psycopg": Optional("psycopg", "postgres"),
    "sacrebleu": Optional("sacrebleu", "text"),
    "sklearn": Optional("scikit-learn", "text"),
    "submitit": Optional("submitit", "slurm"),
    "tensorboard": Optional("tensorboard", "export"),
    "tokenizers": Optional("tokenizers", "text"),
    "typst": Optional("typst", "paper"),
    "wandb": Optional("wandb", "export"),
    "xformers": Optional("xformers", "xformers", "it has wheels for Linux on x86-64 only"),
}


def missing(*modules: str) -> str | None:
    """Return how to install the first of these modules that is not installed, or None.

    Args:
        modules: keys of ``OPTIONAL``.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            package, extra, limit = OPTIONAL[module]
            return f"requires {package}, which is not installed: pip install 'attnlab[{extra}]'" + (limit and f" ({limit})")
    return None


def require(what: str, *modules: str, where: str = "") -> None:
    """Raise ``UserError`` when one of the modules that ``what`` needs is not installed."""
    if reason := missing(*modules):
        raise UserError(f"{what} {reason}", where)


def version_of(package: str) -> str:
    """Return the version of an installed package, or "" when it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
