"""Tests of code digests: what changes one, and what does not."""

from pathlib import Path

import pytest

from attnlab._util.code_digest import code_digest, code_files, module_digest, normalized

CODE = '''\
"""A module."""
import math  # of Python


class A:
    """A class.

    Of two lines.
    """

    x = "text"

    def f(self, y):
        "Return y."
        text = f"{y:.{3}f} {'a' if y else "b"}" if y else """long
    string"""
        return [
            y,  # first
            text,
        ]
'''
SAME = {
    "a comment": ("x = ", "# why\n    x = "),
    "a comment at the end of a line": ("(self, y):", "(self, y):  # why"),
    "another docstring": ("A class.", "Another class."),
    "no docstring": ('"Return y."\n        ', ""),
    "a blank line": ("        return", "\n\n        return"),
    "white space": ("x = ", "x  =   "),
    "a line break in brackets": ("y,  # first", "y,\n\n            # first"),
    "the line endings of Windows": ("\n", "\r\n"),
    "a docstring of two parts": ('"Return y."', '"Return" " y."'),
}
OTHER = {
    "a name": ("text = ", "word = "),
    "a number": ("{3}", "{4}"),
    "a string": ('x = "text"', 'x = "Text"'),
    "white space in a string": ("long\n    string", "long\n  string"),
    "a comment sign in a string": ('x = "text"', 'x = "te#xt"'),
    "an f-string": ("'a' if", "'A' if"),
    "the block of a statement": ("        return [", "    return ["),
    "an f-string as a statement": ('"Return y."', 'f"Return {y}."'),
    "the prefix of a string": ('x = "text"', 'x = b"text"'),
}


def changed(old: str, new: str) -> bytes:
    assert old in CODE
    return CODE.replace(old, new).encode()


@pytest.mark.parametrize(("old", "new"), SAME.values(), ids=SAME)
def test_this_is_the_same_code(old: str, new: str) -> None:
    assert normalized(changed(old, new)) == normalized(CODE.encode())


@pytest.mark.parametrize(("old", "new"), OTHER.values(), ids=OTHER)
def test_this_is_other_code(old: str, new: str) -> None:
    assert normalized(changed(old, new)) != normalized(CODE.encode())


def test_the_digest_is_the_same_in_every_version_of_python(tmp_path: Path) -> None:
    """Pin the digest: if it changes, the finished runs of every user's variant count as unfinished."""
    simple = CODE.replace('"b"}', "'b'}")  # version 3.11 rejects the quotes
    (tmp_path / "a.py").write_text(simple)
    assert code_digest(tmp_path / "a.py") == "649e5651627516fe4703f6d29906572aaeccaf520104af45a1c4dd5f79d49043"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_modules_of_the_folder_count_transitively(tmp_path: Path) -> None:
    files = {
        "a.py": "import b\nimport numpy\ndef f():\n    from lab.sub import deep\n",
        "b.py": "from . import c\nimport json\n",
        "c.py": "import a\nfrom . import types\n",
        "types.py": "# a name of Python's own, imported relatively\n",
        "lab/__init__.py": "from .near import x\n",
        "lab/near.py": "x = 1\n",
        "lab/sub/__init__.py": "",
        "lab/sub/deep.py": "from ...d import y\n",
        "d.py": "y = 2\n",
        "json.py": "raise SystemExit\n",
        "unused.py": "",
        "attnlab.py": "",
    }
    folder = write(tmp_path, files)
    counted = {str(path.relative_to(folder)) for path in code_files(folder / "a.py")}
    assert counted == set(files) - {"json.py", "unused.py", "attnlab.py"}
    before = code_digest(folder / "a.py")
    for name in sorted(files):
        text = (folder / name).read_text()
        (folder / name).write_text(text + "z = 3\n")
        assert (code_digest(folder / "a.py") != before) == (name in counted), name
        (folder / name).write_text(text)
    assert code_digest(folder / "a.py") == before
    (folder / "a.py").rename(folder / "renamed.py")
    write(folder, {"c.py": ""})
    write(tmp_path / "moved", {**files, "c.py": ""})
    assert code_digest(folder / "renamed.py") == code_digest(tmp_path / "moved" / "a.py")


def test_a_file_in_a_package_counts_the_modules_of_its_package(tmp_path: Path) -> None:
    files = {
        "lab/__init__.py": "",
        "lab/variants/__init__.py": "",
        "lab/variants/mine.py": "from lab.helpers import x\nimport near, other\n",
        "lab/variants/near.py": "from ..helpers import y\n",
        "lab/helpers.py": "x = 1\n",
        "other.py": "",
    }
    folder = write(tmp_path, files)
    counted = {str(path.relative_to(folder)) for path in code_files(folder / "lab/variants/mine.py")}
    assert counted == set(files) - {"other.py", "lab/variants/__init__.py"}


def test_an_installed_module_counts_its_own_package_only(tmp_path: Path) -> None:
    files = {
        "lab/__init__.py": "import other\n",
        "lab/variants/__init__.py": "",
        "lab/variants/mine.py": "from lab.helpers import x\nimport other\n",
        "lab/helpers.py": "x = 1\n",
        "other.py": "",
    }
    place = write(tmp_path, files) / "lab/variants/mine.py"
    before = module_digest("lab.variants.mine", place)
    for name in sorted(files):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text + "z = 3\n")
        assert (module_digest("lab.variants.mine", place) != before) == (name != "other.py"), name
        (tmp_path / name).write_text(text)
