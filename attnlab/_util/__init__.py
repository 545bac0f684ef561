"""Internal: not part of the public interface. Helpers that know nothing of attention, tasks or studies."""
