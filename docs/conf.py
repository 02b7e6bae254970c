"""Sphinx configuration. `make docs` builds the pages and treats warnings as errors."""

import re
from importlib.metadata import version as installed_version

from m3g import losses

project = "m3g"
author = "the m3g developers"
release = version = installed_version("m3g")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",  # formulas without a connection
    "sphinxcontrib.bibtex",
]
bibtex_bibfiles = ["references.bib"]
# Result pages include the tables; the gallery reads its own header.
exclude_patterns = ["_build", "results/**/table.md", "how_it_works"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"m3g {release}"
html_show_copyright = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["m3g.css"]
# Options and strings must stay copyable: keep -- and straight quotes.
smartquotes = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["amsmath", "attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Docstrings mark code with single backticks.
default_role = "code"
autosummary_generate = True
# `gram` is a function and `Gram` a class: their pages need different names on case-insensitive file systems.
autosummary_filename_map = {
    f"m3g.losses.{name}": f"m3g.losses.{name}_function" for name in losses.__all__ if name.islower()
}
autodoc_typehints = "signature"
autodoc_type_aliases = {"Views": "Views"}
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_use_rtype = False
napoleon_use_ivar = True

# "How it works": every build runs these scripts, and an error in one aborts the build.
sphinx_gallery_conf = {
    "examples_dirs": ["how_it_works"],
    "gallery_dirs": ["gallery"],
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": r"/step_\d",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 60,
    "remove_config_comments": True,
    "write_computation_times": False,
    "thumbnail_size": (1000, 340),
}


def keep_formulas(app, what, name, obj, options, lines):
    """Escape |x| (a norm) and *shape (unpacking), which reStructuredText reads as a substitution and emphasis."""
    paragraphs = "\n".join(lines).split("\n\n")
    for i, paragraph in enumerate(paragraphs):
        if ".. math::" not in paragraph and ">>>" not in paragraph:
            parts = re.split(r"(`[^`]*`)", paragraph)
            parts[::2] = [re.sub(r"(\||_(?=\W|$)|\*(?=\w+[,)]))", r"\\\1", part) for part in parts[::2]]
            paragraphs[i] = "".join(parts)
    lines[:] = "\n\n".join(paragraphs).split("\n")


def setup(app):
    # Run before napoleon, which adds its own markup.
    app.connect("autodoc-process-docstring", keep_formulas, priority=100)
