"""Evaluation in the pipeline: an asset by release, its check, and the approval of a worse release refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from receipt_pipeline.app import admin
from receipt_pipeline.core.errors import InputRefused, NotAllowed
from receipt_pipeline.defs.evaluation import chain_evaluation, release_no_worse
from receipt_pipeline.evaluation import records
from receipt_pipeline.ledger.journal import EventKind
from receipt_pipeline.ledger.schema.jobs import events
from receipt_pipeline_tests.builders import CALLER
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home
from receipt_pipeline_tests.unit.test_score_release import a_set

APPROVED, CANDIDATE = "2027-02", "2027-01"


@pytest.fixture
def opened(
    migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenedHome]:
    environment = {"RECEIPTS_EVALUATION_SET": str(tmp_path)}
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch, environment)
    yield home
    home.app.close()


@pytest.fixture
def answers(opened: OpenedHome, monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    good: dict[str, bool] = {}
    monkeypatch.setattr(records, "read_labeled_scans", lambda folder: [one.scan for one in a_set(good=True)])
    monkeypatch.setattr(
        records, "classify_scans", lambda scans, pins, **named: a_set(good=good.get(pins.release_id, True))
    )
    return good


def recorded(opened: OpenedHome, kind: EventKind) -> list[dict[str, object]]:
    with opened.app.ledger.reading() as tx:
        rows = tx.rows(events.select().where(events.c.kind == kind).order_by(events.c.seq))
    return [dict(row["data"]) for row in rows]


def materialized(opened: OpenedHome, name: str) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        return dg.materialize(
            [chain_evaluation, release_no_worse],
            partition_key=name,
            resources={"app": opened.resource},
            instance=instance,
            raise_on_error=False,
        )


def test_the_asset_publishes_figures_and_a_page_and_records_the_evaluation(
    opened: OpenedHome, answers: dict[str, bool]
) -> None:
    result = materialized(opened, CANDIDATE)
    assert result.success
    (event,) = result.asset_materializations_for_node("chain_evaluation")
    assert event.partition == CANDIDATE
    assert event.metadata["risk_auc_pictures"].value == 1.0
    assert "Evaluation of release" in Path(str(event.metadata["page"].value)).read_text()
    (row,) = recorded(opened, EventKind.RELEASE_EVALUATED)
    assert row["release_id"] == admin.shipped_release_id(opened.app, CANDIDATE)


def test_the_check_is_red_for_a_release_that_is_worse_and_green_for_one_that_is_not(
    opened: OpenedHome, answers: dict[str, bool]
) -> None:
    assert materialized(opened, APPROVED).get_asset_check_evaluations()[0].passed
    assert materialized(opened, CANDIDATE).get_asset_check_evaluations()[0].passed
    answers[admin.shipped_release_id(opened.app, CANDIDATE)] = False
    (evaluation,) = materialized(opened, CANDIDATE).get_asset_check_evaluations()
    assert not evaluation.passed
    table = evaluation.metadata["jobs"]
    assert isinstance(table, dg.TableMetadataValue)
    assert {str(row.data["measure"]) for row in table.records} >= {"strict_micro_f1", "risk_auc"}


def test_a_worse_release_is_refused_approval_and_promotion_unless_a_person_says_why(
    opened: OpenedHome, answers: dict[str, bool]
) -> None:
    services = opened.app
    answers[admin.shipped_release_id(services, CANDIDATE)] = False
    admin.evaluate_release(services, services.principal(), APPROVED)
    admin.evaluate_release(services, services.principal(), CANDIDATE)
    for order in (
        lambda: admin.approve_release(services, services.principal(), CANDIDATE),
        lambda: admin.promote_release(services, services.principal(), CANDIDATE, alias="production"),
        lambda: admin.promote_release(services, services.principal(), CANDIDATE, alias="production", despite="  "),
    ):
        with pytest.raises(NotAllowed) as refused:
            order()
        assert refused.value.reason.code == "RELEASE.WORSE.v1"
    assert recorded(opened, EventKind.WORSE_RELEASE_ALLOWED) == []
    admin.approve_release(services, services.principal(), CANDIDATE, despite="the shops of the set have closed")
    (row,) = recorded(opened, EventKind.WORSE_RELEASE_ALLOWED)
    assert (row["by"], row["because"]) == (CALLER, "the shops of the set have closed")


def test_what_was_allowed_despite_its_measures_is_recorded_only_with_what_it_allowed(
    opened: OpenedHome, answers: dict[str, bool]
) -> None:
    services = opened.app
    answers[admin.shipped_release_id(services, CANDIDATE)] = False
    admin.evaluate_release(services, services.principal(), APPROVED)
    admin.evaluate_release(services, services.principal(), CANDIDATE)
    with pytest.raises(InputRefused):  # An alias may not be called as a release is.
        admin.promote_release(services, services.principal(), CANDIDATE, alias=APPROVED, despite="we know better")
    assert recorded(opened, EventKind.WORSE_RELEASE_ALLOWED) == []


def alter_kept(page: Path) -> None:
    kept = page.with_suffix(".json")
    kept.write_bytes(kept.read_bytes() + b" ")


def test_nothing_is_kept_of_an_evaluation_that_has_only_an_altered_one_to_compare_with(
    opened: OpenedHome, answers: dict[str, bool]
) -> None:
    services = opened.app
    admin.evaluate_release(services, services.principal(), APPROVED)
    alter_kept(records.evaluation_page(services.evaluations, APPROVED))
    with pytest.raises(NotAllowed) as refused:
        admin.evaluate_release(services, services.principal(), CANDIDATE)
    assert refused.value.reason.code == "EVALUATION.ALTERED.v1"
    assert len(recorded(opened, EventKind.RELEASE_EVALUATED)) == 1
    assert not records.evaluation_page(services.evaluations, CANDIDATE).exists()
    admin.evaluate_release(services, services.principal(), APPROVED)
    admin.evaluate_release(services, services.principal(), CANDIDATE)
    assert records.evaluation_page(services.evaluations, CANDIDATE).exists()


def test_a_crash_before_its_record_leaves_the_evaluation_that_was_kept_before(
    opened: OpenedHome, answers: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    services = opened.app
    admin.evaluate_release(services, services.principal(), CANDIDATE)
    page = records.evaluation_page(services.evaluations, CANDIDATE)
    kept = {path.name: path.read_bytes() for path in page.parent.iterdir()}
    assert set(kept) == {page.name, page.with_suffix(".json").name}
    answers[admin.shipped_release_id(services, CANDIDATE)] = False
    with monkeypatch.context() as patch:
        patch.setattr(records.releases, "record_evaluation", ended)
        with pytest.raises(KeyboardInterrupt):
            admin.evaluate_release(services, services.principal(), CANDIDATE)
    shown = {path.name: path.read_bytes() for path in page.parent.glob("[!.]*")}
    assert shown == kept
    assert records.release_no_worse(services.evaluations, CANDIDATE).passed
    admin.evaluate_release(services, services.principal(), CANDIDATE)
    assert {path.name for path in page.parent.iterdir()} == set(kept)
    assert page.read_bytes() != kept[page.name]


def test_a_crash_right_after_its_record_is_finished_by_the_next_reader(
    opened: OpenedHome, answers: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    services = opened.app
    with monkeypatch.context() as patch:
        patch.setattr(records.StoredEvaluations, "publish", ended)
        with pytest.raises(KeyboardInterrupt):
            admin.evaluate_release(services, services.principal(), CANDIDATE)
    page = records.evaluation_page(services.evaluations, CANDIDATE)
    assert not page.exists()
    assert records.release_no_worse(services.evaluations, CANDIDATE).passed
    assert page.exists()


def ended(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_release_without_evaluation_or_as_good_as_the_approved_is_approved(
    opened: OpenedHome, answers: dict[str, bool]
) -> None:
    services = opened.app
    assert not records.release_no_worse(services.evaluations, CANDIDATE).passed
    assert admin.approve_release(services, services.principal(), CANDIDATE) == admin.shipped_release_id(
        services, CANDIDATE
    )
    admin.evaluate_release(services, services.principal(), APPROVED)
    admin.evaluate_release(services, services.principal(), CANDIDATE)
    assert admin.promote_release(
        services, services.principal(), CANDIDATE, alias="staging"
    ) == admin.shipped_release_id(services, CANDIDATE)


def test_an_evaluation_whose_document_was_altered_decides_nothing(opened: OpenedHome, answers: dict[str, bool]) -> None:
    services = opened.app
    admin.evaluate_release(services, services.principal(), CANDIDATE)
    alter_kept(records.evaluation_page(services.evaluations, CANDIDATE))
    with pytest.raises(NotAllowed) as refused:
        admin.approve_release(services, services.principal(), CANDIDATE)
    assert refused.value.reason.code == "EVALUATION.ALTERED.v1"


def test_without_labelled_scans_nothing_is_evaluated(opened: OpenedHome) -> None:
    with pytest.raises(InputRefused) as refused:
        admin.evaluate_release(opened.app, opened.principal, CANDIDATE)
    assert refused.value.reason.code == "EVALUATION.NO_SET.v1"
    assert not materialized(opened, CANDIDATE).success
