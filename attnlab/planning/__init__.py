"""Planning: resolve the cells of a study, refuse those that cannot run, and estimate the cost of the others.

Internal: not part of the public interface.
"""
