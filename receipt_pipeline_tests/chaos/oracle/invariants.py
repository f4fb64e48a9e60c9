"""All invariants of the oracle.

`ALWAYS` holds for any ledger at any moment, `AT_REST` when nothing is due any more, and `OF_WRITES` over the
evidence of a simulation, which has every single write.
"""

from __future__ import annotations

from receipt_pipeline_tests.chaos.oracle.effects import (
    EFFECT_INVARIANTS,
    EFFECT_INVARIANTS_AT_REST,
    EFFECT_INVARIANTS_OF_WRITES,
)
from receipt_pipeline_tests.chaos.oracle.outputs import (
    OUTPUT_INVARIANTS,
    OUTPUT_INVARIANTS_AT_REST,
    OUTPUT_INVARIANTS_OF_WRITES,
)
from receipt_pipeline_tests.chaos.oracle.records import (
    RECORD_INVARIANTS,
    RECORD_INVARIANTS_AT_REST,
    RECORD_INVARIANTS_OF_WRITES,
)
from receipt_pipeline_tests.chaos.oracle.work import WORK_INVARIANTS, WORK_INVARIANTS_AT_REST, WORK_INVARIANTS_OF_WRITES

ALWAYS = (*RECORD_INVARIANTS, *WORK_INVARIANTS, *OUTPUT_INVARIANTS, *EFFECT_INVARIANTS)
AT_REST = (*RECORD_INVARIANTS_AT_REST, *WORK_INVARIANTS_AT_REST, *OUTPUT_INVARIANTS_AT_REST, *EFFECT_INVARIANTS_AT_REST)
OF_WRITES = (
    *RECORD_INVARIANTS_OF_WRITES,
    *WORK_INVARIANTS_OF_WRITES,
    *OUTPUT_INVARIANTS_OF_WRITES,
    *EFFECT_INVARIANTS_OF_WRITES,
)
INVARIANTS = (*ALWAYS, *AT_REST, *OF_WRITES)
