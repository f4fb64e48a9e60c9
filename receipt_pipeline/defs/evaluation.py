"""The evaluation of releases: an asset with a partition for each shipped release, and its check."""

import warnings
from pathlib import Path
from typing import Any

import dagster as dg

from receipt_pipeline.app import admin
from receipt_pipeline.chain.release import RELEASES_FOLDER
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.defs.assets import OWNERS
from receipt_pipeline.defs.checks import check_result
from receipt_pipeline.defs.jobs import TAGS
from receipt_pipeline.defs.resources import ReceiptServices
from receipt_pipeline.evaluation import records
from receipt_pipeline.settings import read_settings

GROUP = "evaluation"


def shipped_release_names(shipped: Path) -> list[str]:
    """Return the names of the release templates; a new one is new code and comes with a reload."""
    return sorted(path.stem for path in (shipped / RELEASES_FOLDER).glob("*.json"))


RELEASES = dg.StaticPartitionsDefinition(shipped_release_names(read_settings({}).shipped))


@dg.asset(
    description="One release on the labelled set: field scores, risk curves, calibration, confusion, misses.",
    group_name=GROUP,
    owners=OWNERS,
    kinds={"html", "file"},
    partitions_def=RELEASES,
)
def chain_evaluation(
    context: dg.AssetExecutionContext, services: ReceiptServices
) -> dg.MaterializeResult[Any]:
    """Score the release of the partition and publish its page."""
    opened = services.open()
    try:
        document = admin.evaluate_release(opened, opened.principal(), context.partition_key)
    except PipelineError as error:
        raise dg.Failure(str(error), metadata={"reason": error.reason.code}, allow_retries=False) from error
    figures = document["figures"]
    shown = (
        "strict_micro_f1",
        "normalised_micro_f1",
        "risk_auc_pictures",
        "cleared_share",
        "cleared_wrong_share",
        "cleared_forged_share",
    )
    return dg.MaterializeResult(
        metadata={
            **{name: figures[name] for name in shown if figures[name] is not None},
            "scans": document["scans"],
            "page": dg.MetadataValue.path(
                str(records.evaluation_page(opened.evaluations, context.partition_key))
            ),
            "calibration": dg.MetadataValue.table(
                [
                    dg.TableRecord({name: row[name] for name in ("count", "risk_mean", "forged_share")})
                    for row in document["reliability"]
                ],
                schema=dg.TableSchema(
                    [dg.TableColumn(name, "float") for name in ("count", "risk_mean", "forged_share")]
                ),
            ),
        }
    )


with warnings.catch_warnings():
    # Partitions of checks are a preview; the version is pinned, and whoever loads this need not be told.
    warnings.filterwarnings("ignore", "Specifying a partitions_def on an AssetCheckSpec", dg.PreviewWarning)

    @dg.asset_check(
        asset=chain_evaluation,
        partitions_def=RELEASES,
        description="not worse than the approved release beyond noise; otherwise its approval is refused.",
    )
    def release_no_worse(
        context: dg.AssetCheckExecutionContext, services: ReceiptServices
    ) -> dg.AssetCheckResult:
        """Ask what `receipts release approve` asks."""
        return check_result(records.release_no_worse(services.open().evaluations, context.partition_key), {})


evaluation = dg.define_asset_job(
    "evaluation",
    selection=dg.AssetSelection.assets(chain_evaluation),
    description="Evaluate one shipped release on the labelled set.",
    executor_def=dg.in_process_executor,
    tags=TAGS,
)
