"""A folder of hostile files with 20 good ones: the good pages are right, and nothing else suffers."""

import os
import re
from pathlib import Path
from threading import Event, Thread

import pyarrow.parquet as pq
import pytest

from kopub.pages.documents import office
from kopub.pages.documents.text_layer import TextLayer
from kopub.processes import private_memory
from tests.support.sources import hostile_files
from tests.support.sources.hostile_formats import hostile_formats
from tests.support.sources.office_files import docx, open_document, pptx, xlsx
from tests.support.sources.pdf_files import sheet as pdf_sheet
from tests.support.sources.pdf_files import text_pdf, written
from tests.support.sources.source_folder import SourceFolder

SAID = "Plain words of page"
MOST_MEMORY = 4 << 30
MAKERS = {
    "pdf": lambda text: text_pdf(pdf_sheet(written((50, 700, text)), box="0 0 595 842")),
    "docx": docx,
    "xlsx": lambda text: xlsx([[text]]),
    "pptx": pptx,
    "odt": lambda text: open_document("text", text),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("KOPUB_TEST_HOSTILE" not in os.environ, reason="takes half an hour: set KOPUB_TEST_HOSTILE=1"),
    pytest.mark.skipif(any(map(office.lacks, office.SUFFIXES)), reason="apt-get install libreoffice"),
]


@pytest.mark.timeout(7200)
def test_good_files_among_hostile_ones_come_out_and_nothing_of_the_machine_does(
    folder: SourceFolder, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    hostile_files.secrets(secret)
    good = {f"good {at}.{suffix}": make(f"{SAID} {at}.") for at in range(4) for suffix, make in MAKERS.items()}
    hostile = {
        **hostile_files.references(secret, "http://127.0.0.1:9"),
        **hostile_files.bombs(),
        **hostile_formats(secret, "http://127.0.0.1:9"),
        **hostile_files.damaged({name: content for name, content in good.items() if name.startswith("good 0")}),
    }
    assert len(hostile) >= 300
    for name, content in (good | hostile).items():
        folder.put(name, content)
    with _Memory() as memory:
        folder.index()
    texts: dict[str, str] = {}
    stored = ""
    for shard in folder.files():
        for row in pq.read_table(folder.home / "rendered" / shard).drop_columns(["image"]).to_pylist():
            stored += str(row)
            words = TextLayer.from_json(row["pdf_text_layer"]).words if row["pdf_text_layer"] else ()
            texts[row["file_name"]] = "".join(word.text for word in words)
    for name in good:
        assert re.sub(r"\s", "", f"{SAID} {name[5]}.") in texts[name], name
    assert hostile_files.TOKEN not in stored
    rows = folder.rows()
    assert {str(row.doc_id) for row in rows} == {*good, *hostile}
    assert [row.doc_id for row in rows if row.data is None and not row.problem] == []
    assert not re.search(r"0x[0-9a-f]{6,}", " ".join(str(row.problem or row.damage) for row in rows))
    assert memory.most < MOST_MEMORY
    # What only a busy machine kept from being made is tried again; what was given up is not.
    settled: dict[str, tuple[int, int]] = {}
    for shard, stamp in folder.files().items():
        if not any(pq.read_table(folder.home / "rendered" / shard, columns=["failed"])["failed"].to_pylist()):
            settled[shard] = stamp
    folder.index()
    assert settled
    assert settled.items() <= folder.files().items()


class _Memory:
    """The most memory that this process and all that it started used at once, while entered."""

    def __enter__(self) -> "_Memory":
        self.most, self._end = 0, Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.05):
            self.most = max(self.most, private_memory(os.getpid()))
