"""The gallery: every registered class with its description, formula, picture, options, cost growth and profile."""

import inspect
import re
import sys
from collections.abc import Callable
from functools import cache

from attnlab.components import PLACES
from attnlab.config.types import text
from attnlab.field_names import statements
from attnlab.registry import COMPONENTS, POSITIONS, TASKS, VARIANTS, Registry, options_of, source
from docgen import patterns
from docgen.formulas import is_formula, typeset, typeset_text
from docgen.links import ROOT

BLOCK = re.compile(r"(?<=\n\n)((?: {4}.*(?:\n|$))+)")  # an indented one
PARAGRAPHS = ("Departures from the paper", "Cost:", "Glossary:")  # of a module's docstring
HEAD = """# {title}

{intro}

Dark is large, white is small or zero. Pictures are drawn from the classes, freshly initialized, at length {length}.
"""


def index() -> str:
    """Return the Markdown of the first page of the gallery: a small picture of every class that has one, and all names."""
    text = "# Gallery\n\nEvery variant, component, position scheme and task, with its formula; dark is large.\n"
    registries = {"Variants": VARIANTS, "Components": COMPONENTS, "Position schemes": POSITIONS, "Tasks": TASKS}
    for title, registry in registries.items():
        kind = registry.kind.split()[0]
        shown, names = [], []
        for name in registry.names():
            file = f"{kind}-{name}.png"
            drawn = file in pictures()
            (shown if drawn else names).append(f"[{f'![]({file}){{.pattern}} ' if drawn else ''}{name}]({kind}s.md#{name})")
        text += f"\n## [{title}]({kind}s.md)\n\n{' '.join(shown)}\n\n{', '.join(names)}\n"
    return text


def variants() -> str:
    """Return the Markdown of the gallery of variants."""
    intro = (
        "Modules `(b, t, dim) -> (b, t, dim)` that mix along `t`. The first picture of a variant shows how strongly each "
        "output (row) depends on each input (column); sparse variants also show the masks of their first and last head. "
        "[Write a variant](../how-to/variant.md)."
    )
    return _page("Variants", intro, VARIANTS, _variant)


def components() -> str:
    """Return the Markdown of the gallery of components."""
    intro = (
        "Changes to one place of softmax attention, which combine: `variant: {name: dense, with: [qk_norm, gate]}`. A "
        "component that changes logits or mask by position has a picture of how strongly each output (row) depends on "
        "each input (column). [Write a component](../how-to/component.md#write-a-component)."
    )
    return _page("Components", intro, COMPONENTS, _component)


def positions() -> str:
    """Return the Markdown of the gallery of position schemes."""
    intro = (
        "The ways in which order enters attention: added to the embeddings (`embed`), applied to queries and keys "
        "(`rotate`) or added to the logits (`bias`). Pictures show the added vectors (position by feature), the products "
        "of equal queries and keys, or the bias of the first head; parameters that start as constants are drawn at "
        "random. [Write a position scheme](../how-to/variant.md#a-position-scheme)."
    )
    return _page("Position schemes", intro, POSITIONS, _position)


def tasks() -> str:
    """Return the Markdown of the gallery of tasks."""
    classes = {name: TASKS.get(name) for name in TASKS.names()}
    sections = [
        f"## {name}\n\n{_description(cls)}\n\n{_table(in_a_study('task', name) | _common(cls) | _task(cls))}"
        for name, cls in classes.items()
    ]
    intro = (
        "Data, loss and metric that variants are compared on. [Diagnostics](../diagnostics.md) test one ability each. "
        "For your files see [Use your data](../how-to/data.md), for generated data [Write a task](../how-to/task.md)."
    )
    return f"# Tasks\n\n{intro}\n\n" + "\n".join(sections)


@cache
def pictures() -> dict[str, bytes]:
    """Return file name -> PNG of every picture of the gallery."""
    arrays = {}
    for name in VARIANTS.names():
        layer = patterns.variant(name)
        arrays[f"variant-{name}.png"] = patterns.dependence(layer)
        arrays |= {f"variant-{name}-head-{i}.png": mask for i, mask in enumerate(patterns.masks(layer))}
    arrays |= {f"component-{name}.png": patterns.component_pattern(name) for name in COMPONENTS.names()}
    arrays |= {f"position-{name}.png": patterns.position_pattern(name) for name in POSITIONS.names()}
    return {file: patterns.png(values) for file, values in arrays.items() if values is not None}


def _page(title: str, intro: str, registry: Registry, facts: Callable[[type], dict[str, str]]) -> str:
    kind = registry.kind.split()[0]
    sections = []
    for name in registry.names():
        files = [f"{kind}-{name}.png", *(f"{kind}-{name}-head-{i}.png" for i in (0, 1))]
        shown = " ".join(f"![Pattern of {name}]({file}){{.pattern}}" for file in files if file in pictures())
        cls = registry.get(name)
        sections.append(
            f"## {name}\n\n{_description(cls)}\n\n{shown}\n\n"
            f"{_table(in_a_study(kind, name) | _common(cls) | facts(cls) | _profile(kind, name))}"
        )
    return HEAD.format(title=title, intro=intro, length=patterns.LENGTH) + "\n" + "\n".join(sections)


def _description(cls: type) -> str:
    """Return the docstring of a class's file as Markdown: formulas are indented there, closing remarks are paragraphs here."""
    docstring = inspect.getdoc(sys.modules[cls.__module__]) or ""
    blocks = BLOCK.split(docstring)
    docstring = "".join(_formula(text) if i % 2 else typeset_text(text) for i, text in enumerate(blocks))
    for word in PARAGRAPHS:
        docstring = docstring.replace(f"\n{word}", f"\n\n{word}")
    docstring = re.sub(r"^(Departures from the papers?|Cost|Glossary):", r"**\1.**", docstring, flags=re.MULTILINE)
    return re.sub(r"``(.+?)``", r"`\1`", docstring)


def _formula(block: str) -> str:
    """Return an indented block as HTML if it is a formula, else as it is."""
    lines = [line[4:] for line in block.splitlines()]
    return f"{typeset(lines)}\n" if is_formula(lines) else block


def in_a_study(kind: str, name: str) -> dict[str, str]:
    """Return the lines that state a class of a kind (``variant``, ``component``, ``position`` or ``task``) in a study.

    A line with options is what the field knows under a name of its own, for example Based.
    """
    registry = {"variant": VARIANTS, "component": COMPONENTS, "position": POSITIONS, "task": TASKS}[kind]
    key = "variant" if kind == "component" else kind
    plain = f"variant: {{name: dense, with: [{name}]}}" if kind == "component" else f"{key}: {name}"
    published = [line for line in statements(name, key) if ("with:" in line) == (kind == "component")]
    required = any(parameter.default is parameter.empty for parameter in options_of(registry.get(name)).values())
    lines = published if required else [plain, *published]
    return {"in a study": ", ".join(f"`{line}`" for line in dict.fromkeys(lines))}


def _common(cls: type) -> dict[str, str]:
    options = [f"`{name}`" if p.default is p.empty else f"`{name}: {text(p.default)}`" for name, p in options_of(cls).items()]
    file, _, _ = source(cls).rpartition(":")
    path = file.removeprefix(f"{ROOT}/")
    return {"options": ", ".join(options), "code": f"[{path}](../../{path})"}


def _variant(cls: type) -> dict[str, str]:
    places = [place for place in PLACES if place in cls.places | {"input"}]
    growth = {1.0: "linear in the length", 2.0: "quadratic in the length"}
    return {
        "paper": cls.paper,
        "cost growth": growth.get(cls.cost_exponent, f"length to the power of {cls.cost_exponent:g}"),
        "roles": ", ".join(sorted(cls.roles)),
        "default position scheme": cls.default_position,
        "memory": "yes" if cls.supports_memory else "no",
        "backends": ", ".join(cls.backends),
        "places of components": ", ".join(places),
    }


def _component(cls: type) -> dict[str, str]:
    return {
        "paper": cls.paper,
        "places": ", ".join(cls.places()),
        "roles": ", ".join(sorted(cls.roles)),
        "memory": "yes" if cls.supports_memory else "no",
        "cache": "yes" if cls.supports_cache else "no",
    }


def _position(cls: type) -> dict[str, str]:
    longer = "supported" if cls.extrapolates else "not supported"
    return {"paper": cls.paper, "acts by": cls.hook, "lengths beyond those of training": longer}


def _task(cls: type) -> dict[str, str]:
    better = {"min": "lower is better", "max": "higher is better"}[cls.direction]
    return {"model": cls.kind, "role": cls.role, "metric": f"{cls.metric} ({better})"}


def _profile(kind: str, name: str) -> dict[str, str]:
    page = "reports/profile/README.md"
    known = kind == "variant" and f"](#{name})" in (ROOT / page).read_text(encoding="utf-8")
    return {"profile": f"[its diagnostics](../../{page}#{name})"} if known else {}


def _table(facts: dict[str, str]) -> str:
    rows = "".join(f"| {name} | {value} |\n" for name, value in facts.items() if value)
    return f"| | |\n|---|---|\n{rows}"
