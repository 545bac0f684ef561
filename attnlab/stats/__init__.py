"""Statistics over seeds: intervals, paired differences and verdicts.

Internal: not part of the public interface.
"""
