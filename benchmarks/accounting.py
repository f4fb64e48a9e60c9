"""`python -m benchmarks.accounting`: what a report costs, as ratios to floors measured in the same run."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from sqlalchemy import select

from benchmarks import sets_peer
from benchmarks.bulk_ledger import add_jobs, bulk_ledger
from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.accounting.query import fetch_rows, reading_report
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.jobs import jobs as jobs_table

CHANGES = 1_000


def accountant_of(home: Path) -> Accountant:
    """Return an accountant over the ledger of a measured home."""
    return Accountant(open_ledger(f"sqlite:///{home / 'ledger.db'}"), home / "report", Limits())


def rebuild(home: Path) -> int:
    """Read the whole ledger and publish."""
    return int(publish_report(accountant_of(home), whole=True).document["accepted"])


def refresh(home: Path) -> int:
    """Publish what changed."""
    return int(publish_report(accountant_of(home)).document["accepted"])


def ask(home: Path) -> int:
    """Ask the published report for its figures by class."""
    with reading_report(accountant_of(home).published) as connection:
        return sum(row["jobs"] for row in fetch_rows(connection, sets_peer.REPORT_QUERY))


def copy(home: Path) -> int:
    """Copy the published file in order and sync it: the floor of a refresh."""
    target = home / "copy.duckdb"
    with (home / "report" / "report.duckdb").open("rb") as source, target.open("wb") as copied:
        while block := source.read(1 << 20):
            copied.write(block)
        copied.flush()
        os.fdatasync(copied.fileno())
    size = target.stat().st_size
    target.unlink()
    return size


STEPS: dict[str, Callable[[Path], int]] = {
    "rebuild": rebuild,
    "refresh": refresh,
    "ask": ask,
    "copy": copy,
    "account_of_parquet": sets_peer.account_of_parquet,
    "report_of_parquet": sets_peer.report_of_parquet,
    "sets_of_parquet": sets_peer.sets_of_parquet,
}


def measured(step: str, home: Path) -> dict[str, Any]:
    """Run one step in a process of its own; returns seconds, CPU seconds, peak memory and its answer."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.accounting", "--step", step, "--home", str(home)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def apart(make: Callable[..., Any], *given: Any) -> Any:
    """Prepare something in a process of its own: a child would inherit this one's peak of memory."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(make, *given).result()


def run_step(step: str, home: Path) -> dict[str, Any]:
    """Run one step in this process and measure it."""
    started, used = time.monotonic(), time.process_time()
    answer = STEPS[step](home)
    return {
        "wall_s": time.monotonic() - started,
        "cpu_s": time.process_time() - used,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "answer": answer,
    }


def change_jobs(home: Path, changes: int) -> None:
    """Append one event to each of a number of jobs, picked evenly over all of them."""
    ledger = open_ledger(f"sqlite:///{home / 'ledger.db'}")
    with ledger.reading() as tx:
        known = [str(job_id) for job_id in tx.execute(select(jobs_table.c.job_id)).scalars()]
    picked = random.Random(1).sample(known, min(changes, len(known)))
    with ledger.transaction() as tx:
        for job_id in picked:
            append_event(tx, EventKind.REPLAYED, job_id=job_id)
    ledger.close()


def measure_ledger(jobs: int) -> dict[str, float]:
    """Measure one ledger of this size; returns the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        started = time.monotonic()
        path = apart(bulk_ledger, home, jobs)
        made_s = time.monotonic() - started
        print(f"\nledger of {jobs:,} jobs: {path.stat().st_size / 1e6:,.0f} MB, made in {made_s:.0f} s")
        whole = _printed("full rebuild", measured("rebuild", home))
        apart(change_jobs, home, min(CHANGES, jobs // 10))
        changed = _printed(f"refresh after {min(CHANGES, jobs // 10):,} changed jobs", measured("refresh", home))
        apart(add_jobs, path, max(1, jobs // 100), jobs + 1)
        grown = _printed("refresh after 1 % new jobs", measured("refresh", home))
        asked = _printed("report query", measured("ask", home))
        assert asked["answer"] == grown["answer"] > whole["answer"]
        floor = _printed("floor: copy of the published file, synced", measured("copy", home))
        return {
            "refresh after changes / full rebuild": changed["cpu_s"] / whole["cpu_s"],
            "refresh after 1 % new / full rebuild, CPU": grown["cpu_s"] / whole["cpu_s"],
            "refresh after 1 % new / full rebuild, wall": grown["wall_s"] / whole["wall_s"],
            "refresh after 1 % new / copy, wall": grown["wall_s"] / max(floor["wall_s"], 1e-6),
            "report query / full rebuild": asked["cpu_s"] / whole["cpu_s"],
        }


def measure_parquet(jobs: int) -> dict[str, float]:
    """Measure the report over generated Parquet against source 000's sets; returns the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        size = apart(sets_peer.generate, home, jobs)
        print(f"\n{jobs:,} jobs as Parquet: {size / 1e6:,.0f} MB")
        peer = _printed("source 000's sets", measured("sets_of_parquet", home))
        account = _printed("the account, which says more", measured("account_of_parquet", home))
        report = _printed("view of all jobs, eight joins wide, by class", measured("report_of_parquet", home))
        assert peer["answer"] == account["answer"] == report["answer"] == jobs
        return {
            "account / sets, wall": account["wall_s"] / peer["wall_s"],
            "account / sets, CPU": account["cpu_s"] / peer["cpu_s"],
            "account / sets, peak memory": account["peak_mb"] / peer["peak_mb"],
            "view of all jobs / sets, wall": report["wall_s"] / peer["wall_s"],
            "view of all jobs / sets, CPU": report["cpu_s"] / peer["cpu_s"],
        }


def _printed(name: str, found: dict[str, Any]) -> dict[str, Any]:
    print(f"  {name}: {found['wall_s']:.2f} s, CPU {found['cpu_s']:.2f} s, peak {found['peak_mb']:,.0f} MB")
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="*", default=[100_000, 1_000_000], help="sizes of ledgers")
    parser.add_argument("--parquet-jobs", type=int, default=10_000_000, help="jobs generated as Parquet")
    parser.add_argument("--step", choices=sorted(STEPS), help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(run_step(arguments.step, arguments.home)))
        return
    for jobs in arguments.jobs:
        for name, ratio in measure_ledger(jobs).items():
            print(f"  {name}: {ratio:.3f}")
    if arguments.parquet_jobs:
        for name, ratio in measure_parquet(arguments.parquet_jobs).items():
            print(f"  {name}: {ratio:.3f}")


if __name__ == "__main__":
    main()
