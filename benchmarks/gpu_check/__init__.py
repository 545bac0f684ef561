"""Does attnlab work on this GPU, how fast is it, and is the estimate of its memory right?

The check is a list of steps in the order of their worth (``STEPS`` in ``page``). Each step is a list of cases that run in
separate processes, with a time limit. The result of a case is written as a line of ``results.jsonl`` as soon as it is
there, so that an end at any moment loses nothing, and a second call continues with the cases that have no result.
"""
