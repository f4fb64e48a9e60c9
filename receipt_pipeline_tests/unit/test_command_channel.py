"""A program that takes notifications: how its ends are read, and what its declared capability changes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from receipt_pipeline.app.context import new_channel
from receipt_pipeline.core.effects import Capability
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.effects.channels import CommandChannel, OutgoingMessage, SendFailed, SendUnknown
from receipt_pipeline.settings import read_settings

MESSAGE = OutgoingMessage("msg_1", "acme", "job.terminal", 2, {"job_id": "job_1"})
KEEPS = """
import os, sys
place = os.environ["KEPT"] + "/" + os.environ["RECEIPTS_MESSAGE_ID"]
if sys.argv[1] == "send":
    open(place, "a").write(sys.stdin.read())
elif os.path.exists(place):
    print("kept as " + os.path.basename(place))
"""


def program(tmp_path: Path, text: str, *, capability: Capability = Capability.NEITHER) -> CommandChannel:
    path = tmp_path / "notify.py"
    path.write_text(text)
    return CommandChannel((sys.executable, str(path)), capability, timeout_s=20.0)


def test_a_program_takes_the_message_under_its_id_and_can_be_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPT", str(tmp_path))
    channel = program(tmp_path, KEEPS, capability=Capability.LOOKUP)
    assert channel.lookup(MESSAGE) is None
    channel.send(MESSAGE)
    assert json.loads((tmp_path / "msg_1").read_text()) == MESSAGE.as_document()
    assert channel.lookup(MESSAGE) == "kept as msg_1"


@pytest.mark.requirement("R094")
@pytest.mark.parametrize("status", [1, 28, 76])
def test_an_end_that_says_nothing_certain_is_unknown(tmp_path: Path, status: int) -> None:
    channel = program(tmp_path, f"import sys; sys.exit({status})")
    with pytest.raises(SendUnknown, match=r"NOTIFICATION\.UNKNOWN\.v1"):
        channel.send(MESSAGE)
    with pytest.raises(SendUnknown):
        channel.lookup(MESSAGE)


def test_a_program_that_takes_too_long_is_ended_and_unknown(tmp_path: Path) -> None:
    channel = program(tmp_path, "import time; time.sleep(60)")
    with pytest.raises(SendUnknown):
        CommandChannel(channel.command, channel.capability, timeout_s=0.2).send(MESSAGE)


def test_only_a_refusal_or_a_program_that_cannot_start_has_certainly_sent_nothing(tmp_path: Path) -> None:
    with pytest.raises(SendFailed, match=r"NOTIFICATION\.FAILED\.v1"):
        program(tmp_path, "import sys; sys.exit(75)").send(MESSAGE)
    absent = CommandChannel((str(tmp_path / "absent"),), Capability.LOOKUP)
    with pytest.raises(SendFailed):
        absent.send(MESSAGE)
    with pytest.raises(SendUnknown):
        absent.lookup(MESSAGE)


def test_settings_name_the_program_and_what_it_can_do(tmp_path: Path) -> None:
    given = {"RECEIPTS_HOME": str(tmp_path), "RECEIPTS_NOTIFY_COMMAND": "notify --to 'the team'"}
    channel = new_channel(read_settings(given))
    assert isinstance(channel, CommandChannel)
    assert list(channel.command) == ["notify", "--to", "the team"]
    assert channel.capability is Capability.NEITHER, "a program that declares nothing can do nothing"
    keyed = read_settings(given | {"RECEIPTS_NOTIFY_CAPABILITY": "key_only"})
    assert new_channel(keyed).capability is Capability.KEY_ONLY
    assert new_channel(read_settings({"RECEIPTS_HOME": str(tmp_path)})).name == "file"


@pytest.mark.parametrize(
    ("variable", "value"), [("RECEIPTS_NOTIFY_CAPABILITY", "everything"), ("RECEIPTS_NOTIFY_COMMAND", "notify 'to")]
)
def test_a_setting_that_makes_no_channel_is_refused_by_its_name(variable: str, value: str) -> None:
    with pytest.raises(InputRefused, match=r"SETTING\.INVALID\.v1") as refused:
        read_settings({variable: value})
    assert refused.value.facts["variable"] == variable
