"""Optuna's part of a study: the queue of what is to be run, and the search in each cell. Only here is optuna imported."""
