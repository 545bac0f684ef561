"""Measure the time and memory of attention layers, each case in a separate process.

Internal: not part of the public interface.
"""
