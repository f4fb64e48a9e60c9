"""Passes over the drop folder: bounded, repeatable after any kill, and fair to everything that waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.reasons import STORAGE_FULL
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.inbox import moves as moving
from receipt_pipeline.intake.inbox.sweep import sweep_inbox
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.intake_home import (
    acknowledgements,
    batch_bytes,
    drop,
    hex_digest,
    job_document,
    job_rows,
    names_in,
    put_scan,
    row_of,
    scan_bytes,
    submission_states,
    sweep,
)

SETTLE_S = 10


def test_a_manifest_that_was_taken_back_while_it_waited_is_let_go(intake: IntakeContext, place: Path) -> None:
    document = job_document(place)
    (place / "scans/1.png").unlink()
    path = drop(intake, "expenses.json", document)
    assert sweep(intake).counts == {"waiting": 1}
    path.unlink()
    assert sweep(intake).counts == {}
    assert submission_states(intake) == ["ignored"]


def test_a_manifest_replaced_while_it_waited_counts_as_it_is_now(intake: IntakeContext, place: Path) -> None:
    document = job_document(place)
    wrong = document | {"items": [document["items"][0] | {"uri": "scans/nowhere.png"}]}
    drop(intake, "expenses.json", wrong)
    assert sweep(intake).counts == {"waiting": 1}
    drop(intake, "expenses.json", document)
    assert sweep(intake).counts == {"accepted": 1}
    assert submission_states(intake) == ["ignored", "accepted"]


def test_a_pass_killed_between_commit_and_moving_is_finished_by_the_next(
    intake: IntakeContext, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(intake, "expenses.json", job_document(place))

    class Killed(BaseException):
        pass

    def killed(*given: Any) -> None:
        raise Killed

    monkeypatch.setattr("receipt_pipeline.intake.inbox.file.acknowledge", killed)
    with pytest.raises(Killed):
        sweep(intake)
    assert "expenses.json" in names_in(place)
    monkeypatch.undo()
    assert sweep(intake).counts == {"accepted": 1}
    assert submission_states(intake) == ["accepted"]
    assert len(job_rows(intake.ledger)) == len(acknowledgements(intake)) == 1
    assert {name.split("/")[0] for name in names_in(place)} == {"accepted"}
    assert acknowledgements(intake)[0]["lines"][0]["outcome"] == "accepted"


def test_a_loose_scan_whose_pass_was_killed_after_its_acceptance_is_moved_by_the_next(
    intake: IntakeContext, place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_scan(place, "loose/a.png", 1)
    sweep(intake)
    clock.advance(SETTLE_S)

    class Killed(BaseException):
        pass

    def killed(*given: Any, **named: Any) -> None:
        raise Killed

    monkeypatch.setattr("receipt_pipeline.intake.inbox.file.finish_delivery", killed)
    with pytest.raises(Killed):
        sweep(intake)
    monkeypatch.undo()
    assert sweep(intake).counts == {"accepted": 1}
    assert len(job_rows(intake.ledger)) == 1
    assert names_in(place) == {f"accepted/loose/a.{hex_digest(scan_bytes(1))[:8]}.png"}


def test_what_cannot_be_moved_is_remembered_and_not_handled_twice(
    intake: IntakeContext, place: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(source: object, target: object) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(moving.os, "rename", refused)
    drop(intake, "expenses.json", job_document(place))
    drop(intake, "bad.json", b'{"contract": "x"}')
    put_scan(place, "loose/a.png", 7)
    for _ in range(3):
        sweep(intake)
        clock.advance(SETTLE_S)
    assert sorted(submission_states(intake)) == ["accepted", "accepted", "refused"]
    assert len(job_rows(intake.ledger)) == 2
    monkeypatch.undo()
    sweep(intake)
    assert {name.split("/")[0] for name in names_in(place)} == {"accepted", "refused"}


def test_a_full_disk_breaks_the_pass_off_and_the_next_one_goes_on(
    intake: IntakeContext, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(intake, "expenses.json", job_document(place))

    def full(*given: Any, **named: Any) -> None:
        raise ObjectFault(STORAGE_FULL)

    monkeypatch.setattr(intake.objects, "copy_in", full)
    with pytest.raises(ObjectFault):
        sweep(intake)
    assert (submission_states(intake), job_rows(intake.ledger)) == (["waiting"], [])
    monkeypatch.undo()
    assert sweep(intake).counts == {"accepted": 1}


def test_a_pass_stops_at_its_time_bound_and_the_next_goes_on(intake: IntakeContext, place: Path) -> None:
    drop(intake, "batch.json", batch_bytes([row_of(place, f"{number}.png", number) for number in range(1, 9)]))
    for number in range(1, 8):
        assert sweep_inbox(intake, time_bound_s=0).finished is False
        assert len(job_rows(intake.ledger)) == number
    assert sweep_inbox(intake, time_bound_s=0).finished is True
    assert len(job_rows(intake.ledger)) == 8
    assert submission_states(intake) == ["accepted"]


def test_a_second_sweep_of_the_same_home_steps_back(intake: IntakeContext, place: Path) -> None:
    drop(intake, "expenses.json", job_document(place))
    with FileLock(intake.home / "inbox.lock"):
        assert sweep(intake).finished is False
    assert job_rows(intake.ledger) == []
    assert sweep(intake).counts == {"accepted": 1}


def test_new_deliveries_are_not_kept_waiting_by_old_ones(intake: IntakeContext, place: Path) -> None:
    late = job_document(place, key="late")
    late["items"][0]["uri"] = "scans/missing.png"
    drop(intake, "zzz-waiting.json", late)
    sweep(intake)
    drop(intake, "aaa-early.json", job_document(place, key="early"))
    assert sweep(intake).counts == {"accepted": 1, "waiting": 1}
