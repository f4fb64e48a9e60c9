"""Simulates many seeds on every core, and tells the shortest story of one that breaks an invariant."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from receipt_pipeline_tests.chaos.simulator.ledger import LedgerBench
from receipt_pipeline_tests.chaos.simulator.seed import SeedReport, simulate_seed

SEEDS_A_SHARE = 5
SHRINK_RUNS_MAX = 24
# Statements are made of many short-lived objects, and hardly any of them is part of a cycle.
GARBAGE_THRESHOLD = 100_000

Progress = Callable[[int, int], None]


def tell_nobody(done: int, violations: int) -> None:
    """Stand in where nobody waits for progress."""


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What a number of seeds came to; times in seconds of wall clock and processor."""

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
        mishaps = Counter(decision.mishap.value for report in self.reports for decision in report.made)
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
            "faults": dict(sorted(mishaps.items())),
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "seeds_per_second": round(len(self.reports) / self.seconds, 2) if self.seconds else 0.0,
            "processes": self.processes,
        }


def _spread(numbers: Sequence[int]) -> dict[str, int]:
    middle = sorted(numbers)[len(numbers) // 2] if numbers else 0
    return {"min": min(numbers, default=0), "median": middle, "total": sum(numbers)}


def simulate(seeds: Sequence[int], *, progress: Progress = tell_nobody) -> SimulationReport:
    """Simulate the seeds, a process a core over shares of them, and shorten the story of each broken one."""
    started, spent = time.monotonic(), _cpu_s()
    processes = min(_cores(), -(-len(seeds) // SEEDS_A_SHARE))
    shares = [seeds[start : start + SEEDS_A_SHARE] for start in range(0, len(seeds), SEEDS_A_SHARE)]
    reports: list[SeedReport] = []
    for share in _worked_off(shares, processes):
        reports += share
        progress(len(reports), sum(bool(report.violations) for report in reports))
    reports.sort(key=lambda report: report.seed)
    return SimulationReport(tuple(reports), time.monotonic() - started, _cpu_s() - spent, max(1, processes))


def _worked_off(shares: Sequence[Sequence[int]], processes: int) -> Iterator[list[SeedReport]]:
    if processes <= 1:
        yield from map(simulate_share, shares)
        return
    # A forked process has everything imported already; elsewhere each one begins anew.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with context.Pool(processes) as pool:
        yield from pool.imap_unordered(simulate_share, shares)


def simulate_share(seeds: Sequence[int]) -> list[SeedReport]:
    """Simulate some seeds in this process; only a broken seed keeps its tale."""
    bench = this_process_bench()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 50, 50)
    reports = [simulate_seed(bench, seed) for seed in seeds]
    return [
        shortest_story(bench, report) if report.violations else replace(report, tale=()) for report in reports
    ]


@functools.cache
def this_process_bench() -> LedgerBench:
    """Return the ledger bench of this process, made once."""
    return LedgerBench()


def shortest_story(bench: LedgerBench, report: SeedReport) -> SeedReport:
    """Return the same seed with as few mishaps as the bound of runs finds while the violation stays.

    What goes wrong is left out in halves, quarters and so on, down to single decisions.
    """
    wanted = {violation.invariant for violation in report.violations}
    best, disabled, runs = report, frozenset[int](), 0
    size = len(report.made)
    while size >= 1 and runs < SHRINK_RUNS_MAX:
        numbers = [decision.number for decision in best.made]
        for start in range(0, len(numbers), size):
            if runs >= SHRINK_RUNS_MAX:
                break
            attempt = disabled | set(numbers[start : start + size])
            again = simulate_seed(bench, report.seed, disabled=attempt)
            runs += 1
            if wanted & {violation.invariant for violation in again.violations}:
                best, disabled = again, attempt
        size //= 2
    return best


def story(report: SeedReport) -> str:
    """Return what happened in a seed, as text: the same seed tells the same story byte for byte."""
    count = len(report.violations)
    head = f"seed {report.seed}: {report.jobs} jobs, {report.workers} workers, {count} violations"
    broken = [
        f"BROKEN {violation.invariant}: {violation.job_id or 'no job'}: {violation.detail}"
        for violation in report.violations
    ]
    return "\n".join([head, *broken, *report.tale]) + "\n"


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_s() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))
