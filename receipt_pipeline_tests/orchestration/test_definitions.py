"""The code location: it loads without side effects, and each definition is what operators rely on."""

from __future__ import annotations

import runpy
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import dagster as dg
import pytest
import yaml

from receipt_pipeline import definitions
from receipt_pipeline.core.limits import Limits
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
SOURCES = {"submissions", "job_ledger", "result_objects", "notifications", "review_tasks"}
SCHEDULED = {"job_accounting", "operations_report", "daily_receipts"}
ON_DEMAND = {"ledger_export", "chain_evaluation"}
SENSORS = {"submissions", "dispatch", "deliveries", "reconcile", "run_failures"}
JOBS = {"classify_wave", "accounting", "daily", "alerts", "sweep", "retention", "drill", "evaluation"}
ASSETS_OF_JOBS = {
    "accounting": {*SOURCES, "job_accounting", "operations_report"},
    "daily": {"daily_receipts"},
    "evaluation": {"chain_evaluation"},
}
CHECKS_OF_JOBS = {"accounting": set().union(*CHECKS_OF.values()), "daily": set(), "evaluation": {"release_no_worse"}}
LOAD = "from receipt_pipeline.definitions import defs; defs().get_repository_def()"


@pytest.fixture(scope="module")
def repository() -> dg.RepositoryDefinition:
    loaded = definitions.defs().get_repository_def()
    assert isinstance(loaded, dg.RepositoryDefinition)
    return loaded


def the_jobs(repository: dg.RepositoryDefinition) -> dict[str, dg.JobDefinition]:
    return {job.name: job for job in repository.get_all_jobs() if not job.name.startswith("__")}


@pytest.mark.parametrize("lost_result", ["", "objects/results/job_lost/1-x"])
def test_loading_creates_nothing_also_where_the_ledger_is_gone(tmp_path: Path, lost_result: str) -> None:
    if lost_result:
        (tmp_path / lost_result).parent.mkdir(parents=True)
        (tmp_path / lost_result).write_text("x")
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", LOAD], env={"RECEIPTS_HOME": str(tmp_path)}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_an_installed_package_finds_the_project_that_the_checkout_has() -> None:
    installed = tomllib.loads((PROJECT / "receipt_pipeline" / "dg.toml").read_text())
    assert installed == tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["dg"]


def test_the_workspace_names_this_code_location_and_no_folder() -> None:
    (entry,) = yaml.safe_load((PROJECT / "workspace.yaml").read_text())["load_from"]
    assert entry == {"python_module": {"module_name": "receipt_pipeline.definitions", "location_name": "receipts"}}


def test_every_check_belongs_to_its_asset_says_its_meaning_and_blocks_nothing(
    repository: dg.RepositoryDefinition,
) -> None:
    graph = repository.asset_graph
    found: dict[str, set[str]] = {}
    for key in graph.asset_check_keys:
        found.setdefault(key.asset_key.to_user_string(), set()).add(key.name)
        spec = graph.get_check_spec(key)
        assert (spec.description or "").endswith("."), key
        assert not spec.blocking, key  # A day with violations is the day on which the report is needed.
    assert found == CHECKS_OF | EVALUATED
    assert sum(map(len, CHECKS_OF.values())) == 17


def test_every_asset_is_described_and_the_scheduled_ones_must_be_fresh(repository: dg.RepositoryDefinition) -> None:
    graph = repository.asset_graph
    nodes = {key.to_user_string(): graph.get(key) for key in graph.get_all_asset_keys()}
    assert set(nodes) == SOURCES | SCHEDULED | ON_DEMAND
    for name, node in nodes.items():
        assert node.owners, name
        assert node.group_name, name
        assert node.kinds, name
        assert node.description, name
        # The evaluator reads materializations, so that an observed asset would be unknown for ever.
        assert (node.freshness_policy is not None) == (name in SCHEDULED), name
        assert node.is_observable == (name in SOURCES), name


def test_the_columns_of_a_source_are_explained(repository: dg.RepositoryDefinition) -> None:
    for name in SOURCES:
        schema = repository.asset_graph.get(dg.AssetKey(name)).metadata["dagster/column_schema"]
        assert [column.name for column in schema.columns if not column.description] == [], name


def test_the_account_is_built_after_what_it_counts(repository: dg.RepositoryDefinition) -> None:
    above = repository.asset_graph.get_ancestor_asset_keys(dg.AssetKey("job_accounting"))
    assert {key.to_user_string() for key in above} == SOURCES


def test_every_sensor_runs_from_the_start_every_few_seconds_and_is_described(
    repository: dg.RepositoryDefinition,
) -> None:
    sensors = {sensor.name: sensor for sensor in repository.sensor_defs}
    assert {sensor.default_status for sensor in sensors.values()} == {dg.DefaultSensorStatus.RUNNING}
    assert all(sensor.description for sensor in sensors.values())
    assert {name: sensor.minimum_interval_seconds for name, sensor in sensors.items()} == {
        name: 15 if name == "run_failures" else 5 for name in SENSORS
    }


def test_every_dagster_job_is_repeated_whole_bounded_in_time_and_one_process(
    repository: dg.RepositoryDefinition,
) -> None:
    jobs = the_jobs(repository)
    assert set(jobs) == JOBS
    assert {job.tags["dagster/retry_strategy"] for job in jobs.values()} == {"ALL_STEPS"}
    assert {int(job.tags["dagster/max_runtime"]) for job in jobs.values()} == {MAX_RUNTIME_S}
    assert {job.executor_def.name for job in jobs.values()} == {"in_process"}
    assert all(job.description for job in jobs.values())


def test_a_wave_stops_claiming_before_half_of_its_runs_time_is_over() -> None:
    assert Limits().work.wave_slice_s < MAX_RUNTIME_S / 2


@pytest.mark.parametrize("name", ["dagster.yaml", "dagster.postgres.yaml"])
def test_the_instance_allows_every_run_the_time_that_its_job_asks_for(name: str) -> None:
    instance = yaml.safe_load((PROJECT / name).read_text())
    assert instance["run_monitoring"]["enabled"]
    assert instance["run_monitoring"]["max_runtime_seconds"] >= MAX_RUNTIME_S
    # The waves of every slot, and next to them one run of accounting or sweeping.
    assert instance["concurrency"]["runs"]["max_concurrent_runs"] == Limits().work.wave_slots + 1
    assert instance["run_queue"]["dequeue_interval_seconds"] == 1
    assert instance["run_retries"]["retry_on_asset_or_op_failure"] is False
    assert instance["telemetry"] == {"enabled": False}


def test_schedules_run_from_the_start_and_are_described(repository: dg.RepositoryDefinition) -> None:
    schedules = {schedule.job_name: schedule for schedule in repository.schedule_defs}
    assert {name: schedule.cron_schedule for name, schedule in schedules.items()} == {
        "accounting": "*/15 * * * *",
        "alerts": "12-59/15 * * * *",
        "daily": "40 0 * * *",
        "sweep": "7 * * * *",
        "retention": "23 3 * * *",
    }
    assert {schedule.default_status for schedule in schedules.values()} == {dg.DefaultScheduleStatus.RUNNING}
    assert {schedule.execution_timezone for schedule in schedules.values()} == {"UTC"}
    assert all(schedule.description for schedule in schedules.values())


@pytest.mark.parametrize("name", sorted(ASSETS_OF_JOBS))
def test_a_job_selects_its_assets_and_checks(repository: dg.RepositoryDefinition, name: str) -> None:
    layer = repository.get_job(name).asset_layer
    assert {key.to_user_string() for key in layer.selected_asset_keys} == ASSETS_OF_JOBS[name]
    assert {key.name for node in layer.data for key in node.assets_def.check_keys} == CHECKS_OF_JOBS[name]


def test_loading_the_partitioned_check_warns_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", dg.PreviewWarning)
        assert "release_no_worse" in runpy.run_path(evaluation.__file__)
