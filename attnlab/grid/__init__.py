"""From YAML to cells: strict reading with the place of every mistake, and the product of the axes. No torch."""
