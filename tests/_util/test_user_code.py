"""Tests of imports in users' files: helper modules of the same folder, without effects on other folders or on Python."""

import sys
from pathlib import Path

import pytest

from attnlab._util.code_digest import code_digest
from attnlab._util.user_code import forget_changed_files, is_loaded, load_file, load_sources
from attnlab.errors import UserError

HELPER = "class Scale:\n    FACTOR = {factor}\n\n    def get(self):\n        return self.FACTOR\n"


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / (name.replace("__init__", "%").replace("__", "/").replace("%", "__init__") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    "statement",
    [
        "import helper\nScale = helper.Scale",
        "import helper as h\nScale = h.Scale",
        "import math, helper as h, sys\nScale = h.Scale",
        "from helper import Scale",
        "from helper import *",
        "from .helper import Scale",
        "from .types import Scale",
        "from . import helper\nScale = helper.Scale",
        "def f():\n    import helper\n    return helper.Scale\nScale = f()",
        "try:\n    from helper import Scale\nexcept ImportError:\n    raise",
        "import lab.sub\nScale = lab.sub.Scale",
        "import lab.sub as sub\nScale = sub.Scale",
        "from lab import sub\nScale = sub.Scale",
        "from lab.sub import Scale",
        "from lab import Scale",
    ],
)
def test_a_file_imports_modules_of_its_folder(statement: str, tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        mine=statement + "\n",
        helper=HELPER.format(factor=3),
        types=HELPER.format(factor=3),
        lab____init__="from helper import Scale\n",
        lab__sub="from . import Scale\n",
    )
    before = list(sys.path), set(sys.modules)
    module = load_file(folder / "mine.py")
    assert module.Scale().get() == 3
    assert sys.path == before[0]
    assert {name for name in set(sys.modules) - before[1] if not name.startswith("attnlab_user_")} <= {"math"}
    assert not list(folder.rglob("*.pyc")), "Python would read it where the imports are others"


def test_two_folders_have_helpers_of_one_name(tmp_path: Path) -> None:
    one, two = (
        load_file(write(tmp_path / name, mine="import helper\n", helper=HELPER.format(factor=factor)) / "mine.py")
        for name, factor in (("one", 1), ("two", 2))
    )
    assert (one.helper.Scale.FACTOR, two.helper.Scale.FACTOR) == (1, 2)
    assert one.helper is load_file(tmp_path / "one" / "helper.py"), "imported once"


def test_an_error_in_a_helper_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ZeroDivisionError") as raised:
        load_file(write(tmp_path, mine="x = 1\nimport helper\n", helper="1 / 0\n") / "mine.py")
    assert raised.value.where == "mine.py:2"
    with pytest.raises(UserError, match="SyntaxError") as raised:
        load_file(write(tmp_path / "b", mine="x = 1\nimport helper\n", helper="\n\n(\n") / "mine.py")
    assert raised.value.where == "helper.py:3"
    with pytest.raises(UserError, match="ModuleNotFoundError") as raised:
        load_file(write(tmp_path / "c", mine="x = 1\nimport nowhere_else\n") / "mine.py")
    assert raised.value.where == "mine.py:2"


def test_a_file_that_has_changed_is_imported_again_on_request_only(tmp_path: Path) -> None:
    path = write(tmp_path, mine="from helper import x\n", helper="x = 3\n") / "mine.py"
    module = load_file(path)
    assert is_loaded(path)
    write(tmp_path, helper="x = 44\n")
    assert load_file(path) is module and not is_loaded(path)
    forget_changed_files()
    assert load_file(path).x == 44 and is_loaded(path)


def test_a_change_of_a_helper_is_noticed_with_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, mine="from helper import x\n", helper="x = 3\n") / "mine.py"
    with pytest.raises(UserError, match=r"mine\.py.*helper\.py.*changed"):
        load_sources({str(path): "0" * 64})


@pytest.mark.parametrize(
    "statement",
    ["import space.sub\nScale = space.sub.Scale", "from space import sub\nScale = sub.Scale", "from space.sub import Scale"],
)
def test_a_folder_without_init_is_a_package(statement: str, tmp_path: Path) -> None:
    write(tmp_path, mine=statement + "\n", space__sub="from .near import Scale\n", space__near=HELPER.format(factor=3))
    write(tmp_path, torch__sub="raise SystemExit\n", other="import torch\nScale = torch.nn.Module\n")
    before = code_digest(tmp_path / "mine.py")
    assert load_file(tmp_path / "mine.py").Scale().get() == 3
    load_file(tmp_path / "other.py")  # an installed package has precedence over such a folder
    write(tmp_path, space__near=HELPER.format(factor=4))
    assert code_digest(tmp_path / "mine.py") != before
    forget_changed_files()
    assert load_file(tmp_path / "mine.py").Scale().get() == 4


def test_modules_on_the_path_are_part_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "own", mine="import shared\nimport near\nX = 'sizes.yaml'\n")
    write(folder, near="x = 1\n")
    write(tmp_path / "lib", shared="import deep.er\n", deep__er="x = 1\n", unused="x = 1\n")
    (folder / "sizes.yaml").write_text("a: 1 # one\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    before = code_digest(folder / "mine.py")
    names = {
        "own/near.py": True,
        "own/sizes.yaml": False,
        "lib/shared.py": True,
        "lib/deep/er.py": True,
        "lib/unused.py": False,
    }
    for name, counts in names.items():
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(f"{text}y: int\n")
        assert (code_digest(folder / "mine.py") != before) == counts, name
        (tmp_path / name).write_text(text)
    assert code_digest(folder / "mine.py") == before
