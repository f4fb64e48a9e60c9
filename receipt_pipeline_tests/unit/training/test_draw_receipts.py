"""Invented receipts: the same seed gives the same picture, and the shipped samples are such pictures."""

from __future__ import annotations

import hashlib
import json
import random

import numpy as np
import pytest

from receipt_pipeline.chain.decode import decode_scan, sniff_kind
from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline_tests.suite_results import PROJECT
from training.content import draw_content
from training.draw import PICTURE_KINDS, SAMPLE_SIZE_BYTES_MAX, Wear, draw_receipt, drawn_files, encoded
from training.text_reading import read_without_picture

SAMPLES = PROJECT / "data" / "samples"


def test_a_seed_decides_every_pixel_and_the_truth() -> None:
    one, again, other = draw_receipt(25), draw_receipt(25), draw_receipt(26)
    assert np.array_equal(np.asarray(one.image), np.asarray(again.image))
    assert one.truth == again.truth
    assert one.truth != other.truth


def test_the_truth_is_printed_on_the_receipt() -> None:
    drawn = draw_receipt(1, wear=Wear())
    printed = [cell.text for cell in drawn.cells]
    assert drawn.truth["company"] in printed
    assert any(f"{drawn.truth['total_minor'] / 100:.2f}" in text for text in printed)
    assert drawn.truth["tampered"] is False


@pytest.mark.parametrize("seed", range(8))
def test_a_reading_of_an_invented_receipt_gives_its_total_and_day(seed: int) -> None:
    rng = random.Random(f"quiet/{seed}")
    content = draw_content(rng)
    quiet = read_without_picture(content, random.Random(6), with_boxes=True)
    fields = extract_fields(quiet)
    assert fields.total is not None
    assert fields.total.minor == content.truth["total_minor"]
    assert fields.date is not None
    assert content.truth["date"] in (fields.date.iso, None) or fields.date.ambiguous


@pytest.mark.parametrize("kind", PICTURE_KINDS)
def test_every_kind_of_file_is_written_the_same_twice_and_can_be_decoded(kind: str) -> None:
    image = draw_receipt(20).image
    data = encoded(image, kind)
    assert encoded(image, kind) == data
    assert sniff_kind(data) == kind.lower()
    assert len(decode_scan(data).pages) == 1


def test_the_shipped_samples_are_what_the_generator_draws() -> None:
    committed = {path.name: path.read_bytes() for path in SAMPLES.iterdir()}
    fresh = drawn_files()
    assert committed.keys() == fresh.keys()
    assert {name for name in fresh if committed[name] != fresh[name]} == set()


def test_the_manifest_of_the_samples_names_every_scan_with_digest_size_and_kind() -> None:
    manifest = json.loads((SAMPLES / "manifest.json").read_bytes())
    assert (manifest["contract"], manifest["idempotency_key"]) == ("receipt-job/v1", "samples")
    scans = {path.name for path in SAMPLES.iterdir()} - {"manifest.json"}
    assert {item["uri"] for item in manifest["items"]} == scans
    for item in manifest["items"]:
        data = (SAMPLES / item["uri"]).read_bytes()
        assert item["sha256"] == hashlib.sha256(data).hexdigest()
        assert item["size_bytes"] == len(data) <= SAMPLE_SIZE_BYTES_MAX
        assert item["media_type"].endswith(sniff_kind(data))
