"""The version, where every module can import it from."""

__version__ = "0.9.0"
