"""Assets: a source only observes; a day is frozen once it is over and the report matches the ledger."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pandas as pd

from receipt_pipeline.app import analyst, maintenance
from receipt_pipeline.defs.assets import daily_receipts, job_accounting, sources
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome

DAY, DAY_S = "2026-11-28", 86_400


def freeze(home: OpenedHome) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        return dg.materialize(
            [daily_receipts],
            partition_key=DAY,
            resources={"app": home.resource},
            instance=instance,
            raise_on_error=False,
        )


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    failed = result.failure_data_for_node("daily_receipts")
    assert failed is not None
    return str(failed.error)


def test_observing_the_sources_changes_nothing_and_counts_every_record(opened: OpenedHome) -> None:
    opened.bench.finished(key="done")
    opened.submit("waiting")
    rows = opened.bench.snapshot()
    every_source = dg.define_asset_job("observe", dg.AssetSelection.all(include_sources=True))
    observing = dg.Definitions([sources], jobs=[every_source], resources={"app": opened.resource})
    result = observing.resolve_job_def("observe").execute_in_process()
    assert opened.bench.snapshot() == rows
    found = {}
    for event in result.get_asset_observation_events():
        observation = event.asset_observation_data.asset_observation
        found[observation.asset_key.to_user_string()] = observation.metadata
    assert len(found) == 5
    jobs = {name: value.value for name, value in found["job_ledger"].items()}
    assert (jobs["succeeded"], jobs["accepted"], jobs["dagster/row_count"]) == (1, 1, 2)


def test_a_closed_day_is_frozen_as_parquet_without_any_single_receipt(opened: OpenedHome) -> None:
    opened.bench.finished(key="done", items=3)
    opened.clock.advance(DAY_S)
    maintenance.publish_report(opened.app)
    result = freeze(opened)
    assert result.success
    (event,) = result.asset_materializations_for_node("daily_receipts")
    assert event.partition == DAY
    assert event.metadata["receipts"].value == 3
    frame = pd.read_parquet(Path(str(event.metadata["file"].value)))
    keys = ["tenant", "release_id", "decision", "currency"]
    assert list(frame.columns) == [*keys, "jobs", "receipts", "total_minor", "total"]
    assert int(frame["receipts"].sum()) == 3


def test_a_day_that_is_not_over_or_differs_from_the_ledger_is_not_frozen(opened: OpenedHome) -> None:
    job_id = opened.bench.finished(key="done")["job_id"]
    maintenance.publish_report(opened.app)
    assert "FIELD.INVALID.v1" in failure_of(freeze(opened))
    opened.clock.advance(DAY_S)
    maintenance.publish_report(opened.app)
    opened.bench.edit("UPDATE jobs SET reason_code = 'FORGED.v1' WHERE job_id = :job", job=job_id)
    assert "differs from the ledger" in failure_of(freeze(opened))
    assert list((opened.app.settings.report / "daily").glob("*")) == []


def test_the_account_knows_of_an_object_that_is_missing_when_it_is_published(opened: OpenedHome) -> None:
    job = opened.bench.finished(key="done")
    opened.bench.path(job["result_key"]).unlink()
    result = dg.materialize([job_accounting], resources={"app": opened.resource})
    (event,) = result.asset_materializations_for_node("job_accounting")
    assert event.metadata["state"].value == "investigate"
    document = analyst.read_report(opened.app, opened.principal, published=True)
    assert document["success_without_object"] == [job["job_id"]]
