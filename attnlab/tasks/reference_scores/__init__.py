"""Reference scores: simple methods without a network. Internal: not part of the public interface."""
