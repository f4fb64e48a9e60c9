"""Makes a request of scans that come without a manifest: digests, generated ids and a derived key."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.envelope import DEFAULT_RELEASE, JOB_CONTRACT, ItemRequest, JobRequest
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.core.reasons import SCAN_UNREADABLE
from receipt_pipeline.core.system_errors import cause_of
from receipt_pipeline.intake.copying import ScanSource, hex_digest_of

ITEM_ID_DIGITS = 16


def scans_request(
    named: Mapping[str, str], *, principal: Principal, key: str | None = None, release: str | None = None
) -> JobRequest:
    """Return a request for scans by uri and hex digest, under the key given or the derived one.

    An item id is the first 16 digits of the digest, with `-2` and so on for repeats; being
    generated, it never lets an earlier decision stand for this one.
    """
    seen: Counter[str] = Counter()
    items = []
    for uri, sha256 in named.items():
        stem = sha256[:ITEM_ID_DIGITS]
        seen[stem] += 1
        item_id = stem if seen[stem] == 1 else f"{stem}-{seen[stem]}"
        items.append(ItemRequest(item_id=item_id, uri=uri, sha256=sha256, id_explicit=False))
    request = JobRequest(
        contract=JOB_CONTRACT, idempotency_key="", items=tuple(items), release=release or DEFAULT_RELEASE
    )
    return replace(request, idempotency_key=key or derived_key(principal, request))


def derived_key(principal: Principal, request: JobRequest) -> str:
    """Return the key that the same caller gets for the same request, always."""
    digest = digest_of({"caller": principal.caller, "fingerprint": request.fingerprint})
    return f"derived-{digest.removeprefix('sha256:')}"


def hash_scan(source: ScanSource, uri: str, *, pointer: str) -> str:
    """Return the hex digest of one scan as it is now. Raises InputRefused when it cannot be read."""
    handle = source.open(ItemRequest(item_id="", uri=uri, sha256=""), pointer)
    try:
        return hex_digest_of(handle)
    except OSError as error:
        raise InputRefused(SCAN_UNREADABLE, pointer=pointer, cause=cause_of(error)) from error
    finally:
        os.close(handle)
