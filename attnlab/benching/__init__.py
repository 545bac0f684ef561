"""One case of `attnlab bench`: the layer that is measured, and the process that measures it."""
