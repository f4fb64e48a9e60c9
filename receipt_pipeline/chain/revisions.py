"""The chain revisions that this installation carries, side by side, each with its stages and its reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from receipt_pipeline.chain.extract import extract_fields
from receipt_pipeline.chain.extract_rules import RULES_V2, RULES_V3, RULES_V4, ExtractRules
from receipt_pipeline.chain.judging_v3 import JUDGING_V3, judged_v3
from receipt_pipeline.chain.judging_v4 import JUDGING_V4, judged_v4
from receipt_pipeline.chain.ocr import OcrSettings
from receipt_pipeline.chain.stages import (
    JUDGING_V1,
    JUDGING_V2,
    READING_V1,
    SETTINGS_V1,
    SETTINGS_V2,
    JudgingStages,
    ReadingStages,
    Stage,
    chain_revision,
    stages_v1,
    stages_v2,
)
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.reasons import IDENTITY_MISSING

SETTINGS_V3 = replace(SETTINGS_V2, letter_sure=0.99, other_letter_min=0.005)
READING_V2 = ReadingStages(extract=partial(extract_fields, rules=RULES_V2))
READING_V3 = ReadingStages(extract=partial(extract_fields, rules=RULES_V3))
READING_V4 = ReadingStages(extract=partial(extract_fields, rules=RULES_V4))


def stages_v3(settings: OcrSettings | None = None) -> tuple[Stage, ...]:
    """Return the ordered stages of `chain-v3`, for these OCR settings or the chain's own."""
    return (*_read(settings), _extracted("3", RULES_V3), *judged_v3())


def stages_v4(settings: OcrSettings | None = None) -> tuple[Stage, ...]:
    """Return the ordered stages of `chain-v4`, for these OCR settings or those of `chain-v3`."""
    return (*_read(settings), _extracted("4", RULES_V4), *judged_v4())


def _read(settings: OcrSettings | None) -> tuple[Stage, ...]:
    """Return the stages decode and ocr since `chain-v3`."""
    ocr = (settings if settings is not None else SETTINGS_V3).as_document()
    return (stages_v2()[0], Stage("ocr", "2", ocr))


def _extracted(version: str, rules: ExtractRules) -> Stage:
    return Stage("extract", version, rules.as_document())


@dataclass(frozen=True, slots=True)
class CarriedChain:
    """One chain by its name: how its stages are identified, how it reads and finds fields, how it judges."""

    name: str
    settings: OcrSettings
    stages: Callable[[OcrSettings | None], tuple[Stage, ...]]
    reading: ReadingStages
    judging: JudgingStages

    @property
    def revision(self) -> str:
        """Return the digest that pins name this chain by."""
        return chain_revision(self.stages(self.settings))


def carried_chains() -> tuple[CarriedChain, ...]:
    """Return every chain that can be loaded here, oldest first; an older one keeps its answers."""
    return (
        CarriedChain("chain-v1", SETTINGS_V1, stages_v1, READING_V1, JUDGING_V1),
        CarriedChain("chain-v2", SETTINGS_V2, stages_v2, READING_V2, JUDGING_V2),
        CarriedChain("chain-v3", SETTINGS_V3, stages_v3, READING_V3, JUDGING_V3),
        CarriedChain("chain-v4", SETTINGS_V3, stages_v4, READING_V4, JUDGING_V4),
    )


def chain_named(name: str) -> CarriedChain:
    """Return the chain of a release template. Raises IdentityMismatch: IDENTITY.MISSING.v1."""
    return _only(name, lambda chain: chain.name)


def chain_of_revision(revision: str) -> CarriedChain:
    """Return the chain that pins name. Raises IdentityMismatch: IDENTITY.MISSING.v1."""
    return _only(revision, lambda chain: chain.revision)


def _only(wanted: str, key: Callable[[CarriedChain], str]) -> CarriedChain:
    for chain in carried_chains():
        if key(chain) == wanted:
            return chain
    raise IdentityMismatch(IDENTITY_MISSING, artefact="chain_revision", expected=wanted)
