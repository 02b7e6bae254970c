"""Run the console sessions of the documentation: `$ m3g ...` lines, each followed by its output."""

import contextlib
import doctest
import io
import re
import shlex

from m3g.cli import main


def run_console(text):
    """Run every command of a session and compare its output with the page, where `...` matches anything."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = command[:-1] + more.removeprefix("> ")
        printed = io.StringIO()
        words = shlex.split(command, comments=True)
        assert words[0] == "m3g", f"only m3g is run, not {command}"
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = main(words[1:])
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        output = printed.getvalue()
        assert code == (2 if shown.startswith("m3g: error") else 0), f"{command}\n{output}"
        if shown.strip():
            assert doctest.OutputChecker().check_output(shown, output, options), f"{command}\n{output}"
