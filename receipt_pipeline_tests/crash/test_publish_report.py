"""Publication and its readers: killed, locked, spoilt or out of space, somebody can always read a report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest
from filelock import FileLock

from receipt_pipeline.accounting import publish
from receipt_pipeline.accounting.checks import ACCOUNTING_CHECKS
from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.publish import export_ledger, publish_report
from receipt_pipeline.accounting.query import read_published, run_query
from receipt_pipeline.core.errors import ReportFault
from receipt_pipeline.core.failure_points import install_plan, remove_plan
from receipt_pipeline.core.reasons import REPORT_BUSY, REPORT_UNREADABLE, STORAGE_FULL
from receipt_pipeline.drill.failure_plan import DrillFault, Fault, Plan, PlannedFault
from receipt_pipeline.durable_files import write_whole
from receipt_pipeline_tests.builders import an_accepted_job
from receipt_pipeline_tests.crash.talking_child import CHILD_S_MAX, child, end, hear, tell

# Opens the file for writing like a careless analyst, changes it, and ends without a checkpoint.
ANALYST = """
import duckdb, os, signal, sys
connection = duckdb.connect(sys.argv[1])
connection.execute("SET checkpoint_threshold = '1GB'")
connection.execute("CREATE TABLE notes AS SELECT range AS n FROM range(1000)")
print("holding", flush=True)
sys.stdin.readline()
connection.execute("CREATE TABLE more_notes AS SELECT range AS n FROM range(1000)")
print("wrote", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""
# Opens the published file by its name once and again, as an analyst's tool does.
READER = """
import duckdb, sys
read = 0
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "stop":
        break
    with duckdb.connect(sys.argv[1], read_only=True) as connection:
        (jobs,), = connection.execute("SELECT count(*) FROM job_report").fetchall()
        print(jobs, flush=True)
"""
PUBLISHER = """
import sys
from pathlib import Path
from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.core.failure_points import install_plan
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.drill.failure_plan import Plan, read_plan
from receipt_pipeline.ledger.engine import open_ledger
install_plan(Plan(read_plan(sys.argv[3])))
publish_report(Accountant(open_ledger(sys.argv[1]), Path(sys.argv[2]), Limits()))
"""


def jobs_reported(accountant: Accountant) -> int:
    with duckdb.connect(str(accountant.published), read_only=True) as connection:
        rows = connection.execute("SELECT count(*) FROM job_report").fetchall()
    return int(rows[0][0])


def publish_and_count(accountant: Accountant) -> int:
    an_accepted_job(accountant.ledger)
    publish_report(accountant)
    return jobs_reported(accountant)


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".publish.lock"}


@pytest.mark.parametrize(("side", "seen"), [("before", 1), ("after", 2)])
def test_a_publication_killed_at_its_boundary_leaves_the_old_or_the_new_report(
    accountant: Accountant, sqlite_ledger_url: str, side: str, seen: int
) -> None:
    an_accepted_job(accountant.ledger)
    plan = f'[{{"point": "publish_report.{side}", "fault": "kill"}}]'
    done = subprocess.run(
        [sys.executable, "-c", PUBLISHER, sqlite_ledger_url, str(accountant.report_root), plan],
        timeout=CHILD_S_MAX,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert jobs_reported(accountant) == seen
    assert publish_and_count(accountant) == 3
    assert ACCOUNTING_CHECKS["report_matches_ledger"].run(accountant).passed
    assert left_in(accountant.report_root) == {"report.duckdb", "published.json"}


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_fault_at_the_boundary_leaves_a_report_and_nothing_half_built(accountant: Accountant, side: str) -> None:
    install_plan(Plan((PlannedFault(f"publish_report.{side}", Fault.ERROR),)))
    try:
        with pytest.raises(DrillFault):
            publish_report(accountant)
    finally:
        remove_plan()
    assert jobs_reported(accountant) == 1
    assert left_in(accountant.report_root) == {"report.duckdb", "published.json"}


def test_a_reader_in_another_process_is_neither_blocked_nor_blocks(accountant: Accountant) -> None:
    reader = child(READER, str(accountant.published))
    try:
        assert hear(reader) == "ready"
        shown = [int(tell(reader, "read"))]
        for _ in range(3):
            publish_and_count(accountant)
            shown.append(int(tell(reader, "read")))
        assert shown == [1, 2, 3, 4]
    finally:
        end(reader)


def test_a_reader_killed_with_the_file_open_harms_nothing(accountant: Accountant) -> None:
    holding = child(
        "import duckdb, sys; c = duckdb.connect(sys.argv[1], read_only=True);"
        " c.execute('SELECT count(*) FROM job_report'); print('holding', flush=True); sys.stdin.readline()",
        str(accountant.published),
    )
    try:
        assert hear(holding) == "holding"
        assert publish_and_count(accountant) == 2
    finally:
        end(holding)
    assert publish_and_count(accountant) == 3


def test_an_analyst_who_writes_into_the_file_spoils_it_for_nobody(accountant: Accountant) -> None:
    accountant.published.chmod(0o644)
    analyst = child(ANALYST, str(accountant.published))
    try:
        assert hear(analyst) == "holding"
        # The file is locked for others; our own readers still get what was published.
        assert run_query(accountant, "SELECT count(*) AS jobs FROM job_report") == [{"jobs": 1}]
        assert publish_and_count(accountant) == 2
        # The analyst goes on in the former file, beside whose name lies the new one.
        assert tell(analyst) == "wrote"
        assert run_query(accountant, "SELECT count(*) AS jobs FROM job_report") == [{"jobs": 2}]
    finally:
        end(analyst)
    assert publish_and_count(accountant) == 3
    assert not accountant.published.with_name("report.duckdb.wal").exists()


def test_a_log_left_beside_the_report_is_set_aside_with_a_word_about_it(accountant: Accountant) -> None:
    accountant.published.chmod(0o644)
    analyst = child(ANALYST, str(accountant.published))
    assert hear(analyst) == "holding"
    end(analyst)
    log = accountant.published.with_name("report.duckdb.wal")
    left = log.read_bytes()
    assert len(left) > 100
    log.write_bytes(left[:-100])  # As a full disk cuts it.
    assert run_query(accountant, "SELECT count(*) AS jobs FROM job_report") == [{"jobs": 1}]
    published = publish_report(accountant)
    (kept,) = (accountant.report_root / "set-aside").iterdir()
    assert kept.read_bytes() == left[:-100]
    (notice,) = published.notices
    assert kept.name in notice
    assert "No row is lost" in notice
    assert jobs_reported(accountant) == 1
    assert publish_report(accountant).notices == ()


def test_a_log_that_appears_during_publication_is_set_aside_and_the_file_verified_once_more(
    accountant: Accountant,
) -> None:
    an_accepted_job(accountant.ledger)

    class AnalystAtTheWorstMoment:
        def reached(self, point_name: str) -> None:
            if point_name == "publish_report.after":
                accountant.published.with_name("report.duckdb.wal").write_bytes(os.urandom(5000))

        def altered(self, alteration: str, value: Any) -> Any:
            return value

    install_plan(AnalystAtTheWorstMoment())
    try:
        published = publish_report(accountant)
    finally:
        remove_plan()
    assert len(published.notices) == 1
    assert jobs_reported(accountant) == 2


def test_a_damaged_report_is_set_aside_and_built_anew(accountant: Accountant) -> None:
    accountant.published.chmod(0o644)
    accountant.published.write_bytes(accountant.published.read_bytes()[:5000])
    with pytest.raises(ReportFault) as refused:
        read_published(accountant)
    assert refused.value.reason is REPORT_UNREADABLE
    assert REPORT_UNREADABLE.code == "REPORT.UNREADABLE.v1"
    published = publish_report(accountant)
    assert "the published file was damaged" in published.notices[0]
    assert read_published(accountant)["accepted"] == 1
    assert len(list((accountant.report_root / "set-aside").iterdir())) == 1


def test_what_is_set_aside_is_bounded(accountant: Accountant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receipt_pipeline.accounting.publish.SET_ASIDE_MAX", 2)
    for number in range(4):
        accountant.published.with_name("report.duckdb.wal").write_bytes(b"%d" % number)
        publish_report(accountant)
    assert len(list((accountant.report_root / "set-aside").iterdir())) == 2


def test_a_report_that_does_not_open_after_its_publication_is_a_fault(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "_fault_of", lambda path: duckdb.IOException("cannot be opened"))
    with pytest.raises(ReportFault) as refused:
        publish_report(accountant)
    assert refused.value.reason is REPORT_UNREADABLE


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        duckdb.IOException('IO Error: Could not write file "x": No space left on device'),
    ],
)
def test_a_full_disk_leaves_the_former_report_and_says_so(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch, error: Exception, whole: bool
) -> None:
    def is_full(writer: Any, path: Path, cutoff: Any) -> Any:
        path.write_bytes(b"a part of it")
        raise error

    an_accepted_job(accountant.ledger)
    monkeypatch.setattr(publish.ReportWriter, "write", is_full)
    with pytest.raises(ReportFault) as refused:
        publish_report(accountant, whole=whole)
    assert refused.value.reason is STORAGE_FULL
    assert STORAGE_FULL.code == "STORAGE.FULL.v1"
    assert read_published(accountant)["accepted"] == 1
    assert left_in(accountant.report_root) == {"report.duckdb", "published.json"}


def test_an_export_that_fills_the_disk_leaves_the_former_export(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(path: Path, data: bytes) -> None:
        if path.name == "export.json":
            raise OSError(28, "No space left on device")
        write_whole(path, data)

    export_ledger(accountant)
    before = {path: path.read_bytes() for path in accountant.export.rglob("*") if path.is_file()}
    monkeypatch.setattr(publish, "write_whole", is_full)
    with pytest.raises(ReportFault) as refused:
        export_ledger(accountant)
    assert refused.value.reason is STORAGE_FULL
    assert {path: path.read_bytes() for path in accountant.export.rglob("*") if path.is_file()} == before
    assert left_in(accountant.report_root) == {"report.duckdb", "published.json", "export"}


def test_two_publications_at_once_follow_each_other(accountant: Accountant) -> None:
    an_accepted_job(accountant.ledger)
    start = threading.Barrier(2)

    def work() -> int:
        start.wait(timeout=30)
        return int(publish_report(accountant).document["accepted"])

    with ThreadPoolExecutor(2) as pool:
        assert [future.result() for future in [pool.submit(work) for _ in range(2)]] == [2, 2]
    assert jobs_reported(accountant) == 2
    assert left_in(accountant.report_root) == {"report.duckdb", "published.json"}


def test_a_publication_that_never_ends_is_waited_for_within_a_bound(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "LOCK_WAIT_S", 0.1)
    with FileLock(accountant.report_root / ".publish.lock"), pytest.raises(ReportFault) as refused:
        publish_report(accountant)
    assert refused.value.reason is REPORT_BUSY
    assert REPORT_BUSY.code == "REPORT.BUSY.v1"
    assert jobs_reported(accountant) == 1


def test_the_published_file_is_read_only_and_has_nothing_to_replay(accountant: Accountant) -> None:
    assert accountant.published.stat().st_mode & 0o777 == 0o444
    assert left_in(accountant.report_root) == {"report.duckdb", "published.json"}
