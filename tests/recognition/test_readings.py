"""The state of a page by the regions that were read from it."""

import pytest

from resources.recognition.readings import RegionText, page_reading, skipped
from resources.states import State

OK = RegionText(0, "text", "글")
EMPTY = RegionText(1, "text", "")
BLANK = RegionText(2, "text", "", State.BLANK, "two attempts read nothing")
FAILED = RegionText(3, "table", "앞부분", State.FAILED, "cut off")
PICTURE = skipped(4, "image")


@pytest.mark.parametrize(
    ("texts", "state", "reason"),
    [
        ([], State.OK, None),
        ([OK, BLANK, PICTURE], State.OK, None),
        ([BLANK], State.OK, None),
        ([PICTURE], State.OK, None),
        ([OK, FAILED, PICTURE], State.PARTIAL, "1 of 2 regions failed; region 3 (table): cut off"),
        ([OK, BLANK, FAILED, FAILED], State.PARTIAL, "2 of 4 regions failed; region 3 (table): cut off"),
        ([FAILED], State.FAILED, "1 of 1 regions failed; region 3 (table): cut off"),
        ([FAILED, PICTURE], State.FAILED, "1 of 1 regions failed; region 3 (table): cut off"),
        ([EMPTY, BLANK, FAILED], State.FAILED, "1 of 3 regions failed; region 3 (table): cut off"),
    ],
)
def test_the_state_of_a_page(texts: list[RegionText], state: State, reason: str | None) -> None:
    reading = page_reading("p_1", texts, ())
    assert (reading.state, reading.reason, list(reading.regions)) == (state, reason, texts)
