"""Run the programs of a page, one after another, with the installed package: `python readme.py README.md`."""

import re
import sys
from pathlib import Path

import m3g

installed = Path(m3g.__file__)
if Path(sys.prefix) not in installed.parents:
    sys.exit(f"m3g must be the installed package, got {installed}")
page = Path(sys.argv[1]).read_text(encoding="utf-8")
programs = re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S)
if not programs:
    sys.exit(f"{sys.argv[1]} must have at least one program, got none")
exec("".join(programs))
print(f"m3g {m3g.__version__}: ran {len(programs)} of {len(programs)} programs of {sys.argv[1]}")
