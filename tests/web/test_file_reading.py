"""Files sent to the reading room are shown beside the corpus, and removed afterwards."""

import errno
import os
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from kopub.cli.options import corpus_check
from kopub.web import file_reading
from kopub.web.app import reading_room
from kopub.web.file_reading import FileReader
from kopub.web.own_pages import Editor
from kopub.web.room import Room
from tests.search.test_search import made, searcher
from tests.support.harness import Platform
from tests.support.sample_home import sample
from tests.support.waiting import SOON

pytestmark = [pytest.mark.services, pytest.mark.slow]

ORIGIN = {"origin": "http://127.0.0.1"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return made(tmp_path_factory.mktemp("beside"), select="raw_pages")


@pytest.fixture
def reader() -> Iterator[FileReader]:
    reader = FileReader(Editor("Kim"))
    yield reader
    reader.close()


def client(platform: Platform, reader: FileReader | None) -> TestClient:
    settings = platform.settings
    room = Room(settings, searcher(platform), corpus_check(settings.corpus.manifest, settings.store))
    app = reading_room(room, reader=reader)
    return TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)


def send(room: TestClient, name: str, data: bytes, headers: dict[str, str] = ORIGIN, **fields: str) -> Any:
    found = re.search(r'name="form" value="([^"]*)"', room.get("/").text)
    sent = {"form": found[1] if found else "", **fields}
    return room.post("/read", data=sent, files={"file": (name, data)}, headers=headers)


def followed(room: TestClient) -> Any:
    """Return the room's answer once it has finished reading the file."""
    for _ in range(600):
        answer = room.get("/read")
        if 'http-equiv="refresh"' not in answer.text:
            return answer
        time.sleep(0.2)
    raise AssertionError("it is still being read")


def test_a_file_is_read_beside_the_corpus_and_shown_until_the_next(platform: Platform, reader: FileReader):
    room, (_, picture) = client(platform, reader), sample("install.ko_19")
    begun = send(room, "../../설치 <안내>.png", picture)
    assert (begun.status_code, begun.headers["location"]) == (303, "/read")
    assert reader.reading is not None
    folder = reader.reading.folder
    assert [path.name for path in folder.iterdir() if path.suffix == ".png"] == ["설치 _안내_.png"]
    assert "0 s so far" in room.get("/read").text
    assert send(room, "other.png", picture).status_code == 409
    first = followed(room).headers["location"]
    assert first.startswith("/read/result/page?id=")
    shown = room.get(first).text
    assert "아키텍처" in shown
    assert "This file is not part of the corpus; up to 20 pages" in shown
    inside = re.findall(r'(?:href|src|action)="(/[^"]*)"', shown)
    assert {link for link in inside if not link.startswith("/read/result/")} == {"/"}
    for link in (link.replace("&amp;", "&") for link in inside):
        assert room.get(link).status_code in (200, 303), link
    assert room.get("/read/result/search", params={"q": "아키텍처", "mode": "bm25"}).text.count("<mark>")
    assert "설치" not in room.get("/documents").text
    send(room, "broken.pdf", b"no PDF")
    assert not folder.exists()
    assert "the file is damaged or no PDF" in room.get(followed(room).headers["location"]).text
    send(room, "notes.xyz", b"no picture")
    failed = followed(room)
    assert failed.status_code == 422
    assert "notes.xyz was not read" in failed.text
    assert "no PDF, image, HWP, office or text file" in failed.text
    assert room.get(first).headers["location"] == "/read"
    folder = reader.reading.folder
    reader.close()
    assert not folder.exists()
    assert room.get("/read").headers["location"] == "/"


@pytest.mark.parametrize(
    ("headers", "fields", "status"),
    [
        ({}, {}, 403),
        ({"origin": "http://evil.example"}, {}, 403),
        ({**ORIGIN, "sec-fetch-site": "cross-site"}, {}, 403),
        (ORIGIN, {"form": "guessed"}, 403),
        (ORIGIN, {"token": "guessed"}, 403),
        (ORIGIN, {"token": ""}, 403),
    ],
)
def test_what_no_form_of_the_room_sent_is_not_read(
    platform: Platform, headers: dict[str, str], fields: dict[str, str], status: int
):
    reader = FileReader(Editor("Kim", "secret"))
    room = client(platform, reader)
    assert send(room, "a.png", b"x", headers, **{"token": "secret", **fields}).status_code == status
    assert reader.reading is None


def test_what_is_too_large_or_no_file_is_refused(
    platform: Platform, reader: FileReader, monkeypatch: pytest.MonkeyPatch
):
    room = client(platform, reader)
    assert (
        room.post("/read", content=b"--x", headers={**ORIGIN, "content-type": "multipart/form-data"}).status_code == 400
    )
    form = reader.editor.form
    assert room.post("/read", data={"form": form, "file": "a.png"}, headers=ORIGIN).status_code == 403
    monkeypatch.setattr("kopub.web.app.LARGEST", 1000)
    assert send(room, "a.png", bytes(2000)).status_code == 403
    assert reader.reading is None


def test_a_file_with_a_long_korean_name_is_read(platform: Platform, reader: FileReader):
    room, (_, picture) = client(platform, reader), sample("install.ko_19")
    assert send(room, f"{'긴이름' * 31}.png", picture).status_code == 303
    shown = room.get(followed(room).headers["location"])
    assert (shown.status_code, "아키텍처" in shown.text) == (200, True)


def test_a_file_that_takes_too_long_is_given_up(platform: Platform):
    reader = FileReader(Editor("Kim"), seconds=0.05)
    room = client(platform, reader)
    send(room, *sample("install.ko_19"))
    assert "it took more than 0 s" in followed(room).text
    assert reader.reading is not None
    assert reader.reading.process is not None
    assert reader.reading.process.wait(SOON) is not None
    reader.close()


def test_a_process_that_has_ended_gets_no_signal(
    platform: Platform, reader: FileReader, monkeypatch: pytest.MonkeyPatch
):
    room = client(platform, reader)
    send(room, "cut.pdf", b"%PDF")
    followed(room)
    for thread in threading.enumerate():
        if thread.name == "file":
            thread.join(SOON)
    signalled: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, sent: signalled.append(group))
    reader.close()
    assert signalled == []


def test_a_file_that_cannot_be_shown_keeps_no_other_out(
    platform: Platform, reader: FileReader, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> Room:
        raise OSError("the drive is gone")

    monkeypatch.setattr(file_reading, "Room", broken)
    room, (_, picture) = client(platform, reader), sample("install.ko_19")
    assert send(room, "one.png", picture).status_code == 303
    ended = followed(room)
    assert (ended.status_code, "OSError: the drive is gone" in ended.text) == (422, True)
    assert send(room, "two.png", picture).status_code == 303


def test_a_full_disk_is_said_and_the_next_file_is_taken(
    platform: Platform, reader: FileReader, monkeypatch: pytest.MonkeyPatch
):
    def full(content: Any, file: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    room, (_, picture) = client(platform, reader), sample("install.ko_19")
    with monkeypatch.context() as full_disk:
        full_disk.setattr(file_reading.shutil, "copyfileobj", full)
        refused = send(room, "one.png", picture)
    assert (refused.status_code, refused.text) == (507, "one.png cannot be read now: No space left on device")
    assert send(room, "two.png", picture).status_code == 303


def test_a_room_that_reads_no_files_has_no_form_for_them(platform: Platform):
    room = client(platform, None)
    assert 'type="file"' not in room.get("/").text
    assert room.post("/read", headers=ORIGIN).status_code == 404
