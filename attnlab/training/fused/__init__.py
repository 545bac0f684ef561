"""Several seeds of one configuration trained as one batched model (``run: {fuse: seeds}``)."""
