"""Internal: not part of the public interface. The queues and searches of a study, in Optuna."""
