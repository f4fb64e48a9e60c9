"""The Dagster job that processes one wave: groups of receipt jobs as mapped steps, in one process."""

from collections.abc import Iterable, Iterator

import dagster as dg

from receipt_pipeline.app import maintenance
from receipt_pipeline.defs.metadata import table
from receipt_pipeline.defs.resources import IN_MEMORY, AppResource

ITEMS_PER_GROUP = 8
WAVE_TAG = "receipt/wave"
JOB_TAG = "receipt.job"
MAX_RUNTIME_S = 900
# The default retry re-runs only what failed, and succeeds although the other work was never done.
RUN_TAGS = {"dagster/retry_strategy": "ALL_STEPS", "dagster/max_runtime": str(MAX_RUNTIME_S)}
OUTCOME_COLUMNS = ("stands", "safe_now", "asked", "outcome", "items", "in_full", "job_id")


def wave_tags(wave_id: str, job_ids: Iterable[str]) -> dict[str, str]:
    """Return the tags by which the UI finds the run of a wave, and of each of its jobs."""
    return {WAVE_TAG: wave_id, **{f"{JOB_TAG}/{job_id}": wave_id for job_id in job_ids}}


def _wave_id(context: dg.OpExecutionContext) -> str:
    wave_id = context.run.tags.get(WAVE_TAG)
    if not wave_id:
        raise dg.Failure(f"The run has no tag {WAVE_TAG}; the sensor `dispatch` launches waves.")
    return wave_id


@dg.op(out=dg.DynamicOut(list[str], io_manager_key=IN_MEMORY), tags={"dagster/compute_kind": "ledger"})
def plan_wave(context: dg.OpExecutionContext, app: AppResource) -> Iterator[dg.DynamicOutput[list[str]]]:
    """Read what the wave reserves, warm the reader up, and form groups of jobs."""
    groups = maintenance.begin_wave(
        app.open(), _wave_id(context), run_id=context.run_id, items_per_group=ITEMS_PER_GROUP
    )
    for group in groups:
        key = group[0] if len(group) == 1 else f"{group[0]}_{len(group)}_jobs"
        yield dg.DynamicOutput(group, mapping_key=key)


@dg.op(out=dg.Out(list[str], io_manager_key=IN_MEMORY), tags={"dagster/compute_kind": "ocr"})
def work_group(context: dg.OpExecutionContext, app: AppResource, job_ids: list[str]) -> list[str]:
    """Claim and process each job of the group; an outcome is returned, never raised."""
    opened = app.open()
    results = maintenance.work_group(opened, _wave_id(context), job_ids, run_id=context.run_id)
    summaries = maintenance.summarize_jobs(opened, [result.job_id for result in results])
    rows = [
        {**summary, "outcome": str(result.outcome), "items": result.items_done}
        for summary, result in zip(summaries, results, strict=True)
    ]
    context.add_output_metadata({"jobs": len(results), "outcomes": table(rows, OUTCOME_COLUMNS)})
    return [result.job_id for result in results]


@dg.op(out=dg.Out(int, io_manager_key=IN_MEMORY), tags={"dagster/compute_kind": "ledger"})
def close_wave(context: dg.OpExecutionContext, app: AppResource, worked: list[list[str]]) -> int:
    """Process what became ready meanwhile, then close the wave; what it still reserves is ready again."""
    opened, wave_id = app.open(), _wave_id(context)
    late = maintenance.continue_wave(
        opened,
        wave_id,
        run_id=context.run_id,
        on_reserved=lambda job_ids: context.instance.add_run_tags(context.run_id, wave_tags(wave_id, job_ids)),
    )
    released = maintenance.close_wave(opened, wave_id)
    done = sum(len(group) for group in worked) + len(late)
    found = {"jobs": done, "late_claims": len(late), "released": released}
    context.add_output_metadata(found)
    context.log_event(dg.AssetObservation("job_ledger", metadata=found))
    return done


@dg.job(
    executor_def=dg.in_process_executor,
    tags=RUN_TAGS,
    description="Process one wave of receipt jobs. Success means that the wave ran, not that its jobs "
    "succeeded: the ledger has the outcome of each.",
)
def classify_wave() -> None:
    """Plan, process and close one wave."""
    close_wave(plan_wave().map(work_group).collect())
