"""A record of an older system's job is taken over once, has a class or a question, and is never rewritten."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
import sqlalchemy as sa

from receipt_pipeline.core.errors import KeyConflict, NotFound
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.lifecycle import TerminalClass
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.investigations import is_owned, resolve_investigation
from receipt_pipeline.ledger.legacy_jobs import (
    ImportOutcome,
    LegacyJob,
    count_legacy_jobs,
    legacy_job_document,
    read_import_investigation,
    read_legacy_job,
    record_legacy_job,
    undecided_legacy_jobs,
)
from receipt_pipeline.ledger.schema.admin import imported_jobs
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline_tests.builders import LIMITS, TENANT
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, event_kinds

STARTED = dt.datetime(2026, 11, 27, 8, tzinfo=dt.UTC)
RUNNING = LegacyJob(
    external_id="17",
    state_name="Running",
    terminal_class=None,
    submitted_at=STARTED,
    ended_at=None,
    items_requested=3,
    caller="kim",
    idempotency_key="expenses-1",
    decision=None,
)
DONE = replace(
    RUNNING,
    state_name="DONE",
    terminal_class=TerminalClass.COMPLETE,
    ended_at=STARTED + dt.timedelta(hours=1),
    decision=Decision.CLEAR,
)


def take(ledger: Ledger, job: LegacyJob, *, tenant: str = TENANT, origin: str = "old") -> tuple[str, ImportOutcome]:
    with ledger.transaction() as tx:
        return record_legacy_job(tx, job, tenant=tenant, origin=origin, actor="kim", limits=LIMITS)


@pytest.mark.requirement("R150")
def test_a_job_that_ended_there_gets_the_class_of_its_word_and_no_question(ledger: Ledger) -> None:
    job_id, taken = take(ledger, DONE)
    [row] = all_rows(ledger, imported_jobs)
    assert taken is ImportOutcome.IMPORTED
    assert (row["job_id"], row["terminal_class"], row["investigation_id"]) == (job_id, "complete", None)
    assert row["reason_code"] == "IMPORT.BY_WORD.v1"
    assert event_kinds(ledger, job_id) == ["imported"]
    assert all_rows(ledger, jobs) == [], "it is no job of this ledger and claims nothing of one"


@pytest.mark.requirement("R150")
def test_a_job_that_had_not_ended_is_an_owned_and_dated_question(ledger: Ledger) -> None:
    job_id, _ = take(ledger, RUNNING)
    [question] = all_rows(ledger, investigations)
    assert (question["kind"], question["job_id"], question["state"]) == ("imported_open", job_id, "open")
    with ledger.reading() as tx:
        assert is_owned(question, now=tx.now(), principals=LIMITS.staffing.principals)
        assert undecided_legacy_jobs(tx, TENANT) == [job_id]
        row = read_legacy_job(tx, job_id, tenant=TENANT)
        document = legacy_job_document(row, read_import_investigation(tx, row))
    assert (row["reason_code"], row["investigation_id"]) == ("IMPORT.OPEN_THERE.v1", question["investigation_id"])
    assert list(document)[1:3] == ["stands", "safe_now"], "the consequence comes before any id"
    assert document["stands"]["verified_here"] is False
    assert "old" in document["safe_now"]["next_step"]


def test_the_same_row_again_changes_nothing(ledger: Ledger) -> None:
    first = [take(ledger, job)[0] for job in (RUNNING, replace(DONE, external_id="18"))]
    before = [all_rows(ledger, table) for table in (imported_jobs, investigations)]
    again = [take(ledger, job) for job in (RUNNING, replace(DONE, external_id="18"))]
    assert again == [(job_id, ImportOutcome.KNOWN) for job_id in first]
    assert [all_rows(ledger, table) for table in (imported_jobs, investigations)] == before


def test_the_final_row_of_an_open_job_gives_it_its_class_and_answers_its_question(ledger: Ledger) -> None:
    job_id, _ = take(ledger, RUNNING)
    assert take(ledger, replace(RUNNING, state_name="retrying")) == (job_id, ImportOutcome.KNOWN)
    assert take(ledger, DONE) == (job_id, ImportOutcome.ENDED)
    [row], [question] = all_rows(ledger, imported_jobs), all_rows(ledger, investigations)
    assert (row["terminal_class"], row["state_as_written"]) == ("complete", "DONE")
    assert (question["state"], question["resolution"]) == ("resolved", "its final row was imported")
    with ledger.reading() as tx:
        assert undecided_legacy_jobs(tx, TENANT) == []
    assert "import_ended" in event_kinds(ledger, job_id)


def test_a_persons_answer_stands_when_the_final_row_comes_later(ledger: Ledger) -> None:
    job_id, _ = take(ledger, RUNNING)
    [question] = all_rows(ledger, investigations)
    with ledger.transaction() as tx:
        resolve_investigation(tx, question["investigation_id"], resolution="given up", actor="ops")
        assert undecided_legacy_jobs(tx, TENANT) == []
    assert take(ledger, DONE) == (job_id, ImportOutcome.ENDED)
    assert [row["resolution"] for row in all_rows(ledger, investigations)] == ["given up"]


@pytest.mark.parametrize(
    ("first", "second", "differing"),
    [
        (
            DONE,
            replace(DONE, state_name="FAILED", terminal_class=TerminalClass.ATTEMPTS_EXHAUSTED),
            ["state_as_written", "terminal_class"],
        ),
        (DONE, RUNNING, ["decision", "ended_at", "state_as_written", "terminal_class"]),
        (RUNNING, replace(RUNNING, items_requested=4), ["items_requested"]),
    ],
)
def test_other_facts_about_a_known_job_are_a_conflict_and_the_first_record_stands(
    ledger: Ledger, first: LegacyJob, second: LegacyJob, differing: list[str]
) -> None:
    job_id, _ = take(ledger, first)
    before = all_rows(ledger, imported_jobs)
    with pytest.raises(KeyConflict) as refused:
        take(ledger, second)
    assert refused.value.reason.code == "IMPORT.CONFLICT.v1"
    assert (refused.value.facts["job_id"], refused.value.facts["differing"]) == (job_id, differing)
    assert all_rows(ledger, imported_jobs) == before


def test_the_same_name_in_another_system_or_tenant_is_another_job(ledger: Ledger) -> None:
    ids = {take(ledger, DONE)[0], take(ledger, DONE, origin="older")[0], take(ledger, DONE, tenant="globex")[0]}
    assert len(ids) == 3
    with ledger.reading() as tx:
        counted = {row["origin"]: (row["jobs"], row["items"]) for row in count_legacy_jobs(tx, TENANT)}
        assert counted == {"old": (1, 3), "older": (1, 3)}
        assert sum(row["jobs"] for row in count_legacy_jobs(tx, None)) == 3
        foreign = next(row for row in all_rows(ledger, imported_jobs) if row["tenant"] == "globex")
        with pytest.raises(NotFound):
            read_legacy_job(tx, foreign["job_id"], tenant=TENANT)


def test_the_database_itself_refuses_a_record_with_neither_class_nor_question(ledger: Ledger) -> None:
    take(ledger, RUNNING)
    with pytest.raises(sa.exc.IntegrityError), ledger.transaction() as tx:
        tx.execute(sa.update(imported_jobs).values(investigation_id=None))
