"""The field's names of things are answered with attnlab's names, in any case and with any hyphens."""

import argparse
import re

import pytest

from attnlab import field_names
from attnlab.cli._config_keys import config_keys
from attnlab.cli.main import build_parser, main
from attnlab.config.checks import check_path
from attnlab.config.yaml import parse_assignments
from attnlab.errors import UserError, nearest
from attnlab.planning.plan import plan
from attnlab.registry import COMPONENTS, MODELS, OPTIMIZERS, POSITIONS, TASKS, VARIANTS, Registry

ENTRIES = [(name, stated, aliases.split()) for (name, stated), aliases in field_names._NAMES.items()]


@pytest.mark.parametrize(
    ("registry", "typed", "meant"),
    [
        (POSITIONS, "rope", "rotary"),
        (POSITIONS, "NoPE", "none"),
        (VARIANTS, "MHA", "dense"),
        (VARIANTS, "transformer-XL", "transformer_xl"),
        (VARIANTS, "Mamba-2", "'ssd'"),
        (VARIANTS, "GDN-2", "gated_delta2"),
        (VARIANTS, "DeepSeek Sparse Attention", "dsa"),
        (VARIANTS, "MoBA", "'moba' is a component"),
        (POSITIONS, "YaRN", "'{name: rotary, scaling: yarn}'"),
        (VARIANTS, "gqa", "kv_heads, count"),
        (VARIANTS, "NoPE", "position: none"),
        (VARIANTS, "identity", "'none'"),
        (VARIANTS, "ALiBi", "'alibi' is a position scheme"),
        (VARIANTS, "Narrow", "did you mean 'narrow'"),  # and not the component of this name
        (COMPONENTS, "mqa", "'{name: kv_heads, count: 1}'"),
        (COMPONENTS, "QK-Norm", "qk_norm"),
        (COMPONENTS, "RMSNorm", "model.norm_type: rms"),
        (OPTIMIZERS, "AdamW", "adamw"),
        (TASKS, "WikiText-103", "text"),
        (MODELS, "seq2seq", "encoder_decoder"),
    ],
)
def test_a_registry_answers_a_name_of_the_field(registry: Registry, typed: str, meant: str) -> None:
    with pytest.raises(UserError) as raised:
        registry.get(typed)
    hint = str(raised.value).partition(f"{typed!r}")[2].partition(";")[0]
    assert meant in hint


@pytest.mark.parametrize(
    ("assignment", "meant"),
    [
        ("model.norm_type=rmsnorm", "'rms'"),
        ("model.norm=rmsnorm", "'model.norm_type: rms'"),
        ("model.feed_forward=SiLU", "'swiglu'"),
        ("model.d_model=32", "'model.dim'"),
        ("learning_rate=1e-3", "'train.lr'"),
        ("task.seq_len=32", "'length'"),
        ("backend=FlashAttention", "'sdpa'"),
        ("train.optimizer=Adam-W", "'adamw'"),
        ("position=rope", "'rotary'"),
    ],
)
def test_a_study_answers_a_name_of_the_field(assignment: str, meant: str) -> None:
    study = {
        "study": "s",
        "base": {"task": {"name": "pydocs"}, "train": {"steps": 1}},
        "grid": {"variant": ["dense"]},
        "seeds": [0],
    }
    with pytest.raises(UserError, match=re.escape(f"(did you mean {meant}?)")):
        plan(study, sets=parse_assignments([assignment]))


def test_every_answer_is_a_name_of_attnlab() -> None:
    known = {name for registry in (VARIANTS, COMPONENTS, POSITIONS, TASKS, MODELS) for name in registry.names()}
    texts = " ".join(" ".join(row) for row in config_keys())
    from attnlab.nn.attention import BACKENDS

    for name, stated, _ in ENTRIES:
        path = stated.partition(":")[0]
        if path.startswith(("variant", "position", "task", "model.name")):
            assert name in known or name == "length"
        elif path == "backend":
            assert name in BACKENDS
        else:
            check_path(path, place="")
            assert re.search(rf"\b{name}\b", texts), stated


def test_the_table_is_written_as_it_is_looked_up() -> None:
    for _, stated, aliases in ENTRIES:
        assert [field_names.fold(alias) for alias in aliases] == aliases, stated


def test_names_of_users_are_not_taken_for_those_of_the_field() -> None:
    assert nearest("rope", ["my_study"]) == ""
    assert nearest("rope", ["rope2", "rotary_v2"]) == " (did you mean 'rope2'?)"
    assert nearest("Rope", ["ROPE", "rotary"]) == " (did you mean 'ROPE'?)"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("rnu study.yaml", "'run'"),
        ("REPORT x", "'report'"),
        ("run --onyl variant=dense", "'--only'"),
        ("list varaints", "'variants'"),
        ("export x --to TensorBoard", "'tensorboard'"),
        ("runs x --format jsn", "'json'"),
        ("bench dense --precision bfloat16", "'bf16'"),
        ("data ftech", "'fetch'"),
    ],
)
def test_the_command_line_suggests_the_nearest_name(words: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert f"(did you mean {meant}?)" in capsys.readouterr().err


def test_a_choice_is_accepted_as_before() -> None:
    assert isinstance(build_parser().parse_args(["list", "variants"]), argparse.Namespace)
