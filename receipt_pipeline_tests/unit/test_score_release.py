"""Evaluation of a release: its document, the comparison with another, and the page for people."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from receipt_pipeline.chain.release import ShippedRelease, shipped_releases
from receipt_pipeline.core.items import Decision
from receipt_pipeline.evaluation.compare import compare_evaluations
from receipt_pipeline.evaluation.evaluate import release_evaluation
from receipt_pipeline.evaluation.page import misses, render_evaluation, thumb
from receipt_pipeline.evaluation.scans import EvaluatedScan
from receipt_pipeline.settings import SHIPPED_ARTIFACTS
from receipt_pipeline_tests.unit.test_evaluate import evaluated


def release() -> ShippedRelease:
    return shipped_releases(SHIPPED_ARTIFACTS, image_digest="sha256:" + "d" * 64)[1]


def a_set(*, good: bool, scans: int = 40) -> list[EvaluatedScan]:
    found = []
    for number in range(scans):
        forged = number % 2 == 1
        risk = (900_000 if forged else 50_000) if good else 500_000 - 1_000 * (number * 7 % 11)
        clear = good and not forged
        one = evaluated(
            forged=forged,
            decision=Decision.CLEAR if clear or not good else Decision.REVIEW,
            risk_ppm=risk,
            total="25.45" if good else "25.46",
        )
        scan = replace(one.scan, scan_id=f"s-{number:02d}")
        found.append(replace(one, scan=scan))
    return found


def evaluation(*, good: bool) -> dict[str, Any]:
    return release_evaluation(a_set(good=good), release())


def test_the_document_holds_figures_curves_calibration_and_confusion() -> None:
    document = evaluation(good=True)
    assert document["figures"]["risk_auc_pictures"] == 1.0
    assert document["confusion"] == {"genuine": {"clear": 20}, "misread": {}, "forged": {"review": 20}}
    assert document["risk_curve"][-1] == {"reviewed": 1.0, "forged_caught": 1.0, "genuine_reviewed": 1.0}
    assert sum(row["count"] for row in document["reliability"]) == 40
    assert len(document["items"]) == document["scans"] == 40


def test_equal_answers_give_equal_documents() -> None:
    assert evaluation(good=True) == evaluation(good=True)


def test_a_release_that_reads_and_separates_worse_is_worse_beyond_noise() -> None:
    compared = compare_evaluations(evaluation(good=False), evaluation(good=True), resamples=100)
    assert compared is not None
    worse = {one.name for one in compared if one.worse}
    assert worse >= {
        "strict_micro_f1",
        "normalised_micro_f1",
        "risk_auc",
        "cleared_right_share",
        "cleared_genuine_share",
    }


def test_a_release_that_clears_what_is_forged_is_worse_however_well_it_reads() -> None:
    scans = [replace(one, outcome=replace(one.outcome, decision=Decision.CLEAR)) for one in a_set(good=True)]
    compared = compare_evaluations(release_evaluation(scans, release()), evaluation(good=True), resamples=100)
    assert compared is not None
    assert {one.name for one in compared if one.worse} == {"cleared_genuine_share"}


def test_the_same_answers_and_the_better_release_are_not_worse() -> None:
    for standing in (True, False):
        compared = compare_evaluations(evaluation(good=True), evaluation(good=standing), resamples=100)
        assert compared is not None
        assert not any(one.worse for one in compared)


def test_one_scan_more_misread_is_within_noise() -> None:
    scans = a_set(good=True)
    scans[0] = replace(scans[0], outcome=evaluated(forged=False, decision=Decision.REVIEW, total="99.99").outcome)
    compared = compare_evaluations(release_evaluation(scans, release()), evaluation(good=True), resamples=100)
    assert compared is not None
    assert not any(one.worse for one in compared)


def test_evaluations_of_different_sets_are_not_compared() -> None:
    other = release_evaluation(a_set(good=True, scans=20), release())
    assert compare_evaluations(other, evaluation(good=True)) is None


def test_the_misses_are_those_cleared_wrongly_and_those_misread() -> None:
    assert misses(evaluation(good=True)) == []
    found = misses(evaluation(good=False))
    assert len(found) == 40
    assert {tuple(item["misread"]) for item in found} == {("total",)}


def test_the_page_needs_no_other_file_and_shows_the_misses(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("L", (600, 900), 200).save(buffer, "PNG")
    picture = tmp_path / "scan.png"
    picture.write_bytes(buffer.getvalue())
    compared = compare_evaluations(evaluation(good=False), evaluation(good=True), resamples=20)
    page = render_evaluation(evaluation(good=False), {"s-00": picture}, [one.as_document() for one in compared or ()])
    assert "http" not in page
    assert page.count("data:image/jpeg;base64,") == 1
    assert "wrongly cleared" in page
    assert "24 of 40 shown" in page


def test_a_scan_that_cannot_be_shown_is_left_without_a_picture(tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    assert (thumb(None), thumb(tmp_path / "broken.jpg"), thumb(tmp_path / "gone.jpg")) == ("", "", "")
