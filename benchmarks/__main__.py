"""`python -m benchmarks`: prints the ratios of this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.main_job import measure_main_job
from benchmarks.scans import scans_to_measure


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scans", type=Path, default=None, help="folder of scans; drawn ones otherwise")
    parser.add_argument("--count", type=int, default=20, help="how many scans")
    parser.add_argument("--manifests", type=int, default=3, help="over how many batch manifests")
    arguments = parser.parse_args()
    with scans_to_measure(arguments.scans, arguments.count) as scans:
        measure_main_job(scans, manifests=arguments.manifests)


if __name__ == "__main__":
    main()
