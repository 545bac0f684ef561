"""Components that levels of axes add to the variant of a cell: the base's first, then each axis's in order."""

import copy
from collections.abc import Sequence
from typing import Any

from attnlab.config.levels import FieldSetting
from attnlab.config.types import WITH
from attnlab.config.yaml import Loc


def add_components(fields: dict[str, Any], setting: FieldSetting) -> None:
    """Add the components of a setting to the variant of a cell, in place."""
    variant = fields.get("variant")
    variant = variant if isinstance(variant, dict) else {"name": variant}
    components = [*_components(variant.get(WITH)), *_components(copy.deepcopy(setting.value))]
    fields["variant"] = {**variant, WITH: components}


def with_components_of(variant: Any, base: Any) -> Any:
    """Return a variant as a study writes it, with the components of ``base`` if it names none itself."""
    if not isinstance(base, dict) or WITH not in base or (isinstance(variant, dict) and WITH in variant):
        return variant
    return {**(variant if isinstance(variant, dict) else {"name": variant}), WITH: base[WITH]}


def added_loc(settings: Sequence[FieldSetting], fields: dict[str, Any], loc: Loc) -> Loc | None:
    """Return the location in the study of a component that a setting adds; None for one that no setting adds.

    Args:
        settings: those that add components, in order.
        fields: of the cell without added components.
        loc: ``("variant", "with", index, ...)`` in the configuration of the cell.
    """
    if len(loc) < 3 or not isinstance(loc[2], int):
        return None
    variant = fields.get("variant")
    index = loc[2] - len(_components(variant.get(WITH) if isinstance(variant, dict) else None))
    for setting in settings:
        count = len(_components(setting.value))
        if 0 <= index < count:
            rest = (index, *loc[3:]) if isinstance(setting.value, list) else loc[3:]
            return (*setting.loc, *rest)
        index -= count
    return None


def _components(value: Any) -> list[Any]:
    """Return the value of ``with`` as a list: a single component needs none in a study."""
    return [] if value is None else value if isinstance(value, list) else [value]
