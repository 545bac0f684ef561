"""Plots as SVG text.

Internal: not part of the public interface.
"""
