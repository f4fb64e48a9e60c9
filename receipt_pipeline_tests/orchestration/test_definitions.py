"""The code location: it loads, and each asset, check, sensor, job and schedule is what operators rely on."""

from __future__ import annotations

import runpy
import warnings

import dagster as dg
import pytest
import yaml

from receipt_pipeline.core.limits import Limits
from receipt_pipeline.definitions import defs
from receipt_pipeline.defs import evaluation
from receipt_pipeline.defs.waves import MAX_RUNTIME_S
from receipt_pipeline_tests.suite_results import PROJECT

CHECKS_OF = {
    "job_ledger": {
        "one_terminal_record_per_job",
        "items_balance_to_accepted",
        "every_accepted_job_is_terminal_or_owned",
        "attempts_within_budget",
        "no_abandoned_lease",
        "effects_have_no_gaps",
        "queue_age_within_capacity",
        "no_standing_alert",
    },
    "result_objects": {
        "every_success_has_its_object",
        "objects_match_the_ledger",
        "no_object_without_success",
        "results_state_their_pins",
    },
    "notifications": {"every_notification_delivered_or_explained"},
    "review_tasks": {"one_task_per_decision", "no_divergent_result_served"},
    "job_accounting": {"report_matches_ledger", "release_gate"},
}
EVALUATED = {"chain_evaluation": {"release_no_worse"}}
SENSORS = {"submissions", "dispatch", "deliveries", "reconcile", "run_failures"}
JOBS = {"classify_wave", "accounting", "sweep", "retention", "drill", "evaluation"}


def the_jobs() -> dict[str, dg.JobDefinition]:
    """Return the named Dagster jobs of the code location."""
    found = {job.name: job for job in defs.resolve_all_job_defs()}
    return {name: job for name, job in found.items() if not name.startswith("__")}


def test_the_code_location_loads() -> None:
    dg.Definitions.validate_loadable(defs)


def test_the_workspace_names_this_code_location_and_no_folder() -> None:
    (entry,) = yaml.safe_load((PROJECT / "workspace.yaml").read_text())["load_from"]
    assert entry == {
        "python_module": {"module_name": "receipt_pipeline.definitions", "location_name": "receipts"}
    }


def test_every_check_stands_on_its_asset() -> None:
    found: dict[str, set[str]] = {}
    for key in defs.resolve_asset_graph().asset_check_keys:
        found.setdefault(key.asset_key.to_user_string(), set()).add(key.name)
    assert found == CHECKS_OF | EVALUATED
    assert sum(map(len, CHECKS_OF.values())) == 17


def test_no_check_keeps_the_account_from_being_published() -> None:
    graph = defs.resolve_asset_graph()
    blocking = [key.name for key in graph.asset_check_keys if graph.get(key).blocking]
    assert blocking == []  # A red check is the very day on which the report is needed.


def test_every_asset_has_owner_group_kind_and_freshness() -> None:
    graph = defs.resolve_asset_graph()
    keys = graph.get_all_asset_keys()
    named = {*CHECKS_OF, *EVALUATED, "ledger_export", "operations_report"}
    assert {key.to_user_string() for key in keys} == named
    bare = [
        key.to_user_string()
        for key in keys
        if not (node := graph.get(key)).owners
        or not node.group_name
        or not node.kinds
        or not node.description
        # A release is evaluated when somebody wants to approve it, not by the clock.
        or (node.freshness_policy is None and key.to_user_string() not in EVALUATED)
    ]
    assert bare == []


def test_the_account_is_built_after_what_it_counts() -> None:
    graph = defs.resolve_asset_graph()
    above = {key.to_user_string() for key in graph.get_ancestor_asset_keys(dg.AssetKey("job_accounting"))}
    assert above >= {"job_ledger", "result_objects", "notifications", "review_tasks", "ledger_export"}


def test_every_sensor_runs_from_the_start_and_every_few_seconds() -> None:
    sensors = {sensor.name: sensor for sensor in defs.sensors or ()}
    assert {sensor.default_status for sensor in sensors.values()} == {dg.DefaultSensorStatus.RUNNING}
    assert {name: sensor.minimum_interval_seconds for name, sensor in sensors.items()} == {
        name: 15 if name == "run_failures" else 5 for name in SENSORS
    }


def test_every_dagster_job_is_repeated_whole_and_bounded_in_time() -> None:
    jobs = the_jobs()
    assert set(jobs) == JOBS
    assert {job.tags["dagster/retry_strategy"] for job in jobs.values()} == {"ALL_STEPS"}
    assert {int(job.tags["dagster/max_runtime"]) for job in jobs.values()} == {MAX_RUNTIME_S}


def test_every_dagster_job_works_in_one_process() -> None:
    assert {job.executor_def.name for job in the_jobs().values()} == {"in_process"}


def test_a_wave_stops_taking_up_work_before_half_of_its_runs_time_is_over() -> None:
    assert Limits().work.wave_slice_s < MAX_RUNTIME_S / 2


@pytest.mark.parametrize("name", ["dagster.yaml", "dagster.postgres.yaml"])
def test_the_instance_allows_every_run_the_time_that_its_job_asks_for(name: str) -> None:
    instance = yaml.safe_load((PROJECT / name).read_text())
    assert instance["run_monitoring"]["enabled"]
    assert instance["run_monitoring"]["max_runtime_seconds"] >= MAX_RUNTIME_S
    # Every slot's wave, and beside them one run of accounting or sweeping.
    assert instance["concurrency"]["runs"]["max_concurrent_runs"] == Limits().work.wave_slots + 1
    assert instance["run_queue"]["dequeue_interval_seconds"] == 1
    assert instance["run_retries"]["retry_on_asset_or_op_failure"] is False
    assert instance["telemetry"] == {"enabled": False}


def test_accounting_sweeps_and_retention_run_by_schedule_from_the_start() -> None:
    found = [schedule for schedule in defs.schedules or () if isinstance(schedule, dg.ScheduleDefinition)]
    schedules = {schedule.job_name: schedule for schedule in found}
    assert {name: schedule.cron_schedule for name, schedule in schedules.items()} == {
        "accounting": "*/15 * * * *",
        "sweep": "7 * * * *",
        "retention": "23 3 * * *",
    }
    assert {schedule.default_status for schedule in schedules.values()} == {dg.DefaultScheduleStatus.RUNNING}
    assert {schedule.execution_timezone for schedule in schedules.values()} == {"UTC"}


def test_the_accounting_job_publishes_and_runs_every_check() -> None:
    layer = the_jobs()["accounting"].asset_layer
    checks = {key.name for node in layer.data for key in node.assets_def.check_keys}
    assert checks == set().union(*CHECKS_OF.values())
    assert {key.to_user_string() for key in layer.selected_asset_keys} == {
        *CHECKS_OF,
        "ledger_export",
        "operations_report",
    }


def test_loading_the_partitioned_check_warns_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", dg.PreviewWarning)
        assert "release_no_worse" in runpy.run_path(evaluation.__file__)
