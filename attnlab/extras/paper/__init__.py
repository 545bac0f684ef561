"""LaTeX of a study for a paper: tables, figures, methods, an appendix and the bibliography, made from its page."""
