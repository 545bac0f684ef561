"""The cause of a failed check of a variant or a position scheme: what was seen, not which check failed.

A forward pass shows what may be wrong: arguments or attributes that it changes, random numbers, operations over positions or
over the batch. Each of these is removed in turn, and the check repeated: if it passes, that was the cause. Otherwise the
pattern of the outputs that change tells apart what remains.
"""

from attnlab.testing.diagnosis.causes import Diagnosis
from attnlab.testing.diagnosis.evidence import Cause

__all__ = ["Cause", "Diagnosis"]
