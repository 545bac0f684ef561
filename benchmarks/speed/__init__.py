"""attnlab beside its peers, timed side by side: ``python -m benchmarks.speed [SECTION ...]`` writes ``reports/benchmarks/``.

Every case runs in a fresh process, in the one environment that attnlab shares with the peers, and the cases of a comparison
take turns over the rounds. A section is a module with ``cases`` (one round of it, in order) and ``measure`` (one case, in its
own process); ``page`` reads the CSV files that come of it and nothing else.
"""
