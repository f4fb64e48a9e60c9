"""Asset checks: one multi-check per asset, made from the invariants that reconciliation uses."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import dagster as dg

from receipt_pipeline.accounting.checks import ACCOUNTING_CHECKS
from receipt_pipeline.app import maintenance
from receipt_pipeline.defs.metadata import job_links, table
from receipt_pipeline.defs.resources import AppResource
from receipt_pipeline.ledger.invariants import CHECKED
from receipt_pipeline.ledger.invariants.invariant import CheckOutcome


def check_metadata(outcome: CheckOutcome, runs: Mapping[str, str]) -> dict[str, Any]:
    """Return what to do first, then the count, the violations with their jobs first, and the query."""
    violations = outcome.violations
    columns = dict.fromkeys(["job_id", *(violations[0] if violations else ())])
    return {
        "repair": outcome.repair or ("see the violations" if violations else "nothing to repair"),
        "violations": len(violations),
        "jobs": table(violations, list(columns)),
        "links": job_links((row.get("job_id") for row in violations), runs),
        "query": dg.MetadataValue.md(f"```sql\n{outcome.query_text}\n```"),
    }


def _asset_checks(asset: str, specs: Iterable[dg.AssetCheckSpec]) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(name=f"{asset}_checks", specs=list(specs), can_subset=True)
    def checks(context: dg.AssetCheckExecutionContext, app: AppResource) -> Iterator[dg.AssetCheckResult]:
        opened = app.open()
        for key in sorted(context.selected_asset_check_keys):
            outcome = maintenance.run_check(opened, key.name)
            runs = maintenance.last_runs(opened, [row.get("job_id") for row in outcome.violations])
            warns = key.name in CHECKED and CHECKED[key.name].warns
            yield dg.AssetCheckResult(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=outcome.passed,
                severity=dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR,
                # The UI sorts metadata by name, below this text: the repair has to come first.
                description=" ".join(filter(None, (outcome.description, outcome.repair))),
                metadata=check_metadata(outcome, runs),
            )

    return checks


SPECS = [
    *(
        dg.AssetCheckSpec(name, asset=rule.asset, description=rule.meaning, blocking=rule.blocking)
        for name, rule in CHECKED.items()
    ),
    *(
        dg.AssetCheckSpec(name, asset=check.asset, description=check.meaning)
        for name, check in ACCOUNTING_CHECKS.items()
    ),
]
ALL_CHECKS = [
    _asset_checks(key.to_user_string(), [spec for spec in SPECS if spec.asset_key == key])
    for key in dict.fromkeys(spec.asset_key for spec in SPECS)
]
