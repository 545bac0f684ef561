"""Internal: not part of the public interface. The parent's loop and the processes of runs."""
