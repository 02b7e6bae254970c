"""Search for trusted but wrong results of the sampled solver: random problems compared with a dense solve.

    python tests/fuzz/sampled_trust.py --problems 5000 --start 0
    python tests/fuzz/sampled_trust.py --problems 500 --products

Prints a table of outcomes, and every problem whose value deviates by more than five standard errors although the solve
converged without a warning. The exit code is 1 if there is such a problem.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from fuzz.sampled_problems import MAX_TUPLES, Case, draw, draw_product, true_value
from m3g.solvers import SamplingWarning

# Relative rounding of the reference itself.
REFERENCE_ROUNDING = 1e-8


@dataclass(frozen=True)
class Verdict:
    """One solve and the exact value."""

    case: Case
    value: float
    truth: float | None
    standard_error: float
    trusted: bool
    seconds: float

    @property
    def score(self) -> float:
        """Return the distance from the exact value in standard errors."""
        if self.truth is None:
            return float("nan")
        deviation = max(0.0, abs(self.value - self.truth) - REFERENCE_ROUNDING * (1 + abs(self.truth)))
        return deviation / self.standard_error if self.standard_error > 0 else (0.0 if deviation == 0 else float("inf"))

    @property
    def wrong(self) -> bool:
        return self.trusted and self.score > 5

    def __str__(self) -> str:
        return (
            f"{self.case}\n    {self.value:.6g} ± {self.standard_error:.2g}, truth {self.truth}, "
            f"{self.score:.1f} standard errors, {'trusted' if self.trusted else 'not trusted'}"
        )


def judge(case: Case, **settings: Any) -> Verdict:
    truth = true_value(case)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = case.solve(**settings)
    seconds = time.perf_counter() - start
    warned = any(issubclass(warning.category, SamplingWarning) for warning in caught)
    trusted = solution.converged and not warned
    return Verdict(case, float(solution.value), truth, float(solution.standard_error), trusted, seconds)


def table(verdicts: Iterable[Verdict]) -> str:
    verdicts = list(verdicts)
    known = [verdict for verdict in verdicts if verdict.truth is not None]
    trusted = [verdict for verdict in known if verdict.trusted]
    counts = Counter(
        tried=len(verdicts),
        without_reference=len(verdicts) - len(known),
        trusted=len(trusted),
        within_two=sum(verdict.score <= 2 for verdict in trusted),
        beyond_three=sum(verdict.score > 3 for verdict in trusted),
        wrong=sum(verdict.wrong for verdict in trusted),
        untrusted_but_accurate=sum(verdict.score <= 5 for verdict in known if not verdict.trusted),
    )
    lines = [f"{name.replace('_', ' '):>20} {count}" for name, count in counts.items()]
    if trusted:
        lines.append(f"{'within two':>20} {counts['within_two'] / len(trusted):.1%} of the trusted")
        lines.append(f"{'not trusted':>20} {1 - len(trusted) / len(known):.1%}")
        lines.append(f"{'seconds a solve':>20} {sum(verdict.seconds for verdict in verdicts) / len(verdicts):.3f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--most-tuples", dest="max_tuples", type=int, default=MAX_TUPLES)
    parser.add_argument("--products", action="store_true", help="products of five to seven views only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    verdicts = []
    for seed in range(arguments.start, arguments.start + arguments.problems):
        case = draw_product(seed) if arguments.products else draw(seed, max_tuples=arguments.max_tuples)
        verdicts.append(judge(case))
        if verdicts[-1].wrong:
            print(verdicts[-1], flush=True)
    print(table(verdicts))
    return int(any(verdict.wrong for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
