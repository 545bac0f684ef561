"""The page of a profile: the abilities of a variant in words, plots and tables, next to other variants."""
