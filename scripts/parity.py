"""Recompute a folder of reference data made with the published code, and compare."""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from launcher import start

if TYPE_CHECKING:
    from parity_groups.case import Case


def main(argv: list[str] | None = None) -> int:
    """Print a line for each group and tolerance; returns 1 if any case failed."""
    from parity_groups import GROUPS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", type=Path, required=True, metavar="DIR", help="folder with <group>.npz files")
    parser.add_argument(
        "--only", nargs="+", metavar="GROUP", choices=list(GROUPS), default=list(GROUPS), help=", ".join(GROUPS)
    )
    options = parser.parse_args(argv)
    total = failures = 0
    for group in options.only:
        try:
            cases = list(GROUPS[group](options.reference))
        except FileNotFoundError as error:
            print(f"parity: {error}", file=sys.stderr)
            return 2
        compared = [case for case in cases if not case.skipped]
        failed = [case for case in compared if case.failed]
        total, failures = total + len(compared), failures + len(failed)
        print(f"{group}: {len(compared)} cases, {len(failed)} failed")
        for tolerance in sorted({f"{case.tolerance:.0e}" for case in compared}, key=float):
            print_kind([case for case in compared if f"{case.tolerance:.0e}" == tolerance], tolerance)
        for case in failed[:20]:
            print(f"  FAILED {case.name}: error {case.error:.3g}, tolerance {case.tolerance:g}")
        for reason, names in skipped(cases).items():
            print(f"  skipped {len(names)} ({reason}): {', '.join(names)}")
    print(f"parity: {total} cases, {failures} failed")
    return 1 if failures else 0


def print_kind(cases: "list[Case]", tolerance: str) -> None:
    """Print how many cases have this tolerance, and the worst of them."""
    worst = max(cases, key=lambda case: case.error)
    print(f"  {len(cases):5} cases   tolerance {tolerance}   largest error {worst.error:.2e}   ({worst.name})")


def skipped(cases: "list[Case]") -> dict[str, list[str]]:
    """Names of the cases that were not compared, by reason."""
    reasons = Counter(case.skipped for case in cases if case.skipped)
    return {reason: [case.name for case in cases if case.skipped == reason] for reason in reasons}


if __name__ == "__main__":
    sys.exit(start(main))
