"""Tests of the plan of models whose blocks have several variants (`model.layers`)."""

import textwrap
from pathlib import Path
from typing import Any

import pytest

from attnlab import plan
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.planning.plan import Plan
from attnlab.registry import TASKS
from attnlab.training import costs


def planned(*patterns: Any, depth: int = 6, **more: Any) -> Plan:
    base = {
        "task": {"name": "pydocs", "length": 32},
        "model": {"dim": 48, "depth": depth, "heads": 4, **more.pop("model", {})},
        "train": {"steps": 3, "batch_size": 2},
        "machine": {"device": "cpu"},
        **more.pop("base", {}),
    }
    only = more.pop("only", None)
    return plan({"study": "layers", "base": base, "grid": {"model.layers": list(patterns)}, **more}, only=only)


def positions(plan_: Plan) -> list[list[str]]:
    return [
        [e.position.name for e in c.config.model.layers.pattern if e.position] for c in plan_.cells if c.config.model.layers
    ]


def refusals(plan_: Plan) -> list[str | None]:
    return [cell.refusal for cell in plan_.cells]


def test_an_entry_has_its_own_position_else_that_of_the_cell_else_the_default_of_its_variant() -> None:
    rotary = {"name": "dense", "position": "rotary"}
    assert positions(planned(["gru", rotary])) == [["none", "rotary"]]
    assert positions(planned(["gru", rotary], base={"position": "none"})) == [["none", "rotary"]]
    assert positions(planned([{"name": "gru", "position": "none"}, "dense"], base={"position": "rotary"})) == [
        ["none", "rotary"]
    ]


def test_positions_that_are_added_to_the_input_are_those_of_all_blocks() -> None:
    assert positions(planned(["gru", "dense"])) == [["learned", "learned"]], "the default of dense"
    assert positions(planned(["gru", {"name": "dense", "position": "sinusoidal"}])) == [["sinusoidal", "sinusoidal"]]
    learned, rotary = ({"name": "dense", "position": p} for p in ("learned", "rotary"))
    for second in (rotary, {"name": "dense", "position": "sinusoidal"}, {"name": "gru", "position": "none"}):
        (refusal,) = refusals(planned([learned, second]))
        assert refusal is not None and refusal.startswith("model.layers[1]: ") and "added to the input" in refusal


def test_a_refusal_names_the_entry() -> None:
    (refusal,) = refusals(planned(["gru", "dense"], base={"position": "rotary"}))
    assert refusal is not None and refusal.startswith("model.layers[0]: gru: ") and "position: none" in refusal
    (refusal,) = refusals(planned(["dense", "strided_sparse"], model={"mem_len": 8}, base={"position": "rotary"}))
    assert refusal is not None and refusal.startswith("model.layers[1]: strided_sparse: does not support memory")
    base = {"position": "none", "task": {"name": "pydocs", "length": 32, "sampling": "contiguous"}}
    assert refusals(planned(["gru", "dense"], model={"mem_len": 8}, base=base)) == [None]


def test_a_mistake_in_an_entry_has_its_place(tmp_path: Path) -> None:
    text = """\
        study: s
        base:
          task: pydocs
          model: {depth: 2}
          train: {steps: 3}
        grid:
          model.layers:
            - [dense]
            - [dense, {name: strided_sparse, strid: 7}]
        """
    (tmp_path / "s.yaml").write_text(textwrap.dedent(text))
    with pytest.raises(UserError) as caught:
        plan(tmp_path / "s.yaml")
    assert caught.value.where.startswith(f"{tmp_path / 's.yaml'}:9:") or caught.value.where.startswith("s.yaml:9:")
    assert "model.layers[1]" in caught.value.message and "'strid'" in caught.value.message


def test_an_unused_entry_is_refused() -> None:
    (refusal,) = refusals(planned(["gru"] * 6 + ["dense"]))
    assert refusal is not None and "expected at most 6 entries" in refusal and "got 7" in refusal


def test_blocks_run_several_times_cost_several_times_and_without_a_memory() -> None:
    once, thrice, deep = (planned(["dense"], depth=d, model={"loops": n}).cells[0] for d, n in ((2, 1), (2, 3), (6, 1)))
    assert once.parameters == thrice.parameters
    assert once.flops_per_token != thrice.flops_per_token == deep.flops_per_token
    assert thrice.cache_bytes is None and "loops" not in once.config.model_dump()["model"]  # as before there were loops
    for more in ({"mem_len": 8}, {"residual": "attention_residuals"}):
        base = {"task": {"name": "pydocs", "length": 32, "sampling": "contiguous"}}
        (refusal,) = refusals(planned(["dense"], model={"loops": 3, **more}, base=base))
        assert refusal is not None and "model.loops" in refusal
    base = {"task": "multi30k", "variant": "dense", "model": {"loops": 2}, "train": {"steps": 3}}
    (refusal,) = refusals(plan({"study": "loops", "base": base, "grid": {"model.depth": [2]}}))
    assert refusal is not None and "encoder-decoder" in refusal


def test_patterns_of_the_same_blocks_are_one_configuration() -> None:
    doubles = planned(
        ["gru", "dense"], ["gru", "dense"] * 3, ["gru", {"name": "dense", "position": "learned"}], ["dense"]
    ).doubles
    assert set(doubles.values()) == {"[gru, dense]"} and len(doubles) == 2
    base = {"task": {"name": "pydocs", "length": 32}, "train": {"steps": 3}, "variant": "dense"}
    same = plan({"study": "s", "base": base, "grid": {"model.layers": [None, ["dense"]]}})
    assert same.doubles == {"[dense]": "null"}, "a pattern of one variant is that variant"


@pytest.mark.parametrize(
    ("pattern", "depth"),
    [(["gru", "gru", "dense"], 3), (["gru", "gru", "dense"], 7), (["gru", "dense"], 11), (["none", "gru", "gru", "dense"], 9)],
)
def test_costs_are_those_of_the_whole_model(pattern: list[str], depth: int) -> None:
    (cell,) = planned(pattern, depth=depth).cells
    task = TASKS.get(cell.config.task.name)(**cell.config.task.options)
    model = build(cell.config, task)
    own = costs.parameters(model)
    assert (cell.parameters, cell.attention_parameters) == (own["parameters"], own["attention_parameters"])
    flops = costs._figures(cell.config, task)["flops"]
    assert cell.flops_per_token == flops // 32


def test_saved_bytes_are_those_of_the_whole_model() -> None:
    from attnlab.training.cuda_memory import CUBLAS_WORKSPACE, cuda_peak_mib, trace

    (cell,) = planned(["none", "dense"], depth=5).cells
    task = TASKS.get(cell.config.task.name)(**cell.config.task.options)
    whole = max(trace(cell.config, task).values()) / costs.MIB
    assert cuda_peak_mib(cell.config, task) - CUBLAS_WORKSPACE == pytest.approx(whole, rel=0.02)


def test_a_pattern_can_be_matched_to_the_baseline() -> None:
    base = {"variant": "dense"}
    cells = planned(None, {"pattern": ["gru", "dense"], "match": "params"}, base=base, baseline={"model.layers": None}).cells
    dense, matched = cells
    assert matched.parameters == pytest.approx(dense.parameters, rel=0.01) and "model.ff_mult" in matched.matched
    assert matched.config.match is None and matched.config.model.ff_mult != dense.config.model.ff_mult
    with pytest.raises(UserError) as caught:
        pattern = {"pattern": ["gru", "dense"], "match": {"cost": "params", "by": "variant.stride"}}
        planned(None, pattern, base=base, baseline={"model.layers": None})
    assert "model.ff_mult" in caught.value.message and caught.value.where.startswith("grid.model.layers[1]")


def test_a_variant_with_one_backend_leaves_the_choice_to_the_others() -> None:
    hybrid, einsum = planned(["gru", "dense"], ["gru", "einsum"]).cells
    assert hybrid.config.backend == "blocked" and einsum.config.backend == "reference"
    model: Any = build(hybrid.config, TASKS.get("pydocs")(length=32))
    assert [block.attention.backend for block in model.stacks[0]] == ["reference", "blocked"] * 3
    (refused,) = refusals(planned(["gru", "strided_sparse"], base={"backend": "xformers"}))
    assert refused is not None and refused.startswith("model.layers[1]: ")


def test_heads_count_if_an_entry_has_heads() -> None:
    hybrid, recurrent = planned(["gru", "dense"], ["gru", "lstm"]).cells
    assert (hybrid.config.model.heads, recurrent.config.model.heads) == (4, 1)


def test_a_cell_of_a_pattern_is_selected_by_its_label_or_name() -> None:
    labels = ["[gru x2, dense]", "[gru, dense]"]
    for only, count in ((labels[0], 1), (",".join(labels), 2)):
        cells = planned(["gru", "gru", "dense"], ["gru", "dense"], ["dense"], only={"model.layers": only}).cells
        assert [cell.name for cell in cells] == labels[:count]


def test_longer_tests_need_positions_that_extrapolate_in_every_block() -> None:
    rotary = {"name": "dense", "position": "rotary"}
    base = {"evaluate": {"lengths": [64]}}
    assert any("learned positions: trained up to 32" in note for note in planned(["gru", "dense"], base=base).notes)
    assert not any("not tested at length" in note for note in planned(["gru", rotary], base=base).notes)


def test_an_encoder_decoder_has_no_pattern(tmp_path: Path) -> None:
    for name in ("a.de", "a.en"):
        (tmp_path / name).write_text("".join(f"Satz {i}\n" for i in range(40)))
    task = {"name": "translation", "source": str(tmp_path / "a.de"), "target": str(tmp_path / "a.en"), "length": 16}
    with pytest.raises(UserError) as caught:
        planned(["gru", "dense"], base={"task": task})
    assert "model.encoder" in caught.value.message and caught.value.where.startswith("grid.model.layers[0]")


def test_a_model_that_builds_all_blocks_alike_is_refused(tmp_path: Path) -> None:
    code = """\
        from attnlab import register_model
        from attnlab.models.backbone import Backbone
        from attnlab.models.language_model import LanguageModel
        from attnlab.models.parts import part

        class OneVariant(Backbone):
            def make_block(self, config, task, own):
                return super().make_block(config, task, part(config, task))

        @register_model("alike")
        class Alike(LanguageModel):
            def __init__(self, config, task):
                super().__init__(config, task)
                self.backbone = OneVariant(config, task, block=self.block)
        """
    (tmp_path / "alike.py").write_text(textwrap.dedent(code))
    model = {"name": "alike"}
    (refusal,) = refusals(planned(["gru", "dense"], model=model, imports=[str(tmp_path / "alike.py")]))
    assert refusal is not None and "block_parts" in refusal
