"""Reports: the pages, tables and plots of finished studies.

Internal: not part of the public interface.
"""
