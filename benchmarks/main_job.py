"""The main job against a plain loop: the same scans, the same reader, two processes with one thread each."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from receipt_pipeline.app import analyst, maintenance, submitter
from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.request import BATCH_CONTRACT

PROCESSES = 2
WAIT_S = 3_600


def measure_main_job(scans: Sequence[Path], *, manifests: int) -> float:
    """Print and return wall time from acceptance to the last terminal record over the plain loop's.

    The loop runs before and after, and its mean counts: on a shared machine the same work takes a
    quarter longer one minute than the next.
    """
    loops_s = [_plain_loop(scans)]
    served_s, report = _served(scans, manifests=manifests)
    loops_s.append(_plain_loop(scans))
    loop_s = sum(loops_s) / len(loops_s)
    ratio = served_s / loop_s
    print(f"scans {len(scans)}, manifests {manifests}")
    around = f"{loops_s[0]:.1f} s before, {loops_s[1]:.1f} s after"
    print(f"plain loop, {PROCESSES} processes, one thread each: {around}")
    print(f"through inbox, sensors, waves and ledger: {served_s:.1f} s")
    print(f"report: state {report['state']}, gate {report['gate']}, succeeded {report['succeeded']}")
    print(f"asset checks: {report['checks']}, red: {report['red'] or 'none'}")
    print(f"ratio of the main job to the plain loop: {ratio:.3f}")
    return ratio


def _plain_loop(scans: Sequence[Path]) -> float:
    """Return seconds for decoding and reading every scan in a pool; starting the processes is included."""
    with tempfile.TemporaryDirectory() as models:
        started = time.monotonic()
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(
            PROCESSES, mp_context=context, initializer=_load_reader, initargs=(models,)
        ) as pool:
            read = sum(pool.map(_read_one, [str(path) for path in scans]))
        assert read == len(scans)
        return time.monotonic() - started


def _load_reader(models: str) -> None:
    from receipt_pipeline.chain.ocr.engine import RapidOcrEngine
    from receipt_pipeline.chain.ocr.models import place_models

    global _reader
    _reader = RapidOcrEngine(place_models(Path(models)))


def _read_one(path: str) -> int:
    from receipt_pipeline.chain.decode import decode_scan
    from receipt_pipeline.chain.ocr.engine import read_scan

    read_scan(decode_scan(Path(path).read_bytes()), _reader, on_page=lambda: None)
    return 1


def _served(scans: Sequence[Path], *, manifests: int) -> tuple[float, dict[str, object]]:
    """Drop the scans as batch manifests into a served, empty home; return seconds and the account."""
    from receipt_pipeline.runtime.supervisor import running_instance
    from receipt_pipeline.settings import read_settings

    with tempfile.TemporaryDirectory(prefix="receipts-bench-") as folder:
        home = read_settings({**os.environ, "RECEIPTS_HOME": f"{folder}/home"})
        context = open_app(home)
        try:
            with running_instance(home):
                _drop(scans, home.inbox / home.tenant, manifests=manifests)
                rows = _await_all(context, len(scans))
                first = min(row["submitted_at"] for row in rows)
                last = max(row["terminal_at"] for row in rows)
                _await_effects(context, [row["job_id"] for row in rows])
                maintenance.reconcile_everything(context)
                maintenance.publish_report(context)
                report = analyst.read_report(context, context.principal())
                failed = sorted(maintenance.failed_checks(context))
            return (last - first).total_seconds(), {**report, "checks": len(maintenance.CHECK_ASSETS), "red": failed}
        finally:
            context.close()


def _drop(scans: Sequence[Path], inbox: Path, *, manifests: int) -> None:
    per_manifest = -(-len(scans) // manifests)
    for number in range(manifests):
        part = scans[number * per_manifest : (number + 1) * per_manifest]
        rows = []
        for scan in part:
            shutil.copyfile(scan, inbox / scan.name)
            digest = digest_of_bytes(scan.read_bytes()).removeprefix("sha256:")
            rows.append({"idempotency_key": f"bench-{scan.stem}", "uri": scan.name, "sha256": digest})
        temp = inbox / f".batch-{number}.json.tmp"
        temp.write_text(json.dumps({"contract": BATCH_CONTRACT, "rows": rows}))
        temp.rename(inbox / f"batch-{number}.json")


def _await_all(context: AppContext, count: int) -> list[dict[str, Any]]:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        rows = submitter.list_jobs(context, context.principal())
        if len(rows) == count and all(row["terminal_at"] for row in rows):
            return rows
        time.sleep(1)
    raise SystemExit("the main job did not finish within the bound")


def _await_effects(context: AppContext, job_ids: list[str]) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and maintenance.jobs_with_unfinished_effects(context, job_ids):
        time.sleep(1)
