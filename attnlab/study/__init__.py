"""Internal: not part of the public interface. Studies: queueing, training and resuming many runs."""
