"""Digests of Python code that comments, docstrings and blank lines do not change, and the modules that a file imports.

Tokens are hashed, because they are the same in all supported versions of Python; an abstract syntax tree is not. White space
within a line, comments, and statements that are nothing but a string literal do not count.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import token
import tokenize
from collections.abc import Iterator
from pathlib import Path

from attnlab._util.files import real_path
from attnlab._util.imported_files import Roots, editable_roots, imported_files, path_roots


def code_digest(path: Path) -> str:
    """Return the SHA-256 digest of the code of a user's file and of the other ``code_files``."""
    return _digest(path, code_files(path), shared_roots())


def module_digest(module: str, file: Path) -> str:
    """Return the digest of an installed module's code, and of the modules that it imports from its top-level package.

    Args:
        module: its dotted name.
        file: its source file.
    """
    parts = module.split(".")
    root = file.parents[len(parts) - (file.name != "__init__.py")]
    packages = [root.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts))]  # imported before the module
    start = {file, *(package for package in packages if package.is_file())}
    return _digest(file, imported_files(start, [(root, parts[0])]), [])


def code_files(path: Path) -> set[Path]:
    """Return a user's file and the files of the modules that it imports, transitively.

    Modules are searched for in its folder and in ``shared_roots``. If the folder is a package, modules of the same top-level
    package count too. Of a symbolic link, modules of the folder of the file itself count as well, where Python looks for them.
    """
    package = _package(path)
    folders = dict.fromkeys((path.parent, real_path(path).parent))
    roots: Roots = [*((folder, None) for folder in folders), *([(package.parent, package.name)] if package else [])]
    return imported_files({path}, [*roots, *shared_roots()])


def _package(path: Path) -> Path | None:
    """Return the folder of the top-level package that contains a file, or None."""
    package = None
    for folder in path.parents:
        if not (folder / "__init__.py").is_file():
            break
        package = folder
    return package


def shared_roots() -> Roots:
    """Return the folders of modules that are not installed as a package: ``PYTHONPATH`` and editable installs."""
    return [*path_roots(os.environ.get("PYTHONPATH", ""), Path.cwd()), *editable_roots(Path(sys.prefix))]


def _digest(path: Path, files: set[Path], roots: Roots) -> str:
    digest = hashlib.sha256()
    names = {_name(file, path, roots): file for file in files}
    for name in sorted(names):  # that of the file itself does not count
        content = names[name].read_bytes()
        code = normalized(content) if names[name].suffix == ".py" or names[name] == path else content
        digest.update(f"{name} {len(code)}\n".encode() + code)
    return digest.hexdigest()


def _name(file: Path, path: Path, roots: Roots) -> str:
    """Return the name of a file in the digest of ``path``: relative to it, or to its root, so that both may be moved."""
    if file == path:
        return ""
    inside = file.is_relative_to(_package(path) or path.parent)
    root = next((root for root, _ in roots if not inside and file.is_relative_to(root)), None)
    return f"@{file.relative_to(root).as_posix()}" if root else Path(os.path.relpath(file, path.parent)).as_posix()


def normalized(source: bytes) -> bytes:
    """Return the tokens of Python code without comments, docstrings and blank lines; other text unchanged."""
    source = source.replace(b"\r\n", b"\n")
    try:
        tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
        text = source.decode(tokens[0].string)
    except (SyntaxError, ValueError, LookupError, tokenize.TokenError):  # importing the file fails with a message of its own
        return source
    lines = text.split("\n")
    code: list[str] = []
    statement: list[tuple[str, bool]] = []  # text, and whether it is a plain string
    for text, kind in _without_parts_of_strings(tokens, lines):
        if kind in (token.INDENT, token.DEDENT):
            code.append(token.tok_name[kind])
        elif kind in (token.NEWLINE, token.ENDMARKER):
            if not all(is_string for _, is_string in statement):
                code += [*(word for word, _ in statement), "\n"]
            statement = []
        elif kind not in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING):
            prefix = text[: min(text.find(quote) for quote in "'\"" if quote in text)] if kind == token.STRING else ""
            statement.append((text, kind == token.STRING and not set(prefix) & set("fFtT")))
    return "\0".join(code).encode()


def _without_parts_of_strings(tokens: list[tokenize.TokenInfo], lines: list[str]) -> Iterator[tuple[str, int]]:
    """Yield (text, kind) of tokens, an f-string as one string: from version 3.12 on, Python divides it into parts."""
    depth, start = 0, (0, 0)
    for part in tokens:
        name = token.tok_name[part.type]
        if name.endswith("STRING_START"):
            start, depth = (start if depth else part.start), depth + 1
        elif name.endswith("STRING_END"):
            depth -= 1
            if not depth:
                yield _between(lines, start, part.end), token.STRING
        elif not depth:
            yield part.string, part.type


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    rows = lines[start[0] - 1 : end[0]]
    rows[-1] = rows[-1][: end[1]]
    rows[0] = rows[0][start[1] :]
    return "\n".join(rows)


def state_folder() -> Path:
    """Return the user's state folder: ``ATTNLAB_STATE``, or the one of the operating system."""
    from platformdirs import user_state_path

    folder = os.environ.get("ATTNLAB_STATE")
    return Path(folder) if folder else user_state_path("attnlab", appauthor=False)
