"""The lists of invariants, checks, mutations and faults on the page of invariants."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from docs.generate.blocks import table, with_blocks
from receipt_pipeline.ledger.invariants import INVARIANTS
from receipt_pipeline.ledger.invariants.invariant import Invariant
from receipt_pipeline_tests.chaos.crash_matrix.cells import MEANINGS
from receipt_pipeline_tests.chaos.matrix import PAGE
from receipt_pipeline_tests.chaos.mutations import MUTATIONS
from receipt_pipeline_tests.chaos.oracle.invariants import ALWAYS, AT_REST, OF_WRITES

GROUPS: tuple[tuple[str, Iterable[Callable[..., Any]]], ...] = (
    ("At any moment, of any ledger:", ALWAYS),
    ("When nothing is due any longer:", AT_REST),
    ("Of every single write in a simulation:", OF_WRITES),
)


def invariants_text() -> str:
    """Return the page with its lists generated again."""
    listed: list[str] = []
    for head, invariants in GROUPS:
        listed += ["", head, ""]
        listed += [f"- `{entry.__name__}`: {(entry.__doc__ or '').strip()}" for entry in invariants]
    blocks = {
        "invariants": "\n".join([*listed, ""]),
        "checks": "\n".join(
            table(
                "name | what holds | investigation | what to do",
                (_check_row(line) for line in INVARIANTS if line.asset or not line.warns),
            )
        ),
        "mutations": "\n".join(
            table(
                "defect | seed | first invariant that breaks",
                ((entry.name, str(entry.seed), f"`{entry.breaks}`") for entry in MUTATIONS),
            )
        ),
        "faults": "\n".join(
            table(
                "fault | what happens at the boundary", ((f"`{fault}`", meaning) for fault, meaning in MEANINGS.items())
            )
        ),
    }
    return with_blocks(PAGE.read_text(encoding="utf-8"), blocks)


def _check_row(invariant: Invariant) -> Iterable[str]:
    """Return a line of the table; what a violation fills in is written in capitals."""
    kind = f"`{invariant.investigation.kind}`" if invariant.investigation else ""
    names = f"`{invariant.name}`" + (f" of `{invariant.asset}`" if invariant.asset else "")
    repair = re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), invariant.repair)
    return names, invariant.meaning, kind, repair
