"""The Dagster job that works one wave: groups of receipt jobs as mapped steps, in one process."""

from collections.abc import Iterator

import dagster as dg

from receipt_pipeline.app import maintenance
from receipt_pipeline.defs.resources import ReceiptServices

ITEMS_PER_GROUP = 8
WAVE_TAG = "receipt/wave"
# Steps of one process hand ids to each other; nothing of a wave is worth a file.
IN_MEMORY = "in_memory"
MAX_RUNTIME_S = 900


def _wave_id(context: dg.OpExecutionContext) -> str:
    wave_id = context.run.tags.get(WAVE_TAG)
    if not wave_id:
        raise dg.Failure(f"the run carries no tag {WAVE_TAG}; waves are launched by the dispatch sensor")
    return wave_id


@dg.op(out=dg.DynamicOut(list[str], io_manager_key=IN_MEMORY), tags={"dagster/compute_kind": "ledger"})
def plan_wave(
    context: dg.OpExecutionContext, services: ReceiptServices
) -> Iterator[dg.DynamicOutput[list[str]]]:
    """Read what the wave reserves, warm the reader up, and hand out groups of jobs."""
    groups = maintenance.begin_wave(
        services.open(), _wave_id(context), run_id=context.run_id, items_per_group=ITEMS_PER_GROUP
    )
    for number, group in enumerate(groups):
        yield dg.DynamicOutput(group, mapping_key=f"group_{number:03d}")


@dg.op(out=dg.Out(list[str], io_manager_key=IN_MEMORY), tags={"dagster/compute_kind": "ocr"})
def work_group(context: dg.OpExecutionContext, services: ReceiptServices, job_ids: list[str]) -> list[str]:
    """Claim and work each job of the group; what happened is returned, never raised."""
    lines = maintenance.work_group(services.open(), _wave_id(context), job_ids, run_id=context.run_id)
    told = maintenance.summarize_jobs(services.open(), [line.job_id for line in lines])
    names = ("stands", "safe_now", "asked", "outcome", "items", "in_full", "job_id")
    rows: list[dict[str, str | int]] = [
        {**row, "outcome": str(line.outcome), "items": line.items_done}
        for row, line in zip(told, lines, strict=True)
    ]
    context.add_output_metadata(
        {
            "jobs": len(lines),
            "outcomes": dg.MetadataValue.table(
                [dg.TableRecord({name: row[name] for name in names}) for row in rows],
                schema=dg.TableSchema(
                    [dg.TableColumn(name, type="int" if name == "items" else "string") for name in names]
                ),
            ),
        }
    )
    return [line.job_id for line in lines]


@dg.op(out=dg.Out(int, io_manager_key=IN_MEMORY), tags={"dagster/compute_kind": "ledger"})
def close_wave(context: dg.OpExecutionContext, services: ReceiptServices, worked: list[list[str]]) -> int:
    """Work what became ready meanwhile, then close the wave; what it still reserves is ready again."""
    opened = services.open()
    wave_id = _wave_id(context)
    further = maintenance.continue_wave(opened, wave_id, run_id=context.run_id)
    freed = maintenance.close_wave(opened, wave_id)
    count = sum(len(group) for group in worked) + len(further)
    context.add_output_metadata({"jobs worked": count, "of them taken up late": len(further), "freed": freed})
    return count


@dg.job(
    executor_def=dg.in_process_executor,
    tags={"dagster/retry_strategy": "ALL_STEPS", "dagster/max_runtime": str(MAX_RUNTIME_S)},
    description="One wave of receipt jobs. Green means that the wave ran, not that its jobs succeeded: "
    "the ledger says what became of each.",
)
def classify_wave() -> None:
    """Plan, work and close one wave."""
    close_wave(plan_wave().map(work_group).collect())
