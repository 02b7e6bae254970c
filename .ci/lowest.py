"""Print a constraints file: the lowest version that pyproject.toml allows of everything but torch."""

import re
from importlib.metadata import requires

for requirement in requires("m3g") or []:
    lowest = re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)", requirement)
    if lowest and lowest[1] != "torch":
        print(f"{lowest[1]}=={lowest[2]}")
