"""Time to the verdict of a study: ``python -m benchmarks.verdict``.

The seven cells of ``ablations/quickstart.yaml`` with five seeds each, by ``attnlab run`` with its defaults, against the same
trainings by peers, as a shell loop runs them: one process for each run, one after another with the default threads, or two at
a time with half of the processors each. Every way is timed from the start of its first process to its last result, and the
ways take turns.

``script`` trains one run of a peer, ``ways`` starts the processes, ``__main__`` measures, and ``tables`` describes the results.
"""
