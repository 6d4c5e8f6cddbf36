"""Image sources, alone and beside PDFs: pages, their order, and what is left out."""

import io
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from kopub.errors import SourceError
from kopub.pages.documents import pictures, shards
from kopub.pages.page import decode
from kopub.states import State
from tests.pages.test_pdf_source import pdf, sheet
from tests.support.harness import Platform
from tests.support.installed import imported
from tests.support.sources.source_folder import SourceFolder


def picture(format: str = "PNG", mode: str = "RGB", size: tuple[int, int] = (30, 20), **options: Any) -> bytes:
    """Return a white picture with a dark bar in the upper left corner."""
    pixels = np.full((size[1], size[0], 3), 255, np.uint8)
    pixels[:5, :10] = (200, 30, 0)
    encoded = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(encoded, format, **options)
    return encoded.getvalue()


def tiff(*modes: str, **options: Any) -> bytes:
    """Return a TIFF with a page for each mode, each 1 px wider than the last."""
    pages = [Image.open(io.BytesIO(picture(size=(30 + at, 20)))).convert(mode) for at, mode in enumerate(modes)]
    encoded = io.BytesIO()
    pages[0].save(encoded, "TIFF", save_all=True, append_images=pages[1:], **options)
    return encoded.getvalue()


def test_an_image_is_a_page_with_its_own_bytes(folder: SourceFolder) -> None:
    contents = {
        "사진/IMG 2.jpg": picture("JPEG"),
        "사진/IMG 10.JPG": picture("JPEG", quality=60),
        "a.png": picture(),
        "b.webp": picture("WEBP", lossless=True),
        "c.tif": picture("TIFF"),
    }
    for name, content in contents.items():
        folder.put(name, content)
    folder.index()
    rows = folder.rows()
    assert [(row.page_id, row.doc_id, row.page_no, row.problem) for row in rows] == [
        ("a_1", "a.png", 1, None),
        ("b_1", "b.webp", 1, None),
        ("c_1", "c.tif", 1, None),
        ("사진__IMG 2_1", "사진/IMG 2.jpg", 1, None),
        ("사진__IMG 10_1", "사진/IMG 10.JPG", 1, None),
    ]
    assert [bytes(row.data or b"") for row in rows] == [contents[str(row.doc_id)] for row in rows]


def test_one_file_is_a_source(folder: SourceFolder) -> None:
    path = folder.put("scan.png", picture())
    folder.put("other.png", picture())
    assert folder.index(source=path).rows == 1
    assert [row.page_id for row in folder.rows()] == ["scan_1"]


def test_a_tiff_of_pages_is_a_document(folder: SourceFolder) -> None:
    modes = ("1", "L", "RGB", "CMYK", "I;16", "LAB")
    folder.put("fax.tiff", tiff(*modes))
    folder.index()
    rows = folder.rows()
    assert [(row.page_id, row.doc_id, row.page_no) for row in rows] == [
        (f"fax_{number}", "fax.tiff", number) for number in range(1, len(modes) + 1)
    ]
    with Image.open(io.BytesIO(tiff(*modes))) as original:
        for at, row in enumerate(rows):
            original.seek(at)
            single = io.BytesIO()
            original.save(single, "TIFF")
            assert np.array_equal(decode(row.data or b""), decode(single.getvalue())), modes[at]


@pytest.mark.parametrize("most", [1.0, 60_000])
def test_deep_greys_of_a_tiff_of_pages_are_those_of_a_single_page(folder: SourceFolder, most: float) -> None:
    grey = np.linspace(0, most, 20 * 30).reshape(20, 30)
    page = Image.fromarray(grey.astype(np.float32 if most == 1 else np.int32))
    encoded, single = io.BytesIO(), io.BytesIO()
    page.save(encoded, "TIFF", save_all=True, append_images=[page])
    page.save(single, "TIFF")
    folder.put("a.tif", encoded.getvalue())
    folder.index()
    assert np.array_equal(folder.page(1), decode(single.getvalue()))
    assert 100 < folder.page(1).mean() < 150


def test_smaller_copies_in_a_tiff_are_no_pages(folder: SourceFolder) -> None:
    pages = [Image.open(io.BytesIO(picture(size=(width, 20)))) for width in (30, 8, 40)]
    encoded = io.BytesIO()
    for page, kind in zip(pages, (0, 1, 0), strict=True):
        page.encoderinfo = {"tiffinfo": {254: kind}}
    pages[0].save(encoded, "TIFF", save_all=True, append_images=pages[1:], tiffinfo={254: 0})
    folder.put("a.tif", encoded.getvalue())
    folder.index()
    assert [folder.page(at).shape[1] for at in range(len(folder.rows()))] == [30, 40]


@pytest.mark.slow
def test_pages_are_counted_again_where_an_older_release_counted_fewer(folder: SourceFolder) -> None:
    folder.put("fax.tif", tiff("L", "L", "L"))
    folder.index()
    (file,) = (folder.home / "rendered").glob("pages-*")
    made = pq.read_table(file)
    content = json.loads(pq.read_metadata(file).metadata[b"kopub.rendered"])
    content["renderer"] = re.sub(r"pictures \d+$", "pictures 1", content["renderer"])
    content["ranges"][0] |= {"pages": 1, "count": 1}
    pq.write_table(made.slice(0, 1).replace_schema_metadata({b"kopub.rendered": json.dumps(content)}), file)
    folder.index()
    assert [row.page_id for row in folder.rows()] == ["fax_1", "fax_2", "fax_3"]


def test_pages_of_a_tiff_that_only_say_that_they_are_copies_are_pages(folder: SourceFolder) -> None:
    pages = [Image.open(io.BytesIO(picture(size=(30, height)))) for height in (20, 21, 20)]
    encoded = io.BytesIO()
    for page in pages:
        page.encoderinfo = {"tiffinfo": {254: 1}}
    pages[0].save(encoded, "TIFF", save_all=True, append_images=pages[1:], tiffinfo={254: 1})
    folder.put("a.tif", encoded.getvalue())
    folder.index()
    assert [folder.page(at).shape[0] for at in range(len(folder.rows()))] == [20, 21, 20]


@pytest.mark.parametrize("count", [1, 2])
def test_a_damaged_fax_is_partial_and_says_so(folder: SourceFolder, count: int) -> None:
    page, encoded = Image.effect_noise((64, 64), 80).convert("1"), io.BytesIO()
    page.save(encoded, "TIFF", compression="group4", save_all=True, append_images=[page] * (count - 1))
    with Image.open(io.BytesIO(encoded.getvalue())) as tiff:
        tiff.seek(count - 1)
        (start,) = tiff.tag_v2[273]  # pyright: ignore[reportAttributeAccessIssue]
    damaged = bytearray(encoded.getvalue())
    damaged[start + 50 : start + 90] = bytes(40)
    folder.put("a.tif", bytes(damaged))
    folder.put("b.tif", encoded.getvalue())
    folder.index()
    platform = Platform(folder.home)
    platform.make("raw_pages")
    reasons = [row["reason"] for row in platform.rows("raw_pages").values()]
    assert [at for at, reason in enumerate(reasons) if "its fax data is damaged" in (reason or "")] == [count - 1]
    assert [row["state"] for row in platform.rows("raw_pages").values()].count("ok") == 2 * count - 1


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.bmp", "BMP"), ("a.gif", "GIF"), ("a.jp2", "JPEG2000"), ("a.J2K", "JPEG2000"), ("a.avif", "AVIF")],
)
def test_other_formats_become_pngs_of_the_same_pixels(folder: SourceFolder, name: str, format: str) -> None:
    content = picture(format)
    folder.put(name, content)
    folder.index()
    with Image.open(io.BytesIO(content)) as image:
        expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(folder.page(), expected)


def test_heic_is_taken_with_its_extra(folder: SourceFolder) -> None:
    heif = imported("pillow_heif")
    heif.register_heif_opener()
    content = picture("HEIF", quality=90)
    folder.put("IMG_0001.HEIC", content)
    folder.index()
    with Image.open(io.BytesIO(content)) as image:
        assert np.array_equal(folder.page(), np.asarray(image.convert("RGB")))


def test_a_heic_photo_whose_metadata_is_damaged_is_a_page(folder: SourceFolder) -> None:
    imported("pillow_heif").register_heif_opener()
    folder.put("photo.heic", picture("HEIF", exif=b"Exif\0\0no tags"))
    folder.index()
    assert folder.page().shape == (20, 30, 3)


def test_every_file_that_is_left_out_is_listed_with_its_reason(
    folder: SourceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "heif_installed", lambda: False)
    logs = [f"{number}.log" for number in range(12)]
    for name in ("계약.pages", "b.docm", "~$계약.docx", "IMG.HEIC", "notes.log", ".DS_Store", ".git/x.png", *logs):
        folder.put(name, b"x")
    os.mkfifo(folder.source / "pipe.png")
    folder.put("a.png", picture())
    folder.index()
    lines = (folder.home / "left_out.txt").read_text("utf-8").splitlines()
    assert {line.split("\t")[2] for line in lines} == {"source"}
    listed = {line.split("\t")[0]: line.split("\t")[1] for line in lines}
    assert listed == {
        "계약.pages": "an office file: save it as PDF (LibreOffice: soffice --headless --convert-to pdf FILE)",
        "b.docm": "an office file: save it as PDF (LibreOffice: soffice --headless --convert-to pdf FILE)",
        "~$계약.docx": "the lock file of an office document that somebody has open",
        "IMG.HEIC": "HEIC needs an extra: install kopub[heic], or save it as JPEG",
        "notes.log": "no PDF, image, HWP, office or text file",
        ".DS_Store": "hidden",
        ".git": "hidden",
        "pipe.png": "no regular file",
        **dict.fromkeys(logs, "no PDF, image, HWP, office or text file"),
    }
    said = [line for line in folder.lines if line.startswith("left out")]
    assert "left out: IMG.HEIC (HEIC needs an extra: install kopub[heic], or save it as JPEG)" in said
    assert f"left out: 3 more for this reason, listed in {folder.home / 'left_out.txt'}" in said
    for path in folder.source.rglob("*"):
        if not path.is_dir() and path.name != "a.png":
            path.unlink()
    (folder.source / ".git").rmdir()
    folder.index()
    assert not (folder.home / "left_out.txt").exists()


def test_what_kopub_wrote_into_the_folder_is_no_document(folder: SourceFolder) -> None:
    folder.home = folder.source / "data"
    folder.put("보고서.png", picture())
    folder.index()
    for name in ("md/.kopub-documents.json", "all/export.json", "all/parsed_texts.jsonl"):
        folder.put(name, b"{}")
    for name in ("md/보고서.pictures/1-0.png", "all/crops/보고서_1_0.png", "data/sources/fetched.png"):
        folder.put(name, picture())
    assert folder.index().rows == 1
    assert sorted(line for line in folder.lines if line.startswith("left out")) == [
        "left out: all (written by `kopub export`)",
        "left out: data (a home of KoPub: index the documents in it with --add)",
        "left out: md (written by `kopub export` or `kopub read`)",
    ]
    folder.source /= "md"
    assert folder.index().rows == 1, "a folder that a person names is indexed, whoever wrote it"


def test_a_folder_without_documents_says_what_was_left_out(folder: SourceFolder) -> None:
    folder.put("계약.pages", b"x")
    with pytest.raises(
        SourceError, match=r"office or text file; left out: 계약\.pages \(an office file: save it as PDF"
    ):
        folder.index()
    folder.source /= "계약.pages"
    with pytest.raises(SourceError, match=r"계약\.pages is no file of pages: an office file: save it as PDF"):
        folder.index()


def test_images_beside_shards_are_left_out_and_pdfs_refused(folder: SourceFolder, tmp_path: Path) -> None:
    folder.put("inner/a.png", picture())
    folder.index()
    shard = next((folder.home / "rendered").glob("pages-*"))
    other = SourceFolder(tmp_path / "other")
    other.put("pages.parquet", shard.read_bytes())
    other.put("cover.png", picture())
    assert other.index().rows == 1
    assert "left out: cover.png (beside pages.parquet, which holds the pages: index it from a folder of its own)" in (
        other.lines
    )


def test_images_and_pdfs_are_one_corpus(folder: SourceFolder) -> None:
    folder.put("1 보고서.pdf", pdf(sheet(), sheet()))
    folder.put("2 사진.png", picture())
    folder.put("3 보고서.pdf", pdf(sheet()))
    folder.index()
    assert [row.page_id for row in folder.rows()] == ["1 보고서_1", "1 보고서_2", "2 사진_1", "3 보고서_1"]


def test_an_image_of_the_name_of_a_pdf_does_not_change_its_ids(folder: SourceFolder) -> None:
    folder.put("a.pdf", pdf(sheet()))
    folder.index()
    folder.put("a.png", picture())
    folder.put("a.jpg", picture("JPEG"))
    folder.index()
    ids = [row.page_id for row in folder.rows()]
    assert (ids[0], len(set(ids)), [page_id[:2] for page_id in ids[1:]]) == ("a_1", 3, ["a~", "a~"])


def test_only_changed_files_are_taken_in_again(folder: SourceFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_PAGES", 2)
    for number in range(4):
        folder.put(f"{number}.png", picture(size=(30 + number, 20)))
    folder.index()
    before = folder.files()
    folder.index()
    assert (folder.made, folder.files()) == ([], before)
    folder.put("3.png", picture(size=(50, 20)))
    folder.put("4.png", picture())
    folder.index()
    assert folder.made == ["1 of 2 pages made", "1 of 1 pages made"]
    assert folder.shards() == [["0_1", "1_1"], ["2_1", "3_1"], ["4_1"]]


def test_what_cannot_be_read_is_quarantined_with_its_reason(folder: SourceFolder) -> None:
    whole = picture("JPEG", size=(300, 200))
    contents = {
        "a.png": picture(size=(300, 400)),
        "b.jpg": whole[: len(whole) // 2],
        "c.tif": tiff("L", "L")[:60],
        "d.png": b"",
        "e.bmp": b"BM",
        "f.gif": picture("GIF", save_all=True, append_images=[Image.new("RGB", (30, 20))]),
        "g.webp": b"<html>",
    }
    for name, content in contents.items():
        folder.put(name, content)
    (folder.source / "h.png").symlink_to("nowhere")
    assert folder.index().rows == len(contents) + 1
    platform = Platform(folder.home)
    assert platform.run("raw_pages").success
    rows = platform.rows("raw_pages")
    assert {page_id: row["state"] for page_id, row in rows.items()} == {
        "a_1": State.OK,
        **dict.fromkeys(("b_1", "c.tif", "d.png", "e_1", "f_1", "g_1"), State.QUARANTINED),
        "h.png": State.FAILED,
    }
    reasons = {page_id: row["reason"] for page_id, row in rows.items()}
    assert "cut off before its end marker" in reasons["b_1"]
    assert "the image cannot be read" in reasons["c.tif"]
    assert reasons["d.png"] == "d.png: the file is empty"
    assert "e.bmp, page 1: the image cannot be read" in reasons["e_1"]
    assert "f.gif, page 1: the GIF holds 2 pictures" in reasons["f_1"]
    assert "not a PNG, JPEG, WEBP, TIFF image" in reasons["g_1"]
    assert reasons["h.png"] == "h.png: the file cannot be read: No such file or directory"


def test_a_photo_is_upright(folder: SourceFolder) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    folder.put("a.jpg", picture("JPEG", exif=turned.tobytes()))
    folder.index()
    assert folder.page(0).shape == (30, 20, 3)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_is_a_row_with_the_reason(folder: SourceFolder) -> None:
    folder.put("a.png", picture()).chmod(0)
    folder.index()
    assert [row.problem for row in folder.rows()] == ["a.png: the file cannot be read: Permission denied"]
