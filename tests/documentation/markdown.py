"""Code and commands of a page, in the order of its text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

from attnlab.cli.main import VERBS

CODE = re.compile(
    r'^(?P<indent> *)```(?P<language>\w*)(?: title="(?P<title>.+?)")?\n(?P<fenced>.*?)^(?P=indent)```$'
    r"|(?<=\n\n)(?P<indented>(?:    [^\n]+\n|\n(?=    ))+)"
    r"|`(?P<inline>[^`]+)`",
    flags=re.MULTILINE | re.DOTALL,
)
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
PROGRAMS = ("attnlab", "apt-get", "bash", "cd", "eval", "export", "make", "pip", "pytest", "python", "python3")
PROGRAMS += ("sbatch", "source", "ssh", "wandb")
COMPLETE_ALONE = ("list", "schema")  # verbs without a required argument; other verbs alone are names in a sentence


@dataclass(frozen=True)
class Code:
    """Code of a page.

    Attributes:
        kind: The language of a fenced block, "" without one; "indented", or "inline".
        text: The code.
        title: The name of the file that a fenced block shows, or "".
    """

    kind: str
    text: str
    title: str = ""

    def commands(self) -> Iterator[str]:
        """Yield the commands of a shell in this code, without comments; a comment `# or: COMMAND` is one, too."""
        if self.kind in ("bash", "sh", "indented"):
            for line in self.text.splitlines():
                text = re.sub(r"^# or: ", "", line)
                yield from filter(None, re.sub(r"(^|\s+)#.*", "", text).split(" && "))
        elif self.kind == "inline" and is_command(text := " ".join(self.text.split())):
            yield text


def is_command(text: str) -> bool:
    """Return True if inline code is a command, not the name of a program or of a verb."""
    words = text.split()
    while words and ASSIGNMENT.fullmatch(words[0]):
        del words[0]
    if len(words) < 2 or words[0] not in PROGRAMS:
        return False
    return words[0] != "attnlab" or len(words) > 2 or words[1] not in VERBS.names() or words[1] in COMPLETE_ALONE


def read_code(markdown: str) -> Iterator[Code]:
    """Yield the code of a page of Markdown: its fenced and indented blocks, and what stands between backticks."""
    for match in CODE.finditer(markdown):
        if match["fenced"] is not None:
            yield Code(match["language"], dedent(match["fenced"]), match["title"] or "")
        elif match["indented"] is not None:
            yield Code("indented", dedent(match["indented"]))
        else:
            yield Code("inline", match["inline"])
