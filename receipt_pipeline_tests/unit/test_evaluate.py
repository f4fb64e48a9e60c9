"""Evaluation: the figures mean what their names say, and a missing development set is said so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from receipt_pipeline.chain.release import shipped_releases
from receipt_pipeline.chain.values import page_text_of
from receipt_pipeline.core.items import Decision, ItemClass, ItemOutcome
from receipt_pipeline.evaluation import evaluate as module
from receipt_pipeline.evaluation.evaluate import auc_figures, decision_figures, figures_as_text, main, scan_frame
from receipt_pipeline.evaluation.risk import auc_interval, roc_auc, share_upper95
from receipt_pipeline.evaluation.scans import EvaluatedScan, LabeledScan, read_labeled_scans, read_transcripts
from receipt_pipeline.settings import SHIPPED_ARTIFACTS

GENUINE = ("SHOP SDN BHD", "DATE: 14/03/2018", "BOOK RM 25.45", "TOTAL RM 25.45")
FORGED = ("SHOP SDN BHD", "GST 6%", "DATE: 31/02/2021", "BOOK RM 25.45", "TOTAL RM 85.45", "TOTAL RM 25.46")


def evaluated(*, forged: bool, decision: Decision, total: str = "25.45", risk_ppm: int = 100_000) -> EvaluatedScan:
    truth = {"company": "SHOP SDN BHD", "date": "14/03/2018", "address": None, "total": "25.45"}
    fields = {
        "merchant": "SHOP SDN BHD",
        "address": None,
        "date": {"iso": "2018-03-14", "ambiguous": False, "printed": "14/03/2018"},
        "total": {"minor": 2545, "currency": "MYR", "printed": f"RM {total}"},
    }
    outcome = ItemOutcome(item_class=ItemClass.CLASSIFIED, decision=decision, risk_ppm=risk_ppm, fields=fields)
    scan = LabeledScan(f"s-{forged}-{decision}-{total}", Path("picture.jpg"), forged, truth)
    return EvaluatedScan(scan, outcome, 0.5)


def development_set(folder: Path) -> Path:
    receipts = folder / "data" / "receipts"
    transcripts = receipts / "transcripts"
    transcripts.mkdir(parents=True)
    rows = ["id,forged"]
    for number, (texts, forged) in enumerate([(GENUINE, 0), (FORGED, 1)] * 2):
        (transcripts / f"t-{number}.txt").write_text("\n".join(texts))
        rows.append(f"t-{number},{forged}")
        document = {"id": f"s-{number}", "image": f"s-{number}.jpg", "forged": bool(forged)}
        fields = {"company": "SHOP SDN BHD", "date": "14/03/2018", "address": None, "total": "25.45"}
        (receipts / f"s-{number}.json").write_text(json.dumps({**document, **fields}))
    (transcripts / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_the_auc_counts_pairs_and_ties_half() -> None:
    assert roc_auc([0.9, 0.8], [0.1, 0.2]) == 1.0
    assert roc_auc([0.1], [0.9]) == 0.0
    assert roc_auc([0.5, 0.9], [0.5, 0.1]) == 0.875
    assert roc_auc([0.3, 0.3], [0.3]) == 0.5


def test_the_interval_lies_around_the_auc_and_is_the_same_twice() -> None:
    forged, genuine = [0.2, 0.6, 0.7, 0.9], [0.1, 0.3, 0.4, 0.8]
    low, high = auc_interval(forged, genuine, resamples=200)
    assert 0 <= low < roc_auc(forged, genuine) < high <= 1
    assert auc_interval(forged, genuine, resamples=200) == (low, high)


@pytest.mark.parametrize(("wrong", "of", "upper"), [(0, 50, 0.0711), (3, 60, 0.1392), (5, 5, 1.0), (0, 0, 1.0)])
def test_the_upper_bound_of_a_share_is_the_exact_one(wrong: int, of: int, upper: float) -> None:
    assert share_upper95(wrong, of) == pytest.approx(upper, abs=1e-4)


def test_clearing_is_wrong_for_a_forgery_and_for_a_misread_total_or_day() -> None:
    assert not evaluated(forged=False, decision=Decision.CLEAR).wrong
    assert evaluated(forged=True, decision=Decision.CLEAR).wrong
    assert evaluated(forged=False, decision=Decision.CLEAR, total="25.46").wrong


def test_of_the_cleared_the_misread_and_the_forged_are_counted_apart() -> None:
    clear = Decision.CLEAR
    scans = [evaluated(forged=False, decision=clear)] * 96
    scans += [evaluated(forged=False, decision=clear, total="25.46"), evaluated(forged=True, decision=clear)]
    scans += [evaluated(forged=True, decision=clear, total="25.46")] * 2
    scans += [evaluated(forged=True, decision=Decision.REVIEW, total="25.46")]
    figures = decision_figures(scan_frame(scans))
    assert (figures["cleared"], figures["cleared_share"]) == (100, 1.0)
    assert (figures["cleared_wrong"], figures["cleared_wrong_share"]) == (3, 0.03)
    assert (figures["cleared_forged"], figures["cleared_forged_share"]) == (3, 0.03)
    assert figures["cleared_wrong_upper95"] == figures["cleared_forged_upper95"] == 0.0852


def test_a_transcript_becomes_a_reading_of_one_row_a_line() -> None:
    reading = page_text_of(GENUINE)
    assert tuple(line.text for line in reading.lines) == GENUINE
    assert {line.confidence for line in reading.lines} == {1.0}
    tops = [line.box[1] for line in reading.lines]
    assert tops == sorted(set(tops))


def test_the_development_set_is_read_with_its_labels(tmp_path: Path) -> None:
    receipts = development_set(tmp_path) / "data" / "receipts"
    assert [scan.forged for scan in read_labeled_scans(receipts)] == [False, True, False, True]
    assert [one.forged for one in read_transcripts(receipts / "transcripts")] == [False, True, False, True]


def test_without_the_development_set_it_says_so_and_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shared", str(tmp_path / "absent"), "--output", str(tmp_path / "out.json")]) == 2
    assert "No development set" in capsys.readouterr().out
    assert not (tmp_path / "out.json").exists()


def test_the_figures_are_written_and_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted = [
        evaluated(forged=False, decision=Decision.CLEAR),
        evaluated(forged=False, decision=Decision.REVIEW, risk_ppm=300_000),
        evaluated(forged=True, decision=Decision.CLEAR, risk_ppm=200_000),
        evaluated(forged=True, decision=Decision.REVIEW, risk_ppm=900_000),
    ]
    monkeypatch.setattr(module, "classify_scans", lambda scans, *args, **named: scripted[: len(scans)])
    monkeypatch.setattr(module, "stock_seconds", lambda pictures: 2.0)
    output = tmp_path / "evaluate.json"
    assert main(["--shared", str(development_set(tmp_path)), "--output", str(output)]) == 0
    figures = json.loads(output.read_text())
    assert figures["release"] == "2027-02"
    assert figures["strict_micro_f1"] == 1.0
    assert [fold["fold"] for fold in figures["folds"]] == [0, 1, 2, 3, 4]
    assert figures["risk_auc_text"] == 1.0
    assert figures["risk_auc_pictures"] == 0.75
    assert (figures["cleared"], figures["cleared_share"]) == (2, 0.5)
    assert (figures["cleared_wrong"], figures["cleared_wrong_share"]) == (0, 0.0)
    assert (figures["cleared_forged"], figures["cleared_forged_share"]) == (1, 0.5)
    assert (figures["seconds_per_scan"], figures["stock_seconds_per_scan"]) == (0.5, 2.0)
    printed = capsys.readouterr().out
    assert printed.strip() == figures_as_text(figures)
    assert "risk_auc_text" in printed
    assert f"cleared_forged_upper95   {figures['cleared_forged_upper95']}" in printed


def test_without_any_forgery_no_auc_is_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "classify_scans", lambda *args, **named: [evaluated(forged=False, decision=Decision.CLEAR)]
    )
    monkeypatch.setattr(module, "stock_seconds", lambda pictures: 2.0)
    release = shipped_releases(SHIPPED_ARTIFACTS, image_digest="sha256:" + "d" * 64)[1]
    figures = module.evaluate(development_set(tmp_path), release, shipped=SHIPPED_ARTIFACTS, limit=1, processes=1)
    assert (figures["risk_auc_pictures"], figures["risk_auc_pictures_interval"]) == (None, None)


def test_a_rejected_scan_counts_as_the_most_suspicious() -> None:
    one = evaluated(forged=True, decision=Decision.REVIEW)
    rejected = ItemOutcome(item_class=ItemClass.REJECTED, reason_code="SCAN.BROKEN.v1")
    other = evaluated(forged=False, decision=Decision.CLEAR, risk_ppm=990_000)
    figures = auc_figures("risk_auc_pictures", scan_frame([replace(one, outcome=rejected), other]))
    assert figures["risk_auc_pictures"] == 1.0
