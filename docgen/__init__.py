"""The documentation site: pages and reports are written into a folder, which Sphinx then reads (`make docs`)."""
