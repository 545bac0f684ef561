"""What the commands of each page presuppose: files, recorded studies, names in place of placeholders."""

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import yaml

from attnlab.cli.main import build_parser, main
from attnlab.extras.claims import court
from attnlab.extras.profile import run
from attnlab.extras.profile.run import Ability
from attnlab.extras.sharing.bundle import read_bundle
from attnlab.tasks.archives import ENWIK8
from attnlab.tracking import ui
from tests.documentation.markdown import read_code
from tests.documentation.shell import FEW_BYTES, QUICK, Shell
from tests.support.paths import ROOT
from tests.support.processes import free_port

SMALL = """\
study: projection
base:
  task: {name: pydocs, length: 24}
  position: learned
  model: {dim: 12, depth: 1, heads: 2}
  train: {steps: 2, batch_size: 4, eval_every: 1}
  evaluate: {valid_limit: 500, test_limit: 500}
  machine: {device: cpu}
grid:
  variant: [dense, no_wo]
seeds: 0-1
baseline: {variant: dense}
margin: 0.01
"""
World = Callable[[Shell, pytest.FixtureRequest], None]
WORLDS: dict[str, World] = {}


def world(*pages: str) -> Callable[[World], World]:
    """Register a function that prepares the shell for the pages."""

    def register(prepare: World) -> World:
        WORLDS.update(dict.fromkeys(pages, prepare))
        return prepare

    return register


def with_projection(shell: Shell, request: pytest.FixtureRequest) -> None:
    """Copy the recorded study; the study is small as it stands."""
    shutil.copytree(request.getfixturevalue("recorded"), shell.folder, dirs_exist_ok=True)
    shell.smaller["run"] = QUICK


def with_lab(shell: Shell) -> None:
    """Copy the example that `attnlab init my_lab` writes."""
    shutil.copytree(ROOT / "examples" / "my_lab", shell.folder / "my_lab")


def with_checkout(shell: Shell) -> None:
    """Link the folders that a clone of the repository has."""
    for name in ("ablations", "examples", "tests"):
        (shell.folder / name).symlink_to(ROOT / name)


def with_enwik8(shell: Shell, command: str) -> None:
    """Name the folder of real archives; where it has no enwik8, plan the study that the command runs."""
    archives = Path(os.environ["ATTNLAB_REAL_DATA"])
    if ENWIK8.place(archives).is_file():
        shell.fill["/path/to/archives"] = str(archives)
    else:
        shell.fill[command] = command.partition(" --")[0].replace(" run ", " plan ")


def with_small_profiles(shell: Shell) -> None:
    """Train two diagnostics at one level, for a step, next to one baseline."""
    shell.patch.setattr(run, "BASELINES", ("dense",))
    small = Ability("parity", ({"length": 8},), steps=1), Ability("mqar", ({"pairs": 2, "length": 8},), steps=1)
    shell.patch.setattr(run, "ABILITIES", small)


def with_servers(shell: Shell) -> None:
    """Let the servers of `attnlab ui` end at once: MLflow's process is not started, the dashboard answers no request."""
    from wsgiref.simple_server import WSGIServer

    for name in ("__init__", "ready", "wait", "close"):
        shell.patch.setattr(ui.Server, name, lambda server, *args, **options: None)
    shell.patch.setattr(WSGIServer, "serve_forever", lambda server: None)
    shell.smaller["ui"] = [f"--port={free_port()}"]


def with_benchmarks(shell: Shell) -> None:
    """Let the benchmarks read their arguments, and measure nothing."""
    from benchmarks import variants
    from benchmarks.speed import __main__ as speed
    from benchmarks.verdict import __main__ as verdict

    measured = ((speed, "measure"), (speed.page, "write"), (verdict, "benchmark"), (verdict.page, "write"))
    for module, name in measured:
        shell.patch.setattr(module, name, MagicMock())
    shell.patch.setattr(verdict.tables, "frame", MagicMock())
    shell.patch.setattr(verdict.tables, "table", lambda frame: "")
    shell.patch.setattr(variants, "attnlab", lambda words: build_parser().parse_args(words) and 0)


def code_of(page: str, title: str) -> str:
    """Return the file that another page shows."""
    (text,) = [code.text for code in read_code((ROOT / "docs" / page).read_text(encoding="utf-8")) if code.title == title]
    return text


@world("README.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    shutil.copy(ROOT / "examples" / "my_variant" / "cosine.py", shell.folder)


@world("docs/tutorials.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    with_projection(shell, request)
    shell.fill |= {"STUDY.yaml": "projection.yaml", "STUDY": "projection", "RUN": "projection/dense/0", "TEXT": "'the text'"}
    translation = str(ROOT / "examples" / "my_data" / "my_translation.yaml")
    small = ["--seeds=0", "--only=attention=dense", "--set=train.epochs=0.1", *FEW_BYTES, *QUICK]
    assert main(["run", translation, *small]) == 0
    beam = "attnlab generate RUN --prompt TEXT --beam 5"
    shell.before[beam] = lambda: shell.fill.update(RUN="my-translation/dense/0")


@world("docs/diagnostics.md", "docs/how-to/profile.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    """`--all` are two variants."""
    with_lab(shell)
    with_small_profiles(shell)
    names = run.VARIANTS.names
    shell.patch.setattr(run.VARIANTS, "names", lambda: [name for name in names() if name in ("dense", "basic")])


@world("docs/concepts/memory.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    with_projection(shell, request)
    shell.fill |= {"attnlab bench --decode": "attnlab bench dense --decode"}
    shell.fill |= {"attnlab plan --memory": "attnlab plan projection.yaml --memory"}


@world("docs/concepts/pairing.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    (shell.folder / "reports").symlink_to(ROOT / "reports")


@world("docs/concepts/roles.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    shell.base["base"] = {"task": "multi30k", "variant": "dense"}


@world("docs/how-to/check.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    """Wrong variants fail; libraries that are not installed are a mistake of the command."""
    with_checkout(shell)
    with_lab(shell)
    (shell.folder / "my_lab" / "decay.py").write_text(code_of("how-to/variant.md", "decay.py"), encoding="utf-8")
    for variant in ("dense", "--study ablations/wo.yaml", "torch:nn.MultiheadAttention"):
        shell.smaller[f"attnlab check {variant}"] = ["--only=causality by value"]
    shell.smaller["attnlab check hf:LlamaAttention --options num_key_value_heads=1"] = ["--only=causality by value"]
    shell.exit_codes["attnlab check examples/my_variant/broken.py:Broken"] = 1
    shell.exit_codes["attnlab check tests.mutants.museum:HidesFirstMemory --only memory"] = 1
    fla, x_transformers = (importlib.util.find_spec(name) is not None for name in ("fla", "x_transformers"))
    shell.exit_codes["attnlab check fla:gated_delta_rule"] = 0 if fla else 2
    shell.exit_codes["attnlab check xt:Attention --options orthog_projected_values=true"] = 1 if x_transformers else 2


@world("docs/how-to/claim.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    """The claim of the page, about a small model and with at most three seeds."""
    page = (ROOT / "docs" / "how-to" / "claim.md").read_text(encoding="utf-8")
    (study,) = [yaml.safe_load(code.text) for code in read_code(page) if code.kind == "yaml"]
    path = shell.folder / "ablations" / "claims" / "N06.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump({**study, "base": yaml.safe_load(SMALL)["base"], "seeds": [0, 1]}), encoding="utf-8")
    shell.patch.setattr(court, "MAX_SEEDS", 3)


@world("docs/how-to/cluster.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    """A server of PostgreSQL for both databases, and a queue of Slurm that keeps what is submitted."""
    with_projection(shell, request)
    postgres = request.getfixturevalue("postgres")
    shell.fill["http://tracker:5000"] = postgres.store()
    shell.fill["attnlab merge *.zip"] = "attnlab merge --help"
    shell.fill["postgresql://user:password@host/attnlab"] = postgres.database()
    for name in ("sbatch", "srun"):  # submitit looks for srun
        program = shell.folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\necho Submitted batch job 77\n", encoding="utf-8")
        program.chmod(0o755)
    shell.patch.setenv("PATH", f"{shell.folder / 'bin'}:{os.environ['PATH']}")


@world("docs/how-to/command.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    """A program that prints the metrics of the page, its data and its configurations."""
    page = (ROOT / "docs" / "how-to" / "command.md").read_text(encoding="utf-8")
    (metrics,) = [code.text for code in read_code(page) if not code.kind]
    (shell.folder / "train.py").write_text(f"print({metrics!r})\n", encoding="utf-8")
    for name in ("data/train.csv", "configs/a.yaml"):
        (shell.folder / name).parent.mkdir()
        (shell.folder / name).touch()
    shell.base = yaml.safe_load(code_of("how-to/command.md", "study.yaml"))
    shell.fill["FOLDER"] = "nanogpt"
    shell.smaller["run"] = ["--no-report"]


@world("docs/how-to/data.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    with_enwik8(shell, "attnlab run ablations/enwik8-cpu.yaml")
    with_checkout(shell)
    shell.fill["attnlab run ablations/imdb-cpu.yaml"] = "attnlab plan ablations/imdb-cpu.yaml"
    shell.smaller["run"] += ["--only=variant=dense", "--only=position=rotary", "--set=model.depth=1"]
    text = "".join(f"{number} of many lines\n" for number in range(1_000))
    reviews = "review;opinion\n" + "".join(f"{number} sch\u00f6n;{number % 2}\n" for number in range(100))
    files = {f"{split}.{kind}": text for split in ("train", "valid", "test") for kind in ("txt", "de", "en")}
    files |= {"reviews.csv": reviews, "test.csv": reviews.replace(" ", " mal "), "token_bytes.txt": "1\n" * 50_257}
    for name, content in files.items():
        (shell.folder / name).write_text(content, encoding="latin-1")
    (np.arange(10_000) ** 2 % 991).astype("uint16").tofile(shell.folder / "train.bin")
    np.save(shell.folder / "train.npy", np.fromfile(shell.folder / "train.bin", dtype="uint16"))


@world("docs/how-to/gpu.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    """The study trains on the CPU, the benchmarks read their arguments, and there is no card to check."""
    shell.exit_codes["python -m benchmarks.gpu_check"] = 1
    with_enwik8(shell, "attnlab run ablations/enwik8-headline.yaml --no-reference-scores")
    with_checkout(shell)
    with_benchmarks(shell)
    (shell.folder / "study.yaml").write_text(SMALL, encoding="utf-8")
    on_cpu = {"machine.device": "cpu", "train.compile": "false", "train.precision": "fp32", "model.depth": 1}
    shell.smaller["run"] += [f"--set={key}={value}" for key, value in on_cpu.items()]


@world("docs/how-to/measure.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    with_benchmarks(shell)


@world("docs/how-to/paper.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("typst")
    with_projection(shell, request)


@world("docs/how-to/loop.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    """One seed shows nothing: no cell is better."""
    with_projection(shell, request)
    shell.exit_codes["attnlab run projection.yaml --json --exit-verdict > answer.json"] = 10
    shell.exit_codes['attnlab run projection.yaml --seeds "fresh 6" --exit-verdict'] = 10
    shell.fill["fresh 6"] = "fresh 1"
    for name, losses in (("before", (2.31, 2.35, 2.28)), ("after", (2.25, 2.30, 2.21))):
        rows = "".join(f"{seed},{loss}\n" for seed, loss in enumerate(losses))
        (shell.folder / f"{name}.csv").write_text(f"seed,loss\n{rows}")


@world("docs/how-to/share.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    """Two people have trained a seed each; every folder in which bundles are joined is new."""
    with_projection(shell, request)
    for seed, person in enumerate(("anne", "bob")):
        shell.use_runs(person)
        assert main(["run", "projection.yaml", f"--seeds={seed}", *QUICK]) == 0
        assert main(["bundle", "projection", f"--out={person}.zip"]) == 0
    shell.use_runs("runs")
    shell.fill |= {"0-4": "0-1", "0-19": "0-2", "7643375cabd346fc": read_bundle(Path("anne.zip")).digest[:16]}
    shell.before["attnlab merge anne.zip bob.zip"] = lambda: shell.use_runs("joined")
    shell.before["attnlab merge anne.zip --sha256 7643375cabd346fc"] = lambda: shell.use_runs("checked")
    shell.smaller["attnlab merge anne.zip --sha256 7643375cabd346fc"] = ["--no-report"]
    shell.before["attnlab ui --search"] = lambda: shell.use_runs("runs")
    with_servers(shell)


@world("docs/how-to/mlflow.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    """The address that the page sets is taken back."""
    with_projection(shell, request)
    with_servers(shell)
    shell.patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shell.folder / 'runs' / 'mlflow.db'}")
    assert main(["report", "projection"]) == 0


@world("docs/how-to/trained-model.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    quickstart = str(ROOT / "ablations" / "quickstart.yaml")
    assert main(["run", quickstart, "--only=variant=no_wo", *shell.smaller["run"]]) == 0
    shell.prints += ["torch.Size([1, 13, 256])\ntorch.Size([2, 1, 4, 13, 13])\n"]


@world("docs/studies/learning-rate.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    with_projection(shell, request)
    with_servers(shell)


@world("docs/studies/report.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    shell.exit_codes["attnlab report projection --paper"] = 0 if importlib.util.find_spec("typst") else 2
    with_projection(shell, request)
    for name in ("first", "second", "third"):
        (shell.folder / f"{name}.yaml").write_text(SMALL.replace("projection", name), encoding="utf-8")
        assert main(["run", f"{name}.yaml", *QUICK]) == 0


@world("docs/studies/seeds.md")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    """The study begins with one seed, which decides nothing."""
    (shell.folder / "projection.yaml").write_text(SMALL, encoding="utf-8")
    shell.smaller["run"] = ["--seeds=0", *QUICK]
    shell.fill["12"] = "3"


@world("examples/my_lab")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    """One check of the variant, and two seeds in place of fifteen."""
    with_servers(shell)
    shell.smaller["attnlab check cosine.py:Cosine"] = ["--only=causality by value"]
    shell.smaller["attnlab run --seeds 0-14"] = [*shell.smaller["run"], "--seeds=0-1"]


@world("examples/my_variant")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    shell.exit_codes["attnlab check examples/my_variant/broken.py:Broken"] = 1


@world("examples/command_nanogpt")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    shell.smaller["run"] = ["--seeds=0", "--set=steps=2", "--only=attention=gated", *QUICK]


@world("examples/command_sklearn")
def _(shell: Shell, request: pytest.FixtureRequest) -> None:
    shell.smaller["run"] = ["--seeds=0", "--set=examples=60", "--only=classifier=logistic,svm-linear", *QUICK]
