"""Measure the time and memory of attention layers, each case in a process of its own; see `attnlab.extras.bench.suite`."""
