"""Sphinx settings: `make docs` builds these pages, and every warning is an error."""

import re
from importlib.metadata import version as installed_version

project = "m3g"
author = "the m3g developers"
release = version = installed_version("m3g")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "results/*/table.md"]  # tables are included in the pages beside them
html_theme = "furo"
html_title = f"m3g {release}"
html_show_copyright = False
# Options and strings are there to be copied: no dashes for --, no curly quotes.
smartquotes = False

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Docstrings quote code with single backticks and write shapes as they are.
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
napoleon_use_rtype = False
napoleon_use_ivar = True


def keep_formulas(app, what, name, obj, options, lines):
    """In a docstring |x| is a norm and *shape unpacks, where reStructuredText would see a substitution and emphasis."""
    paragraphs = "\n".join(lines).split("\n\n")
    for i, paragraph in enumerate(paragraphs):
        if ".. math::" not in paragraph and ">>>" not in paragraph:
            parts = re.split(r"(`[^`]*`)", paragraph)
            parts[::2] = [re.sub(r"(\||_(?=\W|$)|\*(?=\w+[,)]))", r"\\\1", part) for part in parts[::2]]
            paragraphs[i] = "".join(parts)
    lines[:] = "\n\n".join(paragraphs).split("\n")


def setup(app):
    # Before napoleon, which adds markup of its own.
    app.connect("autodoc-process-docstring", keep_formulas, priority=100)
