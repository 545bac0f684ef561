"""Drawings as their shapes."""

from xml.etree import ElementTree
from xml.etree.ElementTree import Element


def parse(drawing: str) -> Element:
    """Parse a plot."""
    return ElementTree.fromstring(drawing.encode("utf-8", errors="replace"))  # names may have characters that are not text
