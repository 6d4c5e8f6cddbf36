"""Made files: all that they show comes out once, and nothing that they hide."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from kopub.api.corpus import Corpus
from kopub.api.documents import Document
from kopub.api.reading import Reading
from kopub.pages.documents import conversion
from tests.support.sources.full_documents import FullDocument, full_documents

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        bool(conversion.all_lacking()) or not conversion.has_korean_font(),
        reason="apt-get install librsvg2-bin libreoffice-writer libreoffice-calc libreoffice-impress fonts-noto-cjk",
    ),
]
MADE = {made.name: made for made in full_documents()}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory):
    """Return a function that returns a file as read with all others of its format."""
    folder = tmp_path_factory.mktemp("full")
    readings: list[Reading] = []

    @cache
    def read_all(suffix: str) -> dict[str, Document]:
        paths = [folder / name for name in MADE if Path(name).suffix == suffix]
        for path in paths:
            path.write_bytes(MADE[path.name].content)
        reading = Reading(paths, profile="cpu")
        readings.append(reading)
        (part,) = reading.parts(at_once=reading.pages)
        return {document.id: document for document in Corpus(part).documents}

    yield lambda made: read_all(Path(made.name).suffix)[made.name]
    for reading in readings:
        reading.close()


def plain(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("name", MADE)
def test_all_that_a_file_shows_comes_out_once_and_nothing_that_it_hides(
    read: Callable[[FullDocument], Document], name: str
) -> None:
    made = MADE[name]
    document = read(made)
    text = plain(document.text)
    wanted = {**dict.fromkeys(made.shown, 1), **dict.fromkeys(made.heads, len(document))}
    counts = {said: text.count(plain(said)) for said in wanted}
    assert {said: count for said, count in counts.items() if count != wanted[said]} == {}
    assert [said for said in made.hidden if plain(said) in text] == []
    assert sum("<table" in (region.content or "") for region in document.regions) == made.tables
