"""HTML report of finished runs, and comparison of several runs."""

from m3g.report.compare import Measured, comparison, differences
from m3g.report.facts import RunFacts, collect
from m3g.report.page import page

__all__ = ["Measured", "RunFacts", "collect", "comparison", "differences", "page"]
