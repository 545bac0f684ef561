"""Digests of Python code that comments, docstrings and blank lines do not change, and the modules that a file imports.

Tokens are hashed, because they are the same in all supported versions of Python; an abstract syntax tree is not. White space
within a line, comments, and statements that are nothing but a string literal do not count.
"""

import ast
import hashlib
import io
import os
import sys
import token
import tokenize
from collections.abc import Iterator
from pathlib import Path

Roots = list[tuple[Path, str | None]]  # a folder that absolute imports start from, and the only package that counts there

NOT_LOCAL = frozenset({*sys.stdlib_module_names, "attnlab"})  # never taken from a user's folder


def code_digest(path: Path) -> str:
    """Return the SHA-256 digest of the code of a user's file and of ``code_files`` that it imports."""
    return _digest(path, code_files(path))


def module_digest(module: str, file: Path) -> str:
    """Return the digest of an installed module's code, and of the modules that it imports from its own top-level package.

    Args:
        module: its dotted name.
        file: its source file.
    """
    parts = module.split(".")
    root = file.parents[len(parts) - (file.name != "__init__.py")]
    packages = [root.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts))]  # imported before the module
    start = {file, *(package for package in packages if package.is_file())}
    return _digest(file, _with_imports(start, [(root, parts[0])]))


def code_files(path: Path) -> set[Path]:
    """Return a user's file and the files of the modules that it imports from its folder, transitively.

    If the folder is a package, modules of the same top-level package count too.
    """
    outer = path.parent
    while (outer / "__init__.py").is_file():
        outer = outer.parent
    packages = path.parent.relative_to(outer).parts[:1]
    return _with_imports({path}, [(path.parent, None), *((outer, package) for package in packages)])


def _digest(path: Path, files: set[Path]) -> str:
    digest = hashlib.sha256()
    names = {"" if file == path else Path(os.path.relpath(file, path.parent)).as_posix(): file for file in files}
    for name in sorted(names):  # that of the file itself does not count
        code = normalized(names[name].read_bytes())
        digest.update(f"{name} {len(code)}\n".encode() + code)
    return digest.hexdigest()


def _with_imports(start: set[Path], roots: Roots) -> set[Path]:
    files, waiting = set(start), list(start)
    while waiting:
        for folder, module in _imported(waiting.pop(), roots):
            parts = module.split(".")
            for n in range(1, len(parts) + 1):  # a package is imported before its modules
                imported = module_file(folder, ".".join(parts[:n]))
                if imported is None:
                    break
                if imported not in files:
                    files.add(imported)
                    waiting.append(imported)
    return files


def is_local(root: Path, module: str) -> bool:
    """Return whether an absolute import of ``module`` means a file in ``root``: Python's and attnlab's own modules stay."""
    first = module.partition(".")[0]
    return first not in NOT_LOCAL and module_file(root, first) is not None


def module_file(folder: Path, name: str) -> Path | None:
    """Return the file of a module with this dotted name relative to a folder, or None."""
    parts = name.split(".")
    place = folder.joinpath(*parts)
    if not all(parts):
        return None
    return next((file for file in (place / "__init__.py", place.with_name(f"{parts[-1]}.py")) if file.is_file()), None)


def _imported(file: Path, roots: Roots) -> Iterator[tuple[Path, str]]:
    """Yield a folder and a dotted name relative to it for each module that a file may import."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # importing the file fails with a message of its own
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            level, names = 0, [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            prefix = f"{node.module}." if node.module else ""
            level, names = node.level, [f"{prefix}{alias.name}" for alias in node.names]
        else:
            continue
        if level:
            yield from ((file.parents[min(level, len(file.parents)) - 1], name) for name in names)
            continue
        for root, package in roots:
            yield from ((root, name) for name in names if package in (None, name.partition(".")[0]) and is_local(root, name))


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
