"""Does attnlab work on this GPU, how fast is it, and is the estimate of its memory right?

The check is a list of steps in the order of their worth (``STEPS``). Each step is a list of cases that run in processes of
their own, with a time limit. The result of a case is written as a line of ``results.jsonl`` as soon as it is there, so that
an end at any moment loses nothing, and a second call continues with the cases that have no result.
"""

from attnlab.extras.gpu_check import agreement, card, headline, memory, resume, several, sparse, training_step
from attnlab.extras.gpu_check.step import Step

STEPS = (
    Step("card", "The card", 60, card.cases, card.summarize),
    Step("agreement", "Agreement with float64 on the CPU", 240, agreement.cases, agreement.summarize, processes=12),
    Step("memory", "Peak memory of a training step", 60, memory.cases, memory.summarize),
    Step("step", "Time of a training step", 100, training_step.cases, training_step.summarize),
    Step("sparse", "Sparse attention", 60, sparse.cases, sparse.summarize),
    Step("several", "Several runs on one card", 120, several.cases, several.summarize),
    Step("resume", "A killed and resumed run", 90, resume.cases, resume.summarize),
    Step("headline", "enwik8 in the time that is left", 3600, headline.cases, headline.summarize),
)
