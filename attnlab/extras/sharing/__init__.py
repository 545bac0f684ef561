"""Bundles: the record of a study in one file, which others can check, report, and merge with their seeds."""
