"""Chain revisions side by side: the older one keeps its name, its revision and its answers."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from PIL import Image

from receipt_pipeline.chain.artefact import artefact_path
from receipt_pipeline.chain.policy import load_policy
from receipt_pipeline.chain.release import MODELS_FOLDER, POLICIES_FOLDER, RELEASES_FOLDER
from receipt_pipeline.chain.revisions import carried_chains, chain_named, chain_of_revision
from receipt_pipeline.chain.risk import load_risk_model
from receipt_pipeline.chain.stages import Chain, bind_stages, chain_revision
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.items import Decision, EarlierItem, ItemContext, ItemOutcome
from receipt_pipeline_tests.fakes.scripted_ocr import ScriptedOcr
from receipt_pipeline_tests.suite_results import PROJECT

SHIPPED = PROJECT / "data"
# Without library versions, so that a new library is a new revision but no changed chain.
REVISIONS = {
    "chain-v1": "sha256:68f021f04f4250aaf98afe1f1807354b9f2ac030ee3e7c46f64c634e1ef42365",
    "chain-v2": "sha256:f4bc3e3e72415391db90c14bdbb32ac1a87d8d4aee51c14729df48e3d3c30c61",
    "chain-v3": "sha256:48b6357e2cd9754ee40078afe1b315417fdc45a49bbe961bcc281240d3f20253",
    "chain-v4": "sha256:c11d6db21823a35aec9578fb39e51c11a4e0e8c86157186f18bbd09d6ed38e60",
}
RECEIPTS_AND_OUTCOMES_V1 = {
    "plain": (
        "LUMBUNG PADI SDN BHD|12, JALAN KENANGA 3/4, 43000 KAJANG, SELANGOR.|DATE: 14/03/2018 12:41:52"
        "|BOOK RM 25.45|TOTAL RM 25.45|CASH RM 30.00|CHANGE RM 4.55",
        "sha256:c2b3dcd50c7ee63d30c3563e8843fdc733a3b49c99500658096dccc1bf096129",
    ),
    "german": (
        "WALDMEISTER GMBH|MUEHLENWEG 4|10115 BERLIN|02.11.2024|BROT 3,20|MILCH 1,05|SUMME EUR 4,25|BAR 5,00"
        "|RUECKGELD 0,75",
        "sha256:3dfdc4929cbe74fc3242c37dfb00a2304194e16af19618af5048bc767c75a5ad",
    ),
    "doubtful": (
        "THIRD BRIDGE DINER|03/04/2025|TEA 2.00|TOTAL 2.00|TIP|SUM",
        "sha256:9c5727a5469099bbb9a8bfb53332e3ddb2683535c0d23d43b7f02f48826d7b01",
    ),
    "refund": (
        "OLD KILN LTD|LONDON|5 MAY 2024|RETURN -39.95|TOTAL GBP -39.95|VISA -39.95",
        "sha256:60f581ac083292c66e255d41889d451b938f1c15743bf8146efa9f26377d0c04",
    ),
}

# Of chains and releases that answer the same receipts after the first.
LATER_OUTCOMES = {
    ("chain-v2", "2026-12"): {
        "plain": "sha256:3584c0b57af53c7827f647d8aa98921b3b3b4fe64ec90028dde70e266e9efe60",
        "german": "sha256:6c9c458c116155a1657fb13fb246a8ffe4301ab377288c0267c3c08a98a5a742",
        "doubtful": "sha256:a9fb4dd8bfc2e1abb8c7a7d1da6f7b98af5061da5deeec37eb4adc0e4576a72a",
        "refund": "sha256:2903dcfeccc2a6029fcf5975114d2a061c0115257305720f74bc502b16cd41c7",
    },
    ("chain-v3", "2027-01"): {
        "plain": "sha256:1529678c2e7aa30fdafc125b5dd2761fd91460b5b3e7e42472e0b93aa1e94315",
        "german": "sha256:4e34f22203fcbf15d13dca0db03544ff7fa68d0c1b54926a9f3602d8d94a0b29",
        "doubtful": "sha256:42cfd73eab9622a64d7dedc6e684870d8469474aaf6502c162390b591b73d797",
        "refund": "sha256:bbe52cc18211ad287b0f42e03f7819c06c7cb1f293304b1c83f1b1a2a08f0417",
    },
    ("chain-v4", "2027-02"): {
        "plain": "sha256:1b357e21ea1485dd78564bfea93a9b3c16250585bd496d0fe7dced088e1bca51",
        "german": "sha256:c9bccafa8f245631a098a41f6f501bb1eb2a00b6347668dd2dede27f157010e2",
        "doubtful": "sha256:405f1f3aaaefa876ea19f2f8c74533888a429e0c374006635fa5482077c59660",
        "refund": "sha256:a658e8040930d150ccaed88c38871fe6684e70c305ec7e361c84ac7a69ff61e4",
    },
}


def loaded(chain: str, release: str, lines: list[str]) -> Chain:
    """The chain of that name under a shipped release; its reader answers the lines."""
    carried = chain_named(chain)
    template = json.loads((SHIPPED / RELEASES_FOLDER / f"{release}.json").read_bytes())
    model, policy = template["risk_model"], template["policy"]
    return Chain(
        bind_stages(
            carried.stages(carried.settings),
            engine=ScriptedOcr(pages=[lines]),
            model=load_risk_model(artefact_path(SHIPPED / MODELS_FOLDER, model), model),
            policy=load_policy(artefact_path(SHIPPED / POLICIES_FOLDER, policy), policy),
            reading=carried.reading,
            judging=carried.judging,
        ),
        judging=carried.judging,
    )


def blank_picture() -> bytes:
    """The bytes of a small blank scan; the scripted reader says what stands on it."""
    buffer = io.BytesIO()
    Image.new("L", (320, 320), 255).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("name", sorted(REVISIONS))
def test_a_chain_keeps_its_revision_while_others_stand_beside_it(name: str) -> None:
    carried = chain_named(name)
    assert chain_revision(carried.stages(replace(carried.settings, versions=()))) == REVISIONS[name]
    assert chain_of_revision(carried.revision) == carried


@pytest.mark.parametrize("receipt", sorted(RECEIPTS_AND_OUTCOMES_V1))
def test_the_first_chain_keeps_its_outcomes_to_the_byte(receipt: str) -> None:
    text, digest = RECEIPTS_AND_OUTCOMES_V1[receipt]
    chain = loaded("chain-v1", "2026-11", text.split("|"))
    outcome = chain.classify(blank_picture(), duplicate_bytes=False, on_page=lambda: None)
    assert outcome.outcome_digest == digest


@pytest.mark.parametrize(("chain", "release"), sorted(LATER_OUTCOMES))
@pytest.mark.parametrize("receipt", sorted(RECEIPTS_AND_OUTCOMES_V1))
def test_a_later_chain_keeps_its_outcomes_to_the_byte(chain: str, release: str, receipt: str) -> None:
    text, _ = RECEIPTS_AND_OUTCOMES_V1[receipt]
    outcome = loaded(chain, release, text.split("|")).classify(
        blank_picture(), duplicate_bytes=False, on_page=lambda: None
    )
    assert outcome.outcome_digest == LATER_OUTCOMES[chain, release][receipt]


def test_the_third_chain_reviews_a_rescan_and_names_the_item_that_it_repeats() -> None:
    text, _ = RECEIPTS_AND_OUTCOMES_V1["plain"]
    chain = loaded("chain-v3", "2027-01", text.split("|"))

    def judged(submitted: ItemContext) -> ItemOutcome:
        return chain.classify(
            blank_picture(), duplicate_bytes=False, on_page=lambda: None, submitted=submitted
        )

    accepted_at = datetime(2018, 3, 20, 8, tzinfo=UTC)
    first = judged(ItemContext(accepted_at))
    assert (first.decision, first.reasons) == (Decision.CLEAR, ())
    earlier = EarlierItem("item-1", first.fields, first.evidence["scan_print"])
    again = judged(ItemContext(accepted_at, (earlier,)))
    assert (again.decision, again.reasons) == (Decision.REVIEW, ("DUPLICATE.PICTURE.v1",))
    assert again.evidence["near_duplicate_of"] == "item-1"
    assert judged(ItemContext(datetime(2018, 3, 1, tzinfo=UTC))).reasons == ("DATE.AFTER_SUBMISSION.v1",)
    assert judged(ItemContext(datetime(2039, 3, 1, tzinfo=UTC))).reasons == ("DATE.TOO_OLD.v1",)
    assert judged(ItemContext(accepted_at)).outcome_digest == first.outcome_digest


def test_the_fourth_chain_reviews_goods_that_do_not_add_up_and_says_so() -> None:
    text, _ = RECEIPTS_AND_OUTCOMES_V1["plain"]
    altered = text.replace("BOOK RM 25.45", "BOOK RM 95.45")
    outcome = loaded("chain-v4", "2027-02", altered.split("|")).classify(
        blank_picture(), duplicate_bytes=False, on_page=lambda: None
    )
    assert (outcome.decision, outcome.reasons) == (
        Decision.REVIEW,
        ("RISK.HIGH.v1", "ARITHMETIC.DISAGREES.v1"),
    )
    meanings = {one["feature"]: one["meaning"] for one in outcome.evidence["contributions"]}
    assert meanings["goods_sum_unmet"] == "the goods add up to no printed sum"


def test_every_carried_chain_has_a_name_and_a_revision_of_its_own() -> None:
    chains = carried_chains()
    assert [chain.name for chain in chains] == ["chain-v1", "chain-v2", "chain-v3", "chain-v4"]
    assert len({chain.revision for chain in chains}) == len(chains)


def test_a_template_that_names_an_unknown_chain_is_refused() -> None:
    with pytest.raises(IdentityMismatch) as caught:
        chain_named("chain-v0")
    assert (caught.value.reason.code, caught.value.facts["expected"]) == ("IDENTITY.MISSING.v1", "chain-v0")


def test_every_shipped_release_names_a_chain_that_is_carried() -> None:
    templates = [json.loads(path.read_bytes()) for path in (SHIPPED / RELEASES_FOLDER).iterdir()]
    assert {template["chain"] for template in templates} <= {chain.name for chain in carried_chains()}
    assert Path(SHIPPED / RELEASES_FOLDER / "2026-12.json").exists()
