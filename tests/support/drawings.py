"""Drawings as their shapes."""

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_PATH = re.compile(r"M(\S+?) ([-\d.]+)([HLV])([-\d.]+(?: [-\d.]+)?)")


def parse(drawing: str) -> Element:
    """Parse a plot: each shape with its style, without groups and paths of lines."""
    root = ElementTree.fromstring(drawing.encode("utf-8", errors="replace"))  # names may have characters that are not text
    for parent in [*root.iter()]:
        parent[:] = [shape for child in parent for shape in _shapes(child)]
    return root


def _shapes(element: Element) -> list[Element]:
    """Return the shapes of a group that `_grouped` made or of a path; other elements are left alone."""
    space, _, tag = element.tag.rpartition("}")
    if tag == "g" and not {"clip-path", "transform"} & element.attrib.keys():
        for child in element:
            child.attrib |= element.attrib
        return [*element]
    if tag != "path":
        return [element]
    shapes = []
    for x, y, kind, end in _PATH.findall(element.attrib.pop("d")):
        x2, y2 = end.split() if kind == "L" else (end, y) if kind == "H" else (x, end)
        place = {"x1": x, "y1": y, "x2": x2, "y2": y2}
        shapes.append(Element(f"{space}}}line", place | element.attrib))
    return shapes
