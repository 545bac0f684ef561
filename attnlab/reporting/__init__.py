"""The parts of a report: rows to compare, figures, and how it was measured."""
