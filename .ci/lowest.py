"""Print a constraints file with the lowest version of every requirement in pyproject.toml, except torch."""

import re
from importlib.metadata import requires

for requirement in requires("m3g") or []:
    lowest = re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)", requirement)
    if lowest and lowest[1] != "torch":
        print(f"{lowest[1]}=={lowest[2]}")
