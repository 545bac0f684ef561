"""From cells to a plan: names to classes, backends, refusals with their reasons, and what each cell costs."""
