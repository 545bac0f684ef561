"""Speed of attnlab compared with its peers: ``python -m benchmarks.speed [SECTION ...]`` writes ``reports/benchmarks/``.

Every case runs in a fresh process, in an environment that attnlab shares with the peers, and the cases of a comparison take
turns over the rounds. A section is a module with ``cases`` (the cases of one round, in order) and ``measure`` (measures one
case in its own process). ``storage`` writes the results to CSV files, from which ``page`` makes the page.
"""
