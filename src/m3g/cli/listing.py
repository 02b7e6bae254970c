"""`m3g losses` and `m3g data`: what there is to choose from."""

from __future__ import annotations

import inspect
from typing import Any

DESCRIPTION = {
    "losses": "List the losses that m3g train --loss takes; with a name, its options.",
    "data": "List the data sets that m3g train --data takes; with a name, its options.",
}
USAGE = {"losses": "[NAME]", "data": "[NAME]"}


def arguments(parser: Any, name: str) -> None:
    parser.add_argument("name", type=str, nargs="?", default=None, help="show the options of this one")


def run(args: Any, name: str) -> int:
    if name == "losses":
        from m3g import losses

        if args.name is None:
            print_table(["loss", "what it does", "cost"], losses.describe())
            print("\nm3g losses NAME shows the options of a loss, m3g train --loss NAME uses it.")
        else:
            kind: type = type(losses.build(args.name))
            print(_about(kind))
            print(f"\n--loss {args.name} takes --loss_options.NAME VALUE, where NAME is one of:")
            print_table(["option", "default"], _defaults(kind))
        return 0
    from m3g import _checks, data

    if args.name is None:
        print_table(["data", "what it is"], data.describe())
        print("\nm3g data NAME shows the options of a data set, m3g train --data NAME uses it.")
    else:
        kind = data.MODULES[_checks.one_of("name", args.name, data.MODULES)]
        print(_about(kind))
        print(f"\n--data {args.name} takes --data_options.NAME VALUE, where NAME is one of:")
        print_table(["option", "default"], _defaults(kind))
    return 0


def _about(kind: type) -> str:
    """The documentation of a class without its example, which is Python and not for the command line."""
    return (inspect.getdoc(kind) or "").partition("\nExample:")[0].rstrip()


def _defaults(kind: type) -> list[tuple[str, str]]:
    parameters = inspect.signature(kind).parameters.values()
    return [
        (p.name, "must be given" if p.default is p.empty else str(p.default))
        for p in parameters
        if p.kind is not p.VAR_KEYWORD
    ]


def print_table(head: list[str], rows: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    grid = Table()
    for title in head:
        grid.add_column(title, no_wrap=title == head[0])
    for row in rows:
        grid.add_row(*map(str, row))
    Console().print(grid)
