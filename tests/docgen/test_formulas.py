"""Tests of the formulas in the gallery, which are typeset from docstrings."""

import inspect
import sys
from xml.etree import ElementTree

import pytest

from attnlab.registry import COMPONENTS, POSITIONS, VARIANTS
from docgen import gallery
from docgen.formulas import LETTERS, is_formula, typeset, typeset_text

MODULES = {cls.__module__ for registry in (VARIANTS, COMPONENTS, POSITIONS) for cls in map(registry.get, registry._builtin)}


def blocks() -> list[tuple[str, list[str]]]:
    found = []
    for module in sorted(MODULES):
        for block in gallery.BLOCK.findall(inspect.getdoc(sys.modules[module]) or ""):
            lines = [line[4:] for line in block.splitlines()]
            if is_formula(lines):
                found.append((f"{module}: {lines[0]}", lines))
    return found


def plain(text: str) -> str:
    """Return the letters, digits and scripts' contents of a formula, Greek by name."""
    for name, letter in LETTERS.items():
        text = text.replace(letter, name)
    words = {"∑": "sum", "∈": "in", "√": "sqrt"}
    return "".join(words.get(character, character) for character in text if character.isalnum() or character in words)


def test_most_files_have_a_formula() -> None:
    assert len(blocks()) > 50


@pytest.mark.parametrize(("name", "lines"), blocks(), ids=[name for name, _ in blocks()])
def test_every_word_and_number_of_a_formula_is_typeset_once(name: str, lines: list[str]) -> None:
    table = ElementTree.fromstring(typeset(lines))
    roots = len(list(table.iter("msqrt")))
    shown = plain("".join(table.itertext()))
    written = plain("".join(lines))
    assert sorted(shown + "sqrt" * roots) == sorted(written)
    assert len(list(table.iter("tr"))) == len(lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = S_(t-1)", "<msub><mi>S</mi><mrow><mi>t</mi>"),
        ("y = k_t^T", "<msubsup><mi>k</mi><mrow><mi>t</mi></mrow>"),
        (
            "y = W_Q,i, x",
            '<mi mathvariant="normal">Q</mi><mo stretchy="false" movablelimits="false">,</mo><mi>i</mi></mrow></msub>',
        ),
        ("y = sqrt(d)", "<msqrt><mi>d</mi></msqrt>"),
        ("y = alpha_1 * x", "<msub><mi>α</mi><mrow><mn>1</mn></mrow></msub>"),
        ("y = H^(l)", ">(</mo><mi>l</mi><mo"),
        ("y = H^(1/tau)", "<msup><mi>H</mi><mrow><mn>1</mn>"),
        ("y = sum_j' s", '<mi>j</mi><mo stretchy="false" movablelimits="false">′</mo></mrow></msub>'),
        ("y = {j in M : 0 <= j}", "∈"),
        ("y = x          each divided by its length", "<mtext>length</mtext>"),
    ],
)
def test_a_formula_has_scripts_roots_greek_letters_and_text(text: str, expected: str) -> None:
    assert expected in typeset([text])


def test_the_gallery_shows_formulas() -> None:
    sections = {text.partition("\n")[0]: text for text in gallery.variants().split("\n## ")[1:]}
    assert '<div class="formula">' in sections["gated_delta"] and "S_(t-1)" not in sections["gated_delta"]


def test_symbols_in_a_text_are_typeset_and_literals_and_names_are_not() -> None:
    text = typeset_text("With ``short_conv`` c and ``W_Q x``, W_Q,i has dim^2 weights: alpha_t, not state_dicts or a/b_c.")
    assert text.count("<math>") == 3 and "``short_conv``" in text and "``W_Q x``" in text
    assert "state_dicts or a/b_c." in text and "<mi>α</mi>" in text and "<mn>2</mn>" in text
