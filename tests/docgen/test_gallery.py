"""The gallery shows every built-in class, with pictures that are those of the class."""

import re

import numpy as np
import pytest
import yaml

from attnlab.planning.plan import plan
from attnlab.registry import COMPONENTS, POSITIONS, TASKS, VARIANTS, Registry
from docgen import gallery, patterns


@pytest.mark.parametrize(
    ("page", "registry"),
    [
        (gallery.variants, VARIANTS),
        (gallery.components, COMPONENTS),
        (gallery.positions, POSITIONS),
        (gallery.tasks, TASKS),
    ],
)
def test_every_built_in_class_has_a_section_with_its_file(page, registry) -> None:
    sections = {text.partition("\n")[0]: text for text in page().split("\n## ")[1:]}
    for name in registry._builtin:
        module = registry._builtin[name].partition(":")[0]
        assert f"(../../{module.replace('.', '/')}.py)" in sections[name]


def test_the_index_links_to_every_class_and_shows_those_with_a_picture() -> None:
    text = gallery.index()
    assert "[![](variant-dense.png){.pattern} dense](variants.md#dense)" in text
    assert "[gate](components.md#gate)" in text and "[imdb](tasks.md#imdb)" in text
    assert text.count("](variants.md#") == len(VARIANTS.names())


@pytest.mark.parametrize(("kind", "registry"), [("variant", VARIANTS), ("component", COMPONENTS), ("position", POSITIONS)])
def test_every_line_with_options_can_be_planned(kind: str, registry: Registry) -> None:
    lines = [
        line for name in registry._builtin for line in re.findall(r"`(.+?)`", gallery.in_a_study(kind, name)["in a study"])
    ]
    assert len(lines) >= len(registry._builtin)
    base = {"task": {"name": "pydocs", "length": 32}, "variant": "dense", "train": {"steps": 2, "batch_size": 4}}
    for line in lines:
        if line.count(":") > 1 and (kind != "component" or "with: [{" in line):
            (cell,) = plan({"study": "s", "base": {**base, **yaml.safe_load(line)}}).cells
            assert cell.refusal is None, line


def test_a_line_for_a_study_names_the_files_of_a_task_and_the_published_options() -> None:
    assert gallery.in_a_study("task", "tokens") == {"in a study": "`task: {name: tokens, path: FILE, vocabulary: N}`"}
    assert "`variant: {name: linear, feature_map: taylor}`" in gallery.in_a_study("variant", "linear")["in a study"]


@pytest.mark.parametrize("name", ["dense", "strided_sparse", "delta", "transformer_xl"])
def test_no_picture_of_a_variant_shows_the_future(name: str) -> None:
    values = patterns.dependence(patterns.variant(name))
    assert np.triu(values, 1).max() == 0 and (np.diag(values) > 0).all()


def test_the_dependence_of_a_sparse_variant_lies_within_its_masks() -> None:
    layer = patterns.variant("strided_sparse")
    window, column = patterns.masks(layer)
    assert ((patterns.dependence(layer) > 0) == ((window + column) > 0)).all()
    assert not (window == column).all()


def test_the_picture_of_a_window_has_its_width() -> None:
    values = patterns.component_pattern("window")
    size = patterns.REQUIRED["size"]
    i, j = np.indices((patterns.LENGTH, patterns.LENGTH))
    assert values is not None and ((values > 0) == ((i - j >= 0) & (i - j < size))).all()
    assert patterns.component_pattern("gate") is None


def test_alibi_is_drawn_as_a_bias_that_falls_with_the_distance() -> None:
    values = patterns.position_pattern("alibi")
    assert values is not None and (np.diff(values[-1]) > 0).all() and np.isnan(values[0, 1:]).all()
    assert patterns.position_pattern("none") is None


def test_an_image_has_one_pixel_for_each_value_and_is_dark_where_the_value_is_large() -> None:
    from io import BytesIO

    from PIL import Image

    image = Image.open(BytesIO(patterns.png(np.array([[0.0, 1.0, 2.0], [np.nan, 2.0, 0.0]]))))
    assert image.size == (3, 2)
    assert image.getpixel((0, 0)) == image.getpixel((0, 1)) == (255, 255, 255)
    assert image.getpixel((2, 0)) == tuple(patterns.INK)
