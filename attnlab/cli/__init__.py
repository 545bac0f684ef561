"""The command line: one module per verb, each with `HELP`, `add_arguments(parser)` and `main(arguments) -> int`.

Internal: not part of the public interface.
"""
