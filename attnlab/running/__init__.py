"""The parent's loop, the process of each run, and what a person sees meanwhile."""
