"""Internal: not part of the public interface. What a study's runs leave: models, texts, attention weights."""
