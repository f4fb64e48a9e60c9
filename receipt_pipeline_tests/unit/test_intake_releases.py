"""Set-up of shipped releases: approved as recorded events; an alias that a person moved stays."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest

from receipt_pipeline.app.setup import set_up_releases
from receipt_pipeline.chain.release import ShippedRelease
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.releases import alias_head, list_releases, move_alias, retire_release
from receipt_pipeline.ledger.schema.jobs import aliases, events
from receipt_pipeline_tests.builders import RELEASE

OLD = ShippedRelease("2026-10", "staging", dataclasses.replace(RELEASE, policy_revision=digest_of("old policy")))
NEW = ShippedRelease("2026-11", "production", RELEASE)


def upgraded(template: ShippedRelease) -> ShippedRelease:
    release = dataclasses.replace(template.release, image_digest=digest_of("a newer image"))
    return dataclasses.replace(template, release=release)


def pointed_at(ledger: Ledger, alias: str) -> tuple[str, str]:
    with ledger.reading() as tx:
        head = alias_head(tx, alias)
    assert head is not None
    return head["release_id"], head["moved_by"]


def events_of(ledger: Ledger) -> int:
    with ledger.reading() as tx:
        return len(tx.rows(events.select()))


def test_every_shipped_release_is_approved_and_its_alias_set_as_events(ledger: Ledger) -> None:
    set_up_releases(ledger, (OLD, NEW))
    with ledger.reading() as tx:
        told = {row["name"]: (row["approved_by"], row["aliases"]) for row in list_releases(tx)}
        kinds = sorted(row["kind"] for row in tx.rows(events.select()))
    assert told == {"2026-10": ("system:setup", ["staging"]), "2026-11": ("system:setup", ["production"])}
    assert kinds == ["alias_moved"] * 2 + ["release_approved"] * 2


def test_opening_again_writes_nothing(ledger: Ledger) -> None:
    set_up_releases(ledger, (OLD, NEW))
    before = events_of(ledger)
    set_up_releases(ledger, (OLD, NEW))
    assert events_of(ledger) == before


def test_an_alias_of_set_up_follows_its_template(ledger: Ledger) -> None:
    set_up_releases(ledger, (NEW,))
    set_up_releases(ledger, (upgraded(NEW),))
    assert pointed_at(ledger, "production") == (upgraded(NEW).release.release_id, "system:setup")
    with ledger.reading() as tx:
        assert len(tx.rows(aliases.select())) == 2
        assert len(list_releases(tx)) == 2


@pytest.mark.requirement("R036")
def test_an_alias_that_a_person_moved_stays(ledger: Ledger) -> None:
    set_up_releases(ledger, (OLD, NEW))
    with ledger.transaction() as tx:
        move_alias(tx, alias="production", release_id=OLD.release.release_id, moved_by="kim")
    set_up_releases(ledger, (OLD, upgraded(NEW)))
    assert pointed_at(ledger, "production") == (OLD.release.release_id, "kim")


def test_a_retired_template_stays_retired(ledger: Ledger) -> None:
    set_up_releases(ledger, (NEW,))
    with ledger.transaction() as tx:
        retire_release(tx, release_id=NEW.release.release_id, retired_by="kim")
    before = events_of(ledger)
    set_up_releases(ledger, (NEW,))
    assert events_of(ledger) == before


def test_several_processes_may_open_a_home_at_once(ledger: Ledger) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: set_up_releases(ledger, (OLD, NEW)), range(4)))
    with ledger.reading() as tx:
        assert len(list_releases(tx)) == 2
