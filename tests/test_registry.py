"""Names lead to classes by each way of registration, and a wrong name yields a one-line error."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from attnlab._util.user_code import load_file
from attnlab.errors import UserError, nearest
from attnlab.registry import MODELS, POSITIONS, TASKS, VARIANTS, Registry, check_options

MINE = """
from attnlab.variants import Variant

class Mine(Variant):
    def __init__(self, config, *, needed, power=2):
        super().__init__(config)
"""


@pytest.fixture
def things(monkeypatch: pytest.MonkeyPatch) -> Registry:
    return Registry("thing", group="attnlab.things", base="collections:Counter", builtin={"counter": "collections:Counter"})


@pytest.mark.parametrize(
    ("table", "name", "words"),
    [
        (VARIANTS, "gate", "'gate' is a component: {name: dense, with: .gate.}"),
        (VARIANTS, "rotary", "'rotary' is a position scheme"),
        (POSITIONS, "adam", "'adam' is an optimizer"),
    ],
)
def test_a_name_of_another_kind_is_recognized(table: Registry, name: str, words: str) -> None:
    with pytest.raises(UserError, match=f"unknown {table.kind} '{name}' .{words}.; known"):
        table.get(name)


@pytest.mark.parametrize("table", [VARIANTS, POSITIONS, TASKS, MODELS])
def test_every_built_in_name_leads_to_a_class(table: Registry) -> None:
    for name in table.names():
        assert isinstance(table.get(name), type)


def test_documented_names_exist() -> None:
    assert {"dense", "einsum", "no_wo", "transformer_xl", "strided_sparse"} <= set(VARIANTS.names())
    assert {"none", "learned", "sinusoidal", "relative"} <= set(POSITIONS.names())
    assert {"imdb", "enwik8"} <= set(TASKS.names())


def test_listing_names_imports_no_torch() -> None:
    code = "import sys; from attnlab.registry import VARIANTS; VARIANTS.names(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_an_unknown_name_suggests_the_nearest(things: Registry) -> None:
    with pytest.raises(UserError, match=r"unknown thing 'conter' \(did you mean 'counter'\?\); known: counter"):
        things.get("conter")
    with pytest.raises(UserError, match="unknown thing 'nosuch'; known: counter"):  # einsum is too different to be suggested
        things.get("nosuch")
    assert nearest("nosuch", ["einsum"]) == "" and nearest("gpu", ["gru"]) == " (did you mean 'gru'?)"


def test_a_decorator_registers_and_a_name_is_taken_once(things: Registry) -> None:
    first = things.register("mine")(type("First", (), {}))
    assert things.get("mine") is first and "mine" in things.names()
    with pytest.raises(UserError, match="'mine' is registered twice"):
        things.register("mine")(type("Second", (), {}))
    with pytest.raises(UserError, match="has the name of a built-in one"):
        things.register("counter")(type("Third", (), {}))


def test_a_file_is_reached_by_its_path_and_imported_once(things: Registry, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    cls = things.get("mine.py:Mine", relative_to=tmp_path)
    assert cls is things.get(str(tmp_path / "mine.py:Mine"))
    assert cls is load_file(tmp_path / "mine.py").Mine


def test_a_module_is_reached_by_its_name(things: Registry) -> None:
    import collections

    assert things.get("collections:OrderedDict") is collections.OrderedDict
    with pytest.raises(UserError, match="cannot import module 'colections'"):
        things.get("colections:OrderedDict")
    with pytest.raises(UserError, match="module collections has no class 'Nothing'"):
        things.get("collections:Nothing")


def test_an_entry_point_of_an_installed_package_is_found(things: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("theirs", "fractions:Fraction", "attnlab.things"), EntryPoint("broken", "no_such:X", "attnlab.things")]
    monkeypatch.setattr("attnlab._util.plugins._installed_entry_points", lambda group, path: points)
    from fractions import Fraction

    assert things.get("theirs") is Fraction
    with pytest.raises(UserError, match="importing no_such:X failed"):
        things.get("broken")
    points.append(EntryPoint("counter", "fractions:Fraction", "attnlab.things"))
    with pytest.raises(UserError, match="'counter' is provided by two packages: collections:Counter and fractions:Fraction"):
        things.names()


@pytest.mark.parametrize(
    ("text", "reference", "message"),
    [
        (None, "none.py:Mine", "expected a Python file at .*none.py"),
        (MINE, "mine.py:Mime", r"mine.py defines no class 'Mime' \(did you mean 'Mine'\?\); it defines Mine"),
        (MINE, "mine.py", "thing 'mine.py': expected a class of the file, mine.py:Mine, got the file alone"),
        ("x = 1\n", "mine.py", "expected a class of the file, mine.py:NAME, got the file alone"),
        (None, "none.py", "expected a Python file at .*none.py"),
        ("x = 1\nx.y\n", "mine.py:Mine", r"^mine.py:2: importing .*mine.py failed: AttributeError"),
        ("x = = 1\n", "mine.py:Mine", r"^mine.py:1: importing .*mine.py failed: SyntaxError"),
    ],
)
def test_an_unusable_file_yields_a_one_line_error(
    things: Registry, tmp_path: Path, text: str | None, reference: str, message: str
) -> None:
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        things.get(reference, relative_to=tmp_path)
    assert "\n" not in str(caught.value)


def test_options_are_bound_without_building(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    cls = load_file(tmp_path / "mine.py").Mine
    check_options(cls, {"needed": 1}, what="variant 'mine'")
    message = r"variant 'mine' has no option 'pwer' \(did you mean 'power'\?\); it takes needed, power"
    with pytest.raises(UserError, match=message):
        check_options(cls, {"needed": 1, "pwer": 3}, what="variant 'mine'")
    with pytest.raises(UserError, match="variant 'mine' .* 'needed'"):
        check_options(cls, {}, what="variant 'mine'")


def test_a_file_that_exits_yields_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "quits.py").write_text("import sys\n\nsys.exit('enough')\n")
    with pytest.raises(UserError, match=r"quits.py:3: importing .*quits.py failed: SystemExit: enough"):
        load_file(tmp_path / "quits.py")
