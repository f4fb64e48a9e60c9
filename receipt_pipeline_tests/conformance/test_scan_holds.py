"""Scans that nobody holds are marked and removed a grace later; whoever wants one meanwhile keeps it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from receipt_pipeline.ledger.effects.objects import COPYING, held_keys, hold_objects, release_holds, removed_scans
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema.effects import tombstones
from receipt_pipeline.objects.store import scan_key, set_aside_key
from receipt_pipeline.reconciliation.repair import reconcile
from receipt_pipeline.reconciliation.retention import sweep_scans
from receipt_pipeline_tests.conformance.ledger_rows import all_rows
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench, assert_nothing_left

KEY = "scans/acme/00ff"


@pytest.fixture
def house(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> ReconcileBench:
    house = ReconcileBench.build(ledger, clock, tmp_path)
    house.store_at(KEY, b"a scan", age_s=house.limits.retention.orphan_grace_s + 1)
    return house


def hold(house: ReconcileBench, holder: str, *, kind: str = "scan") -> None:
    with house.ledger.transaction() as tx:
        hold_objects(tx, [KEY], holder=holder, hold_kind=kind)


def let_grace_pass(house: ReconcileBench) -> None:
    house.clock.advance(house.limits.retention.orphan_grace_s + 1)


def test_an_unwanted_scan_goes_a_grace_after_it_was_marked_and_its_place_is_explained(house: ReconcileBench) -> None:
    assert sweep_scans(house.services).removed == ()
    assert sweep_scans(house.services).removed == (), "a mark is no permission yet"
    with house.ledger.reading() as tx:
        assert held_keys(tx, [KEY]) == set(), "a mark is no hold either"
    house.store_at(set_aside_key(KEY, "sha256:11"), b"other bytes", age_s=0)
    let_grace_pass(house)
    assert sweep_scans(house.services).removed == (KEY,)
    assert [entry.key for entry in house.bench.objects.listing("set-aside/")] == []
    with house.ledger.reading() as tx:
        assert removed_scans(tx, [KEY]) == {KEY}
    [tombstone] = all_rows(house.ledger, tombstones)
    assert (tombstone["object_key"], tombstone["reason"]) == (KEY, "SCAN.RETENTION_PASSED.v1")
    assert sweep_scans(house.services).removed == ()


def test_a_scan_that_is_held_after_it_was_marked_stays(house: ReconcileBench) -> None:
    sweep_scans(house.services)
    hold(house, "job-1")
    let_grace_pass(house)
    assert sweep_scans(house.services).removed == ()
    assert house.path(KEY).exists()
    with house.ledger.transaction() as tx:
        release_holds(tx, holder="job-1")
    sweep_scans(house.services)
    let_grace_pass(house)
    assert sweep_scans(house.services).removed == (KEY,)


def test_a_hold_that_comes_while_the_scan_is_being_removed_brings_it_back(
    house: ReconcileBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep_scans(house.services)
    let_grace_pass(house)
    delete = house.bench.objects.inner.delete

    def delete_and_be_too_late(key: str) -> bool:
        hold(house, "job-1")
        return delete(key)

    monkeypatch.setattr(type(house.bench.objects), "delete", lambda self, key: delete_and_be_too_late(key))
    assert sweep_scans(house.services).removed == ()
    assert house.path(KEY).read_bytes() == b"a scan"


def test_holds_of_an_acceptance_that_never_answered_are_let_go_in_time(house: ReconcileBench) -> None:
    hold(house, "acme/fingerprint", kind=COPYING)
    hold(house, "job-1")
    house.clock.advance(house.limits.retention.copy_hold_s - 1)
    sweep_scans(house.services)
    with house.ledger.transaction() as tx:
        assert release_holds(tx, holder="job-1") == 1
    sweep_scans(house.services)
    with house.ledger.reading() as tx:
        assert held_keys(tx, [KEY]) == {KEY}
    house.clock.advance(1)
    sweep_scans(house.services)
    let_grace_pass(house)
    assert sweep_scans(house.services).removed == (KEY,)


def test_a_hold_that_is_taken_again_counts_from_then_on(house: ReconcileBench) -> None:
    hold(house, "retry/key", kind=COPYING)
    house.clock.advance(house.limits.retention.copy_hold_s - 1)
    hold(house, "retry/key", kind=COPYING)
    house.clock.advance(house.limits.retention.copy_hold_s - 1)
    sweep_scans(house.services)
    with house.ledger.reading() as tx:
        assert held_keys(tx, [KEY]) == {KEY}
    house.clock.advance(1)
    sweep_scans(house.services)
    with house.ledger.reading() as tx:
        assert held_keys(tx, [KEY]) == set()


def test_a_young_scan_is_left_alone(house: ReconcileBench) -> None:
    house.store_at("scans/acme/01ff", b"young", age_s=0)
    sweep_scans(house.services)
    let_grace_pass(house)
    sweep_scans(house.services)
    assert house.path("scans/acme/01ff").exists()


def test_bytes_that_were_set_aside_are_asked_about_after_the_grace(house: ReconcileBench) -> None:
    key = set_aside_key("results/job-1/1-00", "sha256:11")
    house.store_at(key, b"whose?", age_s=house.limits.retention.orphan_grace_s - 1)
    reconcile(house.services)
    assert house.investigations() == []
    house.clock.advance(2)
    reconcile(house.services)
    [question] = house.investigations()
    assert (question["kind"], question["subject"]) == ("orphan_object", key)
    assert_nothing_left(house)
    house.path(key).unlink()
    reconcile(house.services)
    assert house.investigations() == []


@pytest.mark.requirement("R032")
def test_what_an_accepted_job_names_stays_though_its_hold_is_lost(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="pinned")
    [item] = house.bench.items(job_id)
    key = scan_key(item["tenant"], item["sha256"])
    house.edit("DELETE FROM object_refs WHERE holder = :job", job=job_id)
    os.utime(house.path(key), (0, 0))
    assert sweep_scans(house.services).marked == 1, "the other scan, which no job names"
    house.edit(
        "INSERT INTO object_refs (object_key, holder, hold_kind, held_at) VALUES (:key, 'system:sweep', 'doomed', 0)",
        key=key,
    )
    let_grace_pass(house)
    assert sweep_scans(house.services).removed == (KEY,)
    assert house.path(key).exists()
    with house.ledger.reading() as tx:
        assert removed_scans(tx, [key]) == set()
