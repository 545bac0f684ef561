"""Measure the time and memory of attention layers, each case in a process of its own.

Internal: not part of the public interface.
"""
