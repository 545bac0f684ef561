"""Internal: not part of the public interface. Configuration: from YAML to validated, typed cells, without torch."""
