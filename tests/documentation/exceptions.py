"""Commands of the documentation that tests do not execute: why, and what is tested in their place -> the commands."""

EXCEPTIONS = {
    "CI executes the target itself; here it must be one of the Makefile": (
        "make benchmarks",
        "make docs",
        "make gpu PYTHON=python3",
        "make package",
        "make quickstart",
        "make test",
    ),
    "downloads 30 packages; here it must be a target of the Makefile": ("make gpu-kit",),
    "installs packages; here the package must have the extra": (
        "pip install .",
        "pip install '.[ui]'",
        "pip install 'attnlab[dashboard]'",
        "pip install 'attnlab[export]'",
        "pip install 'attnlab[paper]'",
        "pip install 'attnlab[postgres]'",
        "pip install 'attnlab[slurm]'",
    ),
    "tests of minutes; here pytest must find some": ("pytest -m exhaustive tests/test_published_patterns.py",),
    "prepares 50,000 reviews for half a minute; here the study is planned": (
        "ATTNLAB_DATA=/path/to/archives attnlab run ablations/imdb-cpu.yaml",
    ),
    "changes the machine or the terminal, or needs an account; nothing is tested": (
        "source .venv/bin/activate",
        "wandb sync",
    ),
}
EXCEPTED = frozenset(command for commands in EXCEPTIONS.values() for command in commands)
