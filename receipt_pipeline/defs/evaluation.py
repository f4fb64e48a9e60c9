"""Evaluation by release: an asset with one partition per shipped release, and its check."""

import warnings
from pathlib import Path
from typing import Any

import dagster as dg

from receipt_pipeline.app import admin
from receipt_pipeline.chain.release import RELEASES_FOLDER
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.defs.assets import OWNERS
from receipt_pipeline.defs.checks import check_metadata
from receipt_pipeline.defs.metadata import table
from receipt_pipeline.defs.resources import AppResource
from receipt_pipeline.defs.waves import RUN_TAGS
from receipt_pipeline.evaluation import records
from receipt_pipeline.settings import read_settings

GROUP = "evaluation"


def shipped_release_names(shipped: Path) -> list[str]:
    """Return the names of the release templates; a new one is new code and comes with a reload."""
    return sorted(path.stem for path in (shipped / RELEASES_FOLDER).glob("*.json"))


FIGURES = (
    "strict_micro_f1",
    "normalised_micro_f1",
    "risk_auc_pictures",
    "cleared_share",
    "cleared_wrong_share",
    "cleared_forged_share",
)
RELEASES = dg.StaticPartitionsDefinition(shipped_release_names(read_settings({}).shipped))


@dg.asset(
    description="One release on the labeled set: field scores, risk curves, calibration, confusion, misses.",
    group_name=GROUP,
    owners=OWNERS,
    kinds={"html", "file"},
    partitions_def=RELEASES,
)
def chain_evaluation(context: dg.AssetExecutionContext, app: AppResource) -> dg.MaterializeResult[Any]:
    """Score the release of the partition and publish its page."""
    opened = app.open()
    try:
        document = admin.evaluate_release(opened, opened.principal(), context.partition_key)
    except PipelineError as error:
        raise dg.Failure(str(error), metadata={"reason": error.reason.code}, allow_retries=False) from error
    figures = document["figures"]
    page = records.evaluation_page(opened.evaluations, context.partition_key)
    return dg.MaterializeResult(
        metadata={
            **{name: figures[name] for name in FIGURES if figures[name] is not None},
            "scans": document["scans"],
            "calibration": table(document["reliability"], ("count", "risk_mean", "forged_share")),
            "page": dg.MetadataValue.path(str(page)),
        }
    )


with warnings.catch_warnings():
    # Partitions of checks are a preview; the version is pinned, so this is no news to an operator.
    warnings.filterwarnings("ignore", "Specifying a partitions_def on an AssetCheckSpec", dg.PreviewWarning)

    @dg.asset_check(
        asset=chain_evaluation,
        partitions_def=RELEASES,
        description="Not worse than the approved release beyond noise; otherwise its approval is refused.",
    )
    def release_no_worse(context: dg.AssetCheckExecutionContext, app: AppResource) -> dg.AssetCheckResult:
        """Check what `receipts release approve` checks."""
        outcome = records.release_no_worse(app.open().evaluations, context.partition_key)
        return dg.AssetCheckResult(
            passed=outcome.passed, description=outcome.description, metadata=check_metadata(outcome, {})
        )


evaluation = dg.define_asset_job(
    "evaluation",
    selection=dg.AssetSelection.assets(chain_evaluation),
    description="Evaluate one shipped release on the labeled set.",
    executor_def=dg.in_process_executor,
    tags=RUN_TAGS,
)
