"""Digests of Python code that comments, docstrings and blank lines do not change, and the modules that a file imports.

Tokens are hashed, because they are the same in all supported versions of Python; an abstract syntax tree is not. White space
within a line, comments, and statements that are nothing but a string literal do not count.
"""

import ast
import hashlib
import io
import sys
import token
import tokenize
from collections.abc import Iterator
from pathlib import Path

NOT_LOCAL = frozenset({*sys.stdlib_module_names, "attnlab"})  # never taken from a user's folder


def code_digest(path: Path, *, root: Path | None = None, package: str | None = None) -> str:
    """Return the SHA-256 digest of the code of a file and of the modules that it imports from its folder, transitively.

    Args:
        path: a Python file.
        root: the folder that absolute imports start from; default: that of the file.
        package: count only the modules of this top-level package, as of an installed one; None: all of the folder.
    """
    root = root or path.parent
    digest = hashlib.sha256()
    names = {
        "" if file == path else file.relative_to(root).as_posix(): file for file in code_files(path, root=root, package=package)
    }
    for name in sorted(names):  # that of the file itself does not count
        code = normalized(names[name].read_bytes())
        digest.update(f"{name} {len(code)}\n".encode() + code)
    return digest.hexdigest()


def module_digest(module: str, file: Path) -> str:
    """Return the digest of an installed module's code, and of the modules that it imports from its own top-level package.

    Args:
        module: its dotted name.
        file: its source file.
    """
    parts = module.split(".")
    root = file.parents[len(parts) - (file.name != "__init__.py")]
    return code_digest(file, root=root, package=parts[0])


def code_files(path: Path, *, root: Path, package: str | None = None) -> set[Path]:
    """Return the file and the files of the modules that it imports from ``root``, transitively."""
    parents = (folder / "__init__.py" for folder in path.parents if folder.is_relative_to(root) and folder != root)
    files = {path, *(file for file in parents if file.is_file())}
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        for module in _imported(file, root):
            if package is not None and module.partition(".")[0] != package:
                continue
            parts = module.split(".")
            for n in range(1, len(parts) + 1):  # a package is imported before its modules
                imported = local_module(root, ".".join(parts[:n]))
                if imported is None:
                    break
                if imported not in files:
                    files.add(imported)
                    waiting.append(imported)
    return files


def local_module(root: Path, name: str) -> Path | None:
    """Return the file of a module in the folder ``root``, or None; a module of Python or of attnlab is not local."""
    parts = name.split(".")
    if parts[0] in NOT_LOCAL or not all(parts):
        return None
    place = root.joinpath(*parts)
    return next((file for file in (place / "__init__.py", place.with_name(f"{parts[-1]}.py")) if file.is_file()), None)


def _imported(file: Path, root: Path) -> Iterator[str]:
    """Yield the dotted names of all modules that a file may import, absolute with respect to ``root``."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # importing the file fails with a message of its own
        return
    place = file.relative_to(root).parts[:-1]  # of the package that contains the file
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level <= len(place) + 1:
            parents = place[: len(place) + 1 - node.level] if node.level else ()
            module = ".".join([*parents, *filter(None, [node.module])])
            yield from filter(None, [module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)])


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
