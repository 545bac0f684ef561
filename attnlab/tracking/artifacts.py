"""Results that accompany a study's runs in MLflow: reference scores, attention maps and scores of items.

- The inputs of a run are params, data sets, and the configuration as files.
- The weights of the runs that others start from are artifacts, so that machines without a common folder of runs share them.
- Reference scores (chance, gzip, n-grams, ...) are tags of the experiment. They are not runs: they have no seed, variant or
  curve, and code that lists runs need not exclude them.
- Attention maps are an artifact of a run, with a tag that says whether the run has any.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from attnlab._util.files import describe_error
from attnlab._util.metrics import ITEMS_FILE
from attnlab.config.run import PARTS, RunConfig
from attnlab.errors import UserError
from attnlab.tracking.client import connect, log_batch, runs_folder, search_runs
from attnlab.tracking.record import MAPS_TAG, REFERENCE_SCORE, RunRecord, entries
from attnlab.tracking.runs import find_experiment
from attnlab.tracking.tags import owner_id, run_params

if TYPE_CHECKING:
    import numpy
    import pandas
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput

    from attnlab.planning.plan import Run

FILES = ("model.safetensors", "config.json", "task.json", "result.json")  # the last one is written last, as by the run itself
ARTIFACTS = "weights"  # folder of the artifacts
ORIGIN = "fetched_from"  # file in a run's folder: the id of the MLflow run that its weights were fetched from
SPLITS = ("train", "valid", "test")
DIGEST_LIMIT = 36  # characters of a data set's digest in MLflow
MAPS_FILE = "attention.npz"


@dataclass(frozen=True)
class ReferenceScore:
    """A reference score on the test split of one task.

    It is comparable with the runs that have the same task, text and limit.

    Attributes:
        task: the task's name with the options that affect the value.
        data: identity of the task's data, without a vocabulary of subwords.
        limit: ``evaluate.test_limit``.
        seconds: time it took to compute.
        about: one-line description.
    """

    name: str
    task: str
    data: str
    limit: int | None
    metric: str
    value: float
    seconds: float
    about: str

    @property
    def tag(self) -> str:
        """Name of the experiment tag; equal for the same reference on the same test data."""
        identity = json.dumps([self.name, self.task, self.data, self.limit])
        return REFERENCE_SCORE + hashlib.sha256(identity.encode()).hexdigest()[:12]


def write_reference_scores(
    client: MlflowClient, experiment_id: str, scores: Sequence[ReferenceScore], *, partial: bool = False
) -> None:
    """Record reference scores, replacing earlier ones; ``partial`` keeps earlier scores that are not in ``scores``."""
    old = client.get_experiment(experiment_id).tags
    new = {score.tag: json.dumps(asdict(score)) for score in scores}
    stale = {} if partial else dict.fromkeys(entries(old, REFERENCE_SCORE).keys() - new.keys(), "")
    for key, value in {**new, **stale}.items():  # not every store can delete a tag
        if old.get(key) != value:
            client.set_experiment_tag(experiment_id, key, value)


def read_reference_scores(client: MlflowClient, experiment_id: str) -> list[ReferenceScore]:
    """Return the recorded reference scores, sorted by task, limit and value."""
    recorded = entries(client.get_experiment(experiment_id).tags, REFERENCE_SCORE).values()
    return sorted((ReferenceScore(**fields) for fields in recorded), key=lambda s: (s.task, s.limit or 0, s.value))


@dataclass(frozen=True)
class AttentionMap:
    """The softmax weights of one input in one trained model, or the reason why the model has none.

    Attributes:
        weights: float16 array of shape (layers, heads, t, s), of t queries over s keys, or None.
        words: the tokens of the queries.
        reason: why ``weights`` is None.
        run, cell: names of the run and its cell.
        part: of an encoder-decoder, ``encoder``, ``decoder`` or ``cross``; else "".
        keys: the tokens of the keys; () where they equal the queries' tokens.
    """

    weights: Any = None
    words: tuple[str, ...] = ()
    reason: str = ""
    run: str = ""
    cell: str = ""
    part: str = ""
    keys: tuple[str, ...] = ()


def log_attention_maps(run_id: str, maps: Sequence[AttentionMap], *, root: str | Path | None = None) -> None:
    """Attach the attention maps of all parts of a model to a run's record, replacing earlier ones."""
    import numpy

    client = connect(runs_folder(root))
    for map_ in maps:
        if map_.reason:
            continue
        words, keys = (numpy.array(tokens, dtype=str) for tokens in (map_.words, map_.keys))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _of_part(MAPS_FILE, map_.part)
            numpy.savez_compressed(path, weights=map_.weights, words=words, keys=keys)
            client.log_artifact(run_id, str(path))
    reasons = {_of_part(MAPS_TAG, map_.part): map_.reason for map_ in maps}
    earlier = client.get_run(run_id).data.tags
    for part in ("", *PARTS):
        tag = _of_part(MAPS_TAG, part)
        if tag in reasons:
            client.set_tag(run_id, tag, reasons[tag])
        elif tag in earlier:
            client.delete_tag(run_id, tag)


def _of_part(name: str, part: str) -> str:
    """Return the name of the file or the tag of one part of a model, as in ``attention-cross.npz``."""
    stem, dot, suffix = name.partition(".npz")
    return f"{stem}-{part}{dot}{suffix}" if part else name


def load_attention_maps(study: str, root: str | Path | None = None) -> list[AttentionMap]:
    """Return the attention maps of a study's current runs, including those that only hold a reason."""
    client = connect(runs_folder(root))
    experiment = client.get_experiment_by_name(study)
    maps = []
    for record in search_runs(client, experiment.experiment_id) if experiment else ():
        if not record.is_current:
            continue
        for part in ("", *PARTS):
            reason = record.tags.get(_of_part(MAPS_TAG, part))
            if reason is None:
                continue
            run, cell = record.name, record.cell
            if reason:
                maps.append(AttentionMap(reason=reason, run=run, cell=cell, part=part))
                continue
            with tempfile.TemporaryDirectory() as folder:
                path = Path(client.download_artifacts(record.run_id, _of_part(MAPS_FILE, part), folder))
                try:
                    maps.append(AttentionMap(**_read_map(path), run=run, cell=cell, part=part))
                except ValueError as error:  # its image alone is lost
                    maps.append(AttentionMap(reason=f"{path.name} cannot be read: {error}", run=run, cell=cell, part=part))
    return maps


def _read_map(path: Path) -> dict[str, Any]:
    """Return the weights, the words and the keys of a file; raise `ValueError` if they are no map."""
    texts = ("words", "keys")
    arrays = read_arrays(path, {"weights": ("f", 4), **dict.fromkeys(texts, ("U", 1))}, optional=texts)
    if not arrays["weights"].size:
        raise ValueError(f"expected weights, got an array of shape {arrays['weights'].shape}")
    return {"weights": arrays["weights"], **{name: tuple(arrays[name].tolist()) for name in texts if name in arrays}}


def log_run_inputs(client: MlflowClient, run_id: str, run: Run, study_text: str) -> None:
    """Log the params, data sets and configuration (JSON) of a run, and its study (YAML). A repeated call changes nothing."""
    log_batch(client, run_id, params=run_params(run))
    if isinstance(run.settings, RunConfig):  # the data of a program are not known
        client.log_inputs(run_id, run_datasets(run))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(run.settings.to_json(), encoding="utf-8")
        (Path(folder) / "study.yaml").write_text(study_text, encoding="utf-8")
        client.log_artifacts(run_id, folder)


def run_datasets(run: Run) -> list[DatasetInput]:
    """Return the splits of a run's task as MLflow's data sets; their digest is computed from the identity of the task's data.

    The split is a part of the name, because MLflow keeps one data set of a run for each name and digest.
    """
    task, identity = run.config.task, str(run.config.data)
    source = json.dumps({"tags": {"task": task.label, "data": identity}})
    digest = hashlib.sha256(identity.encode()).hexdigest()[:DIGEST_LIMIT]
    return [dataset_input(f"{task.name}/{split}", digest, source, split, run.cell.data_sizes) for split in SPLITS]


def dataset_input(name: str, digest: str, source: str, context: str, sizes: str) -> DatasetInput:
    """Return a data set as MLflow's `CodeDatasetSource` with its number of rows or bytes.

    Args:
        source: of the data set, as JSON.
        context: the split.
        sizes: of all splits, as `RunRecord.data_sizes`.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    size = re.search(rf"\b{re.escape(context)} ([\d,]+) (\w+)", sizes) if context else None
    profile = json.dumps({f"num_{size[2]}": int(size[1].replace(",", ""))}) if size else None
    return DatasetInput(Dataset(name, digest, "code", source, profile=profile), [InputTag("mlflow.data.context", context)])


def log_weights(client: MlflowClient, run_id: str, folder: Path) -> None:
    """Attach the weights, with all that `fetch_weights` copies, to the record of a run, if it left any."""
    for name in FILES if (folder / FILES[0]).is_file() else ():
        client.log_artifact(run_id, str(folder / name), ARTIFACTS)


def fetch_weights(record: RunRecord, folder: Path, *, root: Path) -> None:
    """Copy the weights of a run that was trained from another folder of runs to its folder in this one, unless they are there.

    Args:
        record: of the run, completed.
        folder: of the run, under ``root``.

    Raises:
        UserError: the record has no weights, or they cannot be fetched or written.
    """
    run_id, origin = record.run_id, folder / ORIGIN
    if record.owner == owner_id(root):
        return
    if origin.is_file() and origin.read_text(encoding="utf-8") == run_id:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            client = connect(root)
            fetched = [client.download_artifacts(run_id, f"{ARTIFACTS}/{name}", temporary) for name in FILES]
            origin.unlink(missing_ok=True)
            for path, name in zip(fetched, FILES, strict=True):
                shutil.move(path, folder / name)
        origin.write_text(run_id, encoding="utf-8")
    except Exception as error:  # of MLflow, of its artifact store, or of the disk
        raise UserError(f"the weights of {record.name} cannot be fetched: {describe_error(error)}") from error


def load_items(study: str, root: str | Path | None = None) -> pandas.DataFrame:
    """Return the score of each item of ``test`` of each completed run of a study.

    An item is a document, or a segment of a text (for long texts, up to 1,024 groups of consecutive segments). Two runs that
    are tested in the same way have the same items in the same order, so they can be compared item by item.

    Args:
        study: the study's name.
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``./runs``.

    Returns:
        A data frame with one row for each run and item: ``run_id``, ``name``, ``cell``, ``seed``, ``item`` (from 0),
        ``metric``, ``score`` (the mean over the item) and ``count`` (the number of bytes, tokens or documents that the
        mean covers).

    Raises:
        UserError: the study does not exist, or an artifact cannot be read.
    """
    import pandas

    client, records = _records_with_items(study, root)
    columns = ["run_id", "name", "cell", "seed", "item", "metric", "score", "count"]
    frames = [pandas.DataFrame({**dict(record), **_read_items_of(record, client)}, columns=columns) for record in records]
    return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(columns=columns)


def item_reader(study: str, root: str | Path | None = None) -> Callable[[str, str], dict[int, tuple[numpy.ndarray, ...]]]:
    """Return a function of a cell and a metric that reads the scores and counts of the items of each seed.

    It keeps those of two cells, because those of all the runs of a study may need more memory than there is.
    """
    client, records = _records_with_items(study, root)

    @lru_cache(maxsize=2)
    def read(cell: str, metric: str) -> dict[int, tuple[numpy.ndarray, ...]]:
        of_seeds = {record.seed: _read_items_of(record, client) for record in records if record.cell == cell}
        return {seed: (items["score"], items["count"]) for seed, items in of_seeds.items() if items["metric"] == metric}

    return read


def _records_with_items(study: str, root: str | Path | None) -> tuple[MlflowClient, list[RunRecord]]:
    client = connect(runs_folder(root))
    records = search_runs(client, find_experiment(client, study).experiment_id)
    return client, [record for record in records if record.items and record.is_current]


def _read_items_of(record: RunRecord, client: MlflowClient) -> dict[str, Any]:
    """Return the items of a run from its file if this machine has it: MLflow would query its database for each file."""
    address = urlparse(record.artifact_uri)
    path = Path(unquote(address.path)) / ITEMS_FILE
    if address.scheme in ("", "file") and path.is_file():
        return read_items(path, record.name)
    with tempfile.TemporaryDirectory() as copy:
        return read_items(Path(client.download_artifacts(record.run_id, ITEMS_FILE, copy)), record.name)


def read_items(source: Path | bytes, name: str, where: str = ITEMS_FILE) -> dict[str, object]:
    """Return the scores of the items of one run by column.

    Args:
        source: the artifact, or its content.
        name, where: of the run and its file, for the message.

    Raises:
        UserError: the artifact is damaged, or was not written by attnlab.
    """
    import numpy

    try:
        arrays = read_arrays(source, {"score": ("f", 1), "count": ("iuf", 1), "metric": ("U", 0)})
        if len(arrays["score"]) != len(arrays["count"]):
            raise ValueError(f"expected a count for each of {len(arrays['score'])} scores, got {len(arrays['count'])}")
        if not ((arrays["count"] > 0) & (arrays["count"] < 2**31)).all():
            raise ValueError(f"expected counts from 1 to 2^31, got {arrays['count'].min()} to {arrays['count'].max()}")
        metric, score = str(arrays["metric"]), arrays["score"].astype(float)
    except ValueError as error:
        raise UserError(f"cannot read the items of {name}: {error}", where) from error
    return {"item": numpy.arange(len(score)), "metric": metric, "score": score, "count": arrays["count"]}


def read_arrays(
    source: Path | bytes, kinds: Mapping[str, tuple[str, int]], *, optional: Collection[str] = ()
) -> dict[str, numpy.ndarray]:
    """Return arrays of an ``.npz`` file by name, after checking them; loading the file runs no code from it.

    Args:
        source: the file, or its content.
        kinds: name -> the data types that the array may have (``dtype.kind``), and its number of axes.
        optional: names of arrays that may be missing.

    Raises:
        ValueError: the file is damaged, lacks an array, or has another one.
    """
    import numpy

    try:
        with numpy.load(source if isinstance(source, Path) else BytesIO(source), allow_pickle=False) as file:
            arrays = {name: file[name] for name in kinds if name in file or name not in optional}
    except Exception as error:  # any exception of the libraries that read it
        raise ValueError(describe_error(error)) from error
    for name, array in arrays.items():
        types, axes = kinds[name]
        if array.dtype.kind not in types or array.ndim != axes:
            expected = f"expected {name!r} of type {' or '.join(types)} with {axes} axes"
            raise ValueError(f"{expected}, got type {array.dtype} and shape {array.shape}")
    return arrays
