"""Stable, versioned reason codes: what happened, and what to do next."""

from receipt_pipeline.core.reasons.jobs import *  # noqa: F403
from receipt_pipeline.core.reasons.operations import *  # noqa: F403
from receipt_pipeline.core.reasons.registry import REASONS as REASONS
from receipt_pipeline.core.reasons.registry import Reason as Reason
from receipt_pipeline.core.reasons.registry import Remedy as Remedy
from receipt_pipeline.core.reasons.repairs import *  # noqa: F403
from receipt_pipeline.core.reasons.requests import *  # noqa: F403
from receipt_pipeline.core.reasons.scans import *  # noqa: F403
