"""A wave's run: its jobs end, one job's trouble stays its own, and a repeated run does nothing twice."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from receipt_pipeline.app import analyst, submitter
from receipt_pipeline.core.errors import StageFailed
from receipt_pipeline.core.reasons import ENGINE_OCR_UNAVAILABLE
from receipt_pipeline.defs.resources import IN_MEMORY
from receipt_pipeline.defs.waves import ITEMS_PER_GROUP, classify_wave
from receipt_pipeline_tests.intake_home import scan_bytes
from receipt_pipeline_tests.orchestration.conftest import OpenHome
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome


def steps_of(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    ended = {"STEP_SUCCESS": True, "STEP_FAILURE": False}
    return {
        event.step_key: ended[event.event_type_value]
        for event in result.all_events
        if event.step_key and event.event_type_value in ended
    }


def outcomes_of(result: dg.ExecuteInProcessResult) -> dict[str, list[tuple[Any, ...]]]:
    found = {}
    for event in result.all_events:
        if event.event_type_value == "STEP_OUTPUT" and "outcomes" in event.step_output_data.metadata:
            table = event.step_output_data.metadata["outcomes"]
            assert isinstance(table, dg.TableMetadataValue)
            found[event.step_key or ""] = [
                tuple(record.data[name] for name in ("job_id", "outcome", "items")) for record in table.records
            ]
    return found


def one_wave(home: OpenedHome) -> str:
    (wave_id,) = home.dispatch()
    return wave_id


@pytest.mark.requirement("R148")
def test_a_steps_rows_begin_with_the_consequence_and_end_with_the_id(open_named: OpenHome) -> None:
    home = open_named(wave_slots=1)
    job_id = home.submit("job", items=2)
    result = home.run_wave(one_wave(home))
    (event,) = [
        event
        for event in result.all_events
        if event.event_type_value == "STEP_OUTPUT" and "outcomes" in event.step_output_data.metadata
    ]
    table = event.step_output_data.metadata["outcomes"]
    assert isinstance(table, dg.TableMetadataValue)
    columns = [column.name for column in table.schema.columns]
    assert columns == ["stands", "safe_now", "asked", "outcome", "items", "in_full", "job_id"]
    (record,) = table.records
    assert record.data["stands"] == "succeeded / complete; 2 of 2 items in the verified result"
    assert record.data["safe_now"] == "Read the verified result."
    assert record.data["in_full"] == f"receipts status {job_id} --audience support"


@pytest.fixture
def home(open_named: OpenHome) -> OpenedHome:
    return open_named(wave_slots=1)


def test_a_wave_ends_every_job_that_it_reserved(home: OpenedHome) -> None:
    job_ids = [home.submit(f"job-{number}", items=2) for number in range(3)]
    result = home.run_wave(one_wave(home))
    assert result.success
    assert {home.job(job_id)["state"] for job_id in job_ids} == {"succeeded"}
    assert [(row["state"], row["jobs_total"], row["items_total"]) for row in home.waves()] == [("closed", 3, 6)]
    assert {home.bench.bench.attempts(job_id)[0]["run_id"] for job_id in job_ids} == {result.run_id}
    assert home.dispatch() == []


def test_small_jobs_share_a_step_and_a_large_one_has_its_own(home: OpenedHome) -> None:
    small = [home.submit(f"small-{number}", items=2) for number in range(3)]
    large = home.submit("large", items=ITEMS_PER_GROUP)
    result = home.run_wave(one_wave(home))
    assert outcomes_of(result) == {
        f"work_group[{small[0]}_3_jobs]": [(job_id, "closed", 2) for job_id in small],
        f"work_group[{large}]": [(large, "closed", ITEMS_PER_GROUP)],
    }


def test_a_jobs_expected_failure_is_a_recorded_outcome_and_no_red_step(home: OpenedHome) -> None:
    home.chain.answers = {scan_bytes(3): StageFailed(ENGINE_OCR_UNAVAILABLE)}
    before, failing, after = (home.submit("before"), home.submit("failing", items=3), home.submit("after", items=2))
    result = home.run_wave(one_wave(home))
    assert set(steps_of(result).values()) == {True}
    assert [line for lines in outcomes_of(result).values() for line in lines] == [
        (before, "closed", 1),
        (failing, "attempt_failed", 2),
        (after, "closed", 2),
    ]
    assert [home.job(job_id)["state"] for job_id in (before, failing, after)] == ["succeeded", "running", "succeeded"]
    (attempt,) = home.bench.bench.attempts(failing)
    assert (attempt["outcome"], attempt["reason_code"]) == ("failed", ENGINE_OCR_UNAVAILABLE.code)


def test_a_defect_turns_its_step_red_after_the_siblings_have_ended(home: OpenedHome) -> None:
    home.chain.answers = {scan_bytes(3): RuntimeError("a defect")}
    before, broken, after = home.submit("before"), home.submit("broken", items=3), home.submit("after")
    result = home.run_wave(one_wave(home))
    assert not result.success
    assert steps_of(result)[f"work_group[{before}_3_jobs]"] is False
    assert [home.job(job_id)["state"] for job_id in (before, broken, after)] == ["succeeded", "running", "succeeded"]


def test_a_red_group_does_not_keep_the_other_groups_from_ending(home: OpenedHome) -> None:
    home.chain.answers = {scan_bytes(9): RuntimeError("a defect")}
    broken = home.submit("broken", items=9)
    others = [home.submit(f"other-{number}", items=8) for number in range(2)]
    result = home.run_wave(one_wave(home))
    assert steps_of(result) == {
        "plan_wave": True,
        f"work_group[{broken}]": False,
        **{f"work_group[{job_id}]": True for job_id in others},
    }
    assert {home.job(job_id)["state"] for job_id in others} == {"succeeded"}
    assert home.job(broken)["state"] == "running"


@pytest.mark.requirement("R027")
def test_two_runs_of_one_wave_leave_one_result(home: OpenedHome) -> None:
    job_id = home.submit("once", items=3)
    wave_id = one_wave(home)
    assert home.run_wave(wave_id).success
    first, rows = home.job(job_id), home.bench.snapshot()
    assert home.run_wave(wave_id).success
    assert home.job(job_id) == first
    assert home.bench.snapshot() == rows
    assert len(home.chain.asked) == 3
    assert home.bench.bench.stored_results(job_id) == [first["result_key"]]


def test_a_green_run_is_no_evidence_of_a_jobs_success(home: OpenedHome) -> None:
    home.chain.answers = {scan_bytes(1): StageFailed(ENGINE_OCR_UNAVAILABLE)}
    job_id = home.submit("unlucky")
    assert home.run_wave(one_wave(home)).success
    report = analyst.read_report(home.app, home.principal)
    assert (report["succeeded"], report["in_flight"]) == (0, 1)
    assert submitter.read_status(home.app, home.principal, job_id)["state"] == "running"


def test_a_red_run_is_no_evidence_of_a_jobs_failure(home: OpenedHome) -> None:
    home.chain.answers = {scan_bytes(2): RuntimeError("a defect")}
    good, broken = home.submit("good"), home.submit("broken", items=2)
    assert not home.run_wave(one_wave(home)).success
    report = analyst.read_report(home.app, home.principal)
    assert (report["succeeded"], report["failed"], report["in_flight"]) == (1, 0, 1)
    assert submitter.read_status(home.app, home.principal, good)["state"] == "succeeded"
    assert submitter.read_status(home.app, home.principal, broken)["state"] == "running"


def test_a_run_without_its_waves_tag_says_what_is_missing(home: OpenedHome) -> None:
    result = classify_wave.execute_in_process(
        resources={"app": home.resource, IN_MEMORY: dg.mem_io_manager}, raise_on_error=False
    )
    assert steps_of(result) == {"plan_wave": False}
    error = result.failure_data_for_node("plan_wave")
    assert error is not None
    assert "receipt/wave" in str(error.error)


def test_what_became_ready_meanwhile_is_taken_up_by_the_same_run(home: OpenedHome) -> None:
    first = home.submit("first")
    wave_id = one_wave(home)
    late: list[str] = []

    def arrive(_scan: bytes) -> None:
        if not late:
            late.append(home.submit("late", items=2))

    home.chain.on_classify = arrive
    with dg.DagsterInstance.ephemeral() as instance:
        result = home.run_wave(wave_id, instance=instance)
        tags = instance.get_runs()[0].tags
    assert {home.job(job_id)["state"] for job_id in (first, *late)} == {"succeeded"}
    assert result.output_for_node("close_wave") == 2
    assert tags[f"receipt.job/{late[0]}"] == wave_id
    (observed,) = result.get_asset_observation_events()
    assert observed.asset_observation_data.asset_observation.asset_key == dg.AssetKey("job_ledger")
    found = observed.asset_observation_data.asset_observation.metadata
    assert {name: value.value for name, value in found.items()} == {"jobs": 2, "late_claims": 1, "released": 0}
    assert [row["jobs_total"] for row in home.waves()] == [2]


def test_a_wave_whose_slice_is_used_up_leaves_its_jobs_ready_for_another(open_named: OpenHome) -> None:
    home = open_named(wave_slots=1, wave_slice_s=0)
    job_ids = [home.submit(f"job-{number}") for number in range(2)]
    first = one_wave(home)
    result = home.run_wave(first)
    assert result.success
    assert outcomes_of(result) == {f"work_group[{job_ids[0]}_2_jobs]": [(job_id, "left", 0) for job_id in job_ids]}
    assert {home.job(job_id)["state"] for job_id in job_ids} == {"accepted"}
    assert one_wave(home) != first


@pytest.mark.requirement("R052")
def test_a_job_that_expired_in_its_reservation_is_never_computed(home: OpenedHome) -> None:
    job_id = home.submit("late", limits={"max_queue_age_s": 47})
    wave_id = one_wave(home)
    home.clock.advance(48)
    assert home.run_wave(wave_id).success
    assert home.job(job_id)["state"] == "expired"
    assert home.chain.asked == []
    assert home.bench.bench.attempts(job_id) == []
