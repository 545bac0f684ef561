"""The generated part of the documentation site: gallery, reference and committed studies (`make docs`)."""
