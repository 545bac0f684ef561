"""Configuration of Sphinx, which reads the pages that ``python -m docgen`` writes."""

import os
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyClasslike

import attnlab

project = "attnlab"
version = release = attnlab.__version__
html_title = f"attnlab {version}"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
highlight_language = "text"
smartquotes = False  # names of options begin with two hyphens

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4

default_role = "code"  # `name` in a docstring
autoclass_content = "both"
autodoc_inherit_docstrings = False
autodoc_default_options = {"members": True, "member-order": "bysource"}
napoleon_numpy_docstring = False
napoleon_use_rtype = False  # shapes before their description
napoleon_use_ivar = True  # attributes are fields of their class, not objects
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
copybutton_exclude = ".linenos, .gp, .go"  # prompts and output

# Types of other projects lead to their documentation. Its inventories need a network: only the published site has these links.
if os.environ.get("ATTNLAB_PUBLISH"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3/", None),
        "torch": ("https://docs.pytorch.org/docs/stable/", None),
        "pandas": ("https://pandas.pydata.org/docs/", None),
    }

# The site opens offline: nothing is loaded from a network, and the search reads no other pages.
html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "header_links_before_dropdown": 7,
    "logo": {"text": html_title},
    "navbar_persistent": ["search-button"],
    "navigation_with_keys": False,
    "show_prev_next": False,
    "footer_start": [],
    "footer_end": [],
}
html_sidebars = {page: [] for page in ("index", "tutorial", "reports/**", "files/**", "search")}
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = html_show_search_summary = html_use_index = html_domain_indices = False


def setup(app: Sphinx) -> None:
    """Make signatures of dataclasses readable, call attributes by their name, and write dashes before descriptions."""
    app.connect("autodoc-process-signature", _signature)
    app.connect("doctree-read", _dashes)
    for field in PyClasslike.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"


def _signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None) -> Any:
    return signature and signature.replace("<factory>", "..."), returns


def _dashes(app: Sphinx, doctree: nodes.document) -> None:
    for text in [node for node in doctree.findall(nodes.Text) if node == " -- "]:
        text.parent.replace(text, nodes.Text(" \N{EN DASH} "))
