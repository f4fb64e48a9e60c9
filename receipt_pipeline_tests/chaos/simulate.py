"""The simulator: `python -m receipt_pipeline_tests.chaos.simulate` runs seeds and checks every invariant."""

from __future__ import annotations

import argparse
import functools
import gc
import json
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from receipt_pipeline_tests.chaos.simulator.ledger import MemoryDatabase
from receipt_pipeline_tests.chaos.simulator.seed import SeedReport, simulate_seed

SEEDS = 1_000
SEEDS_PER_SHARE = 5
SHRINK_RUNS_MAX = 24
# Statements are made of many short-lived objects, and hardly any of them is part of a cycle.
GARBAGE_THRESHOLD = 100_000

Progress = Callable[[int, int], None]


def ignore_progress(done: int, violations: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """The reports of a number of seeds; times in seconds of wall clock and processor."""

    reports: tuple[SeedReport, ...]
    seconds: float
    cpu_seconds: float
    processes: int

    @property
    def broken(self) -> tuple[SeedReport, ...]:
        """Return the seeds that broke an invariant."""
        return tuple(report for report in self.reports if report.violations)

    def as_document(self) -> dict[str, Any]:
        """Return counts, violations and speed as plain JSON."""
        faults = Counter(decision.fault.value for report in self.reports for decision in report.made)
        return {
            "seeds": len(self.reports),
            "violations": [
                {
                    "seed": report.seed,
                    "invariant": violation.invariant,
                    "job_id": violation.job_id,
                    "detail": violation.detail,
                }
                for report in self.broken
                for violation in report.violations
            ],
            "jobs": _spread([report.jobs for report in self.reports]),
            "workers": _spread([report.workers for report in self.reports]),
            "fault_decisions": _spread([report.decisions for report in self.reports]),
            "faults": dict(sorted(faults.items())),
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "seeds_per_second": round(len(self.reports) / self.seconds, 2) if self.seconds else 0.0,
            "processes": self.processes,
        }


def _spread(numbers: Sequence[int]) -> dict[str, int]:
    middle = sorted(numbers)[len(numbers) // 2] if numbers else 0
    return {"min": min(numbers, default=0), "median": middle, "total": sum(numbers)}


def simulate(seeds: Sequence[int], *, progress: Progress = ignore_progress) -> SimulationReport:
    """Simulate the seeds, one process per core; each broken seed gets its shortest log."""
    started, spent = time.monotonic(), _cpu_s()
    processes = min(_cores(), -(-len(seeds) // SEEDS_PER_SHARE))
    shares = [seeds[start : start + SEEDS_PER_SHARE] for start in range(0, len(seeds), SEEDS_PER_SHARE)]
    reports: list[SeedReport] = []
    for share in _simulated(shares, processes):
        reports += share
        progress(len(reports), sum(bool(report.violations) for report in reports))
    reports.sort(key=lambda report: report.seed)
    return SimulationReport(tuple(reports), time.monotonic() - started, _cpu_s() - spent, max(1, processes))


def _simulated(shares: Sequence[Sequence[int]], processes: int) -> Iterator[list[SeedReport]]:
    if processes <= 1:
        yield from map(simulate_share, shares)
        return
    # A forked process has everything imported already.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with context.Pool(processes) as pool:
        yield from pool.imap_unordered(simulate_share, shares)


def simulate_share(seeds: Sequence[int]) -> list[SeedReport]:
    """Simulate some seeds in this process; only a broken seed keeps its log."""
    database = process_database()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 50, 50)
    reports = [simulate_seed(database, seed) for seed in seeds]
    return [shrink(database, report) if report.violations else replace(report, log=()) for report in reports]


@functools.cache
def process_database() -> MemoryDatabase:
    """Return the simulated database of this process, made once."""
    return MemoryDatabase()


def shrink(database: MemoryDatabase, report: SeedReport) -> SeedReport:
    """Return the same seed with as few faults as a bounded search finds while the violation remains.

    Faults are left out in halves, quarters and so on, down to single decisions.
    """
    wanted = {violation.invariant for violation in report.violations}
    best, disabled, runs = report, frozenset[int](), 0
    size = len(report.made)
    while size >= 1 and runs < SHRINK_RUNS_MAX:
        numbers = [decision.number for decision in best.made]
        for start in range(0, len(numbers), size):
            if runs >= SHRINK_RUNS_MAX:
                break
            candidate = disabled | set(numbers[start : start + size])
            repeated = simulate_seed(database, report.seed, disabled=candidate)
            runs += 1
            if wanted & {violation.invariant for violation in repeated.violations}:
                best, disabled = repeated, candidate
        size //= 2
    return best


def log_text(report: SeedReport) -> str:
    """Return what happened in a seed as text; the same seed gives the same text byte for byte."""
    count = len(report.violations)
    head = f"seed {report.seed}: {report.jobs} jobs, {report.workers} workers, {count} violations"
    broken = [
        f"BROKEN {violation.invariant}: {violation.job_id or 'no job'}: {violation.detail}"
        for violation in report.violations
    ]
    return "\n".join([head, *broken, *report.log]) + "\n"


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_s() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))


# The command.


def parser() -> argparse.ArgumentParser:
    """Return the options of the command."""
    made = argparse.ArgumentParser(
        prog="simulate",
        description="Simulate callers, workers and sweeps under faults in virtual time and check every"
        " invariant. Exit status 1 when one is broken.",
    )
    made.add_argument("--seeds", type=_count, default=0, help=f"number of seeds ({SEEDS} by default)")
    made.add_argument(
        "--seed", type=_count, default=None, help="first seed; without --seeds, only this one with its log"
    )
    made.add_argument("--json", action="store_true", help="print one JSON document on standard output")
    return made


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns 0, or 1 when an invariant is broken."""
    options = parser().parse_args(arguments)
    single = options.seed is not None and not options.seeds
    first = options.seed or 0
    if single and not options.json:
        report = simulate_seed(process_database(), first)
        sys.stdout.write(log_text(report))
        return int(bool(report.violations))
    wanted = range(first, first + (1 if single else options.seeds or SEEDS))
    found = simulate(wanted, progress=_show_progress(len(wanted)))
    document = found.as_document()
    if options.json:
        print(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        for name, value in document.items():
            print(f"{name}: {len(value) if isinstance(value, list) else value}")
    for broken in found.broken:
        sys.stderr.write(log_text(broken))
    return int(bool(found.broken))


def _show_progress(total: int) -> Progress:
    def show(done: int, violations: int) -> None:
        if done % 100 < SEEDS_PER_SHARE or done == total:
            print(f"{done} of {total} seeds, {violations} broken", file=sys.stderr)

    return show


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
