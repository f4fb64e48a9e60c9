"""Asset checks: each calls the very function that reconciliation or accounting uses."""

from collections.abc import Mapping

import dagster as dg

from receipt_pipeline.app import maintenance
from receipt_pipeline.app.maintenance import CHECK_ASSETS
from receipt_pipeline.defs.metadata import jobs_linked
from receipt_pipeline.defs.resources import ReceiptServices
from receipt_pipeline.ledger.invariants.invariant import CheckOutcome

OFFENDERS_SHOWN_MAX = 50


def check_result(outcome: CheckOutcome, runs: Mapping[str, str]) -> dg.AssetCheckResult:
    """Show the outcome with a table of offenders, the way to each job, and the query that finds them."""
    shown = outcome.violations[:OFFENDERS_SHOWN_MAX]
    names = list(shown[0]) if shown else ["job_id"]
    return dg.AssetCheckResult(
        passed=outcome.passed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=outcome.description,
        metadata={
            "offenders": len(outcome.violations),
            "who": dg.MetadataValue.table(
                [dg.TableRecord({name: str(row[name]) for name in names}) for row in shown],
                schema=dg.TableSchema([dg.TableColumn(name) for name in names]),
            ),
            "jobs": jobs_linked(_job_ids(outcome), runs),
            "query": dg.MetadataValue.md(f"```sql\n{outcome.query_text}\n```"),
        },
    )


def _job_ids(outcome: CheckOutcome) -> list[str]:
    return [str(row["job_id"]) for row in outcome.violations[:OFFENDERS_SHOWN_MAX] if row.get("job_id")]


def _check(name: str, asset: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(name=name, asset=asset, description=f"{name.replace('_', ' ')}.")
    def checked(services: ReceiptServices) -> dg.AssetCheckResult:
        opened = services.open()
        outcome = maintenance.run_check(opened, name)
        return check_result(outcome, maintenance.last_runs(opened, _job_ids(outcome)))

    return checked


ALL_CHECKS = tuple(_check(name, asset) for name, asset in CHECK_ASSETS.items())
