"""Measure the time and memory of attention layers, each case in a separate process; see `attnlab.extras.bench.suite`."""
