"""Parser of cost expressions such as "0.5*cv + 0.5*product[16:]"."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from m3g import _checks
from m3g.costs.composed import SumCost
from m3g.costs.problem import Cost

_NUMBER = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+"
_TERM = re.compile(
    rf"""\s* (?: (?P<weight>{_NUMBER}) \s* \* \s* )?
    (?P<name>[A-Za-z][\w-]*) \s*
    (?P<range>\[ \s* (?P<start>{_NUMBER})? \s* : \s* (?P<stop>{_NUMBER})? \s* \] \s*)?
    (?P<end>\+|$)""",
    re.VERBOSE,
)


def read_cost(text: str, named: Mapping[str, Callable[[], Cost]]) -> Cost:
    """Parse a cost expression: terms `weight * name[start:stop]` joined by "+"; weight and range are optional.

    In a range, a whole number is the index of a feature; any other number, such as 0.5, is a fraction of all features.

    Example:
        >>> from m3g.costs import NAMED
        >>> read_cost("0.5*cv[:0.5] + product[16:]", NAMED)
        0.5 * CircularVariance(scale='definition')[:0.5] + MultilinearProduct()[16:]
    """
    if not isinstance(text, str) or not any(sign in text for sign in "*+["):
        return named[_checks.one_of("cost", text, named)]()
    terms: list[tuple[float, Cost]] = []
    position, more = 0, True
    while more:
        term = _TERM.match(text, position)
        if term is None:
            raise ValueError(
                "cost must be a sum of terms such as '0.5*cv[:16] + 0.5*product[16:]', "
                f"got {text!r}, which is invalid from {text[position:].strip()!r} on."
            )
        cost = named[_checks.one_of("cost", term["name"], named)]()
        if term["range"]:
            cost = cost[_bound(term["start"]) : _bound(term["stop"])]
        terms.append((float(term["weight"] or 1), cost))
        position, more = term.end(), term["end"] == "+"
    return terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else SumCost.of(terms)


def _bound(text: str | None) -> int | float | None:
    if text is None:
        return None
    return int(text) if text.isdigit() else float(text)
