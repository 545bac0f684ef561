"""The version, where every module can import it from."""

__version__ = "0.2.0"
