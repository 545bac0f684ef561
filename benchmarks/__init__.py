"""Benchmarks of attnlab against its peers and targets: commands that write pages under ``reports/``."""
