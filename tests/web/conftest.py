"""The browser for visits of the reading room."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.visits import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with chromium() as browser:
        yield browser
