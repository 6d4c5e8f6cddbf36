"""Sources: what is indexed or refused, and what assets see of good and bad files."""

import errno
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopub.errors import SourceError, StoreError, quoted
from kopub.folders import SAMPLES
from kopub.pages import arrow, arrow_stream
from kopub.pages.corpus import Corpus, SourceRow
from kopub.pages.indexing import Others, index
from kopub.pages.manifest import Manifest
from kopub.pages.page import problem_with_id
from kopub.pages.page_reader import ImageReader
from tests.support.sources.corpora import SCHEMA, cut, page_image, pages, query, table, write_arrow, write_corpus

HOSTILE_IDS = ["../x", "a/b", "a\\b", "a\0b", "x" * 300, "가" * 70, "", ".", "..", " x", "x ", "a\nb", "\x1b[2J"]


def rows_of(home: Path, key: str = "shard_00") -> list[SourceRow]:
    return list(Corpus(home=str(home)).rows(key))


def proven(reader: ImageReader, row: SourceRow) -> bytes | memoryview:
    return reader.page(row.page_id, row.row, sha256(row.data)).data


def sha256(data: bytes | memoryview | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


def indexed(tmp_path: Path, *shards: list, **options) -> Path:
    """Return a home with an index of `shards`, whose files are in tmp_path/source/corpus."""
    index(str(write_corpus(tmp_path / "source", shards, **options)), tmp_path / "home")
    return tmp_path / "home"


def shard_file(tmp_path: Path, at: int = 0) -> Path:
    return tmp_path / "source" / "corpus" / f"data-{at}.arrow"


def write_as_indexed(home: Path, file: Path, content: pa.Table | bytes) -> None:
    """Change an indexed file and its manifest so that size and time still match."""
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif file.suffix == ".parquet":
        pq.write_table(content, file)
    else:
        write_arrow(file, content)
    manifest = json.loads((home / "shards.json").read_bytes())
    for shard in manifest["shards"]:
        if Path(shard["file"]) == file:
            shard["bytes"] = file.stat().st_size
            manifest["written"][shard["key"]] = file.stat().st_mtime_ns
    (home / "shards.json").write_text(json.dumps(manifest))


# Good sources


def test_pages_come_out_as_they_went_in(tmp_path: Path) -> None:
    content = pages("doc_1", "doc_2", "other_7")
    rows = rows_of(indexed(tmp_path, content))
    assert [(row.row, row.page_id, row.doc_id, row.page_no, row.problem) for row in rows] == [
        (0, "doc_1", "doc", 1, None),
        (1, "doc_2", "doc", 2, None),
        (2, "other_7", "other", 7, None),
    ]
    assert [bytes(row.data or b"") for row in rows] == [data for _, data in content]


def test_optional_columns_are_used(tmp_path: Path) -> None:
    columns = {"file_name": ["a.pdf", None], "page_number": [12, None], "license": ["KOGL-1", None]}
    write_arrow(tmp_path / "source" / "a.arrow", table(pages("x_1", "y_2"), columns))
    index(str(tmp_path / "source"), tmp_path / "home")
    first, second = rows_of(tmp_path / "home")
    assert (first.doc_id, first.page_no, first.license, first.source) == ("a.pdf", 12, "KOGL-1", "a.arrow")
    assert (second.doc_id, second.page_no, second.license) == ("y", 2, None)


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_a_column_that_is_called_problem_damages_no_page_with_an_image(tmp_path: Path, suffix: str) -> None:
    content = table([*pages("x_1", "x_2"), ("x_3", None)])
    content = content.append_column("problem", [["1 + 1 = ?", None, "it was not scanned"]])
    content = content.append_column("failed", [["no", "yes", "no"]])
    path = tmp_path / "source" / f"a.{suffix}"
    write_arrow(path, content)
    if suffix == "parquet":
        pq.write_table(content, path)
    index(str(tmp_path / "source"), tmp_path / "home")
    rows = [(row.page_id, row.problem, row.failed, row.damage) for row in rows_of(tmp_path / "home")]
    assert rows == [("x_1", None, False, None), ("x_2", None, False, None), ("x_3", "it was not scanned", False, None)]


def test_arrow_images_are_slices_of_the_mapped_file(tmp_path: Path) -> None:
    big = bytes(1 << 20)
    home = indexed(tmp_path, [("a_1", big), ("a_2", big), ("a_3", big)], batch_rows=2)
    before = pa.total_allocated_bytes()
    rows = rows_of(home)
    with Corpus(home=str(home)).reader("shard_00") as reader:
        assert [proven(reader, row) for row in rows] == [row.data for row in rows]
    assert pa.total_allocated_bytes() - before < len(big)
    assert all(isinstance(row.data, memoryview) and row.data.readonly for row in rows)


@pytest.mark.parametrize("file_format", [False, True], ids=["stream", "file"])
@pytest.mark.parametrize("string", [pa.string(), pa.large_string()])
def test_every_arrow_layout_is_read(tmp_path: Path, file_format: bool, string: pa.DataType) -> None:
    wide = pa.schema([("id", string), ("image", pa.struct([("bytes", pa.large_binary())]))])
    content = pages(*(f"d_{at}" for at in range(5)))
    rows = [{"id": page_id, "image": {"bytes": data}} for page_id, data in content]
    write_arrow(tmp_path / "source" / "a.arrow", pa.Table.from_pylist(rows, wide), 2, file_format)
    index(str(tmp_path / "source"), tmp_path / "home")
    assert [(row.page_id, row.data) for row in rows_of(tmp_path / "home")] == content


def test_parquet_is_read_by_row_group(tmp_path: Path) -> None:
    content = pages(*(f"d_{at}" for at in range(7)))
    (tmp_path / "source").mkdir()
    pq.write_table(table(content), tmp_path / "source" / "a.parquet", row_group_size=3)
    manifest = index(str(tmp_path / "source"), tmp_path / "home")
    assert (manifest.shards[0].format, manifest.shards[0].rows) == ("parquet", 7)
    assert [(row.page_id, row.data) for row in rows_of(tmp_path / "home")] == content
    with Corpus(home=str(tmp_path / "home")).reader("shard_00") as reader:
        rows = rows_of(tmp_path / "home")
        assert [proven(reader, rows[at]) for at in (6, 0, 4)] == [content[at][1] for at in (6, 0, 4)]


def test_a_value_that_a_parquet_repeats_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "_BATCH_BYTES", 4 << 20)
    monkeypatch.setattr(arrow, "_BYTES_KEPT", 16 << 20)
    rows, value = 100, pa.array([bytes(1 << 20)], pa.binary())
    image = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), value)
    columns = {"id": [f"d_{at}" for at in range(rows)], "image": pa.StructArray.from_arrays([image], ["bytes"])}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False, dictionary_pagesize_limit=1 << 30)
    assert path.stat().st_size < 10_000
    before, file = pa.total_allocated_bytes(), arrow.open_pages(path, "parquet")
    assert [file.row(at).id for at in (50, 47, 99, 0)] == ["d_50", "d_47", "d_99", "d_0"]
    assert len([row for row in file.rows(rows) if len(row.image or b"") == 1 << 20]) == rows
    assert pa.total_allocated_bytes() - before < 40 << 20


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_what_unpacks_to_far_more_than_pictures_do_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(arrow if suffix == "parquet" else arrow_stream, "MOST_UNPACKED", 1 << 20)
    content, path = table([("d_1", bytes(4 << 20)), ("d_2", b"x")]), tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        pq.write_table(content, path, compression="zstd")
    else:
        with pa.ipc.new_stream(path, content.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_table(content)
    with pytest.raises(SourceError, match=r"unpacks? (from \d,\d{3} )?to 4,\d{3},\d{3} bytes"):
        index(str(path), tmp_path / "home")


def with_names(content: pa.Table, names: pa.Array) -> pa.Table:
    return content.set_column(content.schema.get_field_index("file_name"), "file_name", names)


@pytest.mark.parametrize("column", ["image", "file_name"])
def test_an_arrow_file_is_refused_by_the_size_that_it_states(tmp_path: Path, column: str) -> None:
    content = table([("d_1", bytes(4096))])
    if column == "file_name":
        content = with_names(content, pa.array(["x" * 4096]).dictionary_encode())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, content.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(content)
    size = (4096).to_bytes(8, "little")
    stated = sink.getvalue().to_pybytes().replace(size, (1 << 31).to_bytes(8, "little"))
    (tmp_path / "a.arrow").write_bytes(stated)
    with pytest.raises(SourceError, match=r"it unpacks to [24],\d{3},\d{3},\d{3} bytes: save it without compression"):
        index(str(tmp_path / "a.arrow"), tmp_path / "home")


def test_more_rows_than_a_file_has_bytes_are_refused(tmp_path: Path) -> None:
    rows = 200_000
    content = pa.table({"id": ["d"] * rows, "image": pa.nulls(rows, pa.struct([("bytes", pa.binary())]))})
    pq.write_table(content, tmp_path / "a.parquet", compression="zstd")
    with pytest.raises(SourceError, match=r"it has 200,000 rows in \d,\d{3} bytes"):
        index(str(tmp_path / "a.parquet"), tmp_path / "home")


@pytest.mark.parametrize(
    ("shared", "says"),
    [
        (lambda name, rows: pa.DictionaryArray.from_arrays([0] * rows, name), "texts of more than 65,536 bytes"),
        (lambda name, rows: pa.ListViewArray.from_arrays([0] * rows, [1] * rows, name), "wanted whole numbers or text"),
    ],
)
def test_a_text_that_rows_share_does_not_fill_the_memory(tmp_path: Path, shared, says: str) -> None:
    rows = 100
    names = shared(pa.array(["x" * (1 << 20)]), rows)
    content = with_names(table([(f"d_{at}", b"x") for at in range(rows)]), names)
    write_arrow(tmp_path / "a.arrow", content, rows)
    with pytest.raises(SourceError, match=f"the column file_name .*{says}"):
        index(str(tmp_path / "a.arrow"), tmp_path / "home")


def test_a_name_of_a_million_letters_is_refused_in_one_line(tmp_path: Path) -> None:
    write_arrow(tmp_path / "a.arrow", table(pages("x_1"), {"file_name": ["x" * 1_000_000]}))
    with pytest.raises(SourceError, match="the column file_name has texts of more than 65,536 bytes"):
        index(str(tmp_path / "a.arrow"), tmp_path / "home")


def test_files_are_shards_in_natural_order(tmp_path: Path) -> None:
    for at in (10, 2, 1):
        write_arrow(tmp_path / "source" / f"part-{at}.arrow", table(pages(f"p_{at}")))
    manifest = index(str(tmp_path / "source"), tmp_path / "home")
    assert manifest.keys == ["shard_00", "shard_01", "shard_02"]
    assert [Path(shard.file).name for shard in manifest.shards] == ["part-1.arrow", "part-2.arrow", "part-10.arrow"]


@pytest.mark.parametrize("names", [("01.arrow", "1.arrow"), ("1.arrow", "01.arrow")])
def test_names_of_one_number_are_in_one_order_wherever_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    for name in names:
        write_arrow(tmp_path / "source" / name, table(pages(f"p{name}_1")))
    # A file system lists files in any order.
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([folder / name for name in names]))
    manifest = index(str(tmp_path / "source"), tmp_path / "home")
    assert [Path(shard.file).name for shard in manifest.shards] == ["01.arrow", "1.arrow"]


def test_a_dataset_that_datasets_saved(tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict, Image, Value

    content = pages(*(f"d_{at}" for at in range(5)))
    columns = {"id": [page_id for page_id, _ in content], "image": [{"bytes": data} for _, data in content]}
    dataset = Dataset.from_dict(columns).cast_column("image", Image()).cast_column("id", Value("large_string"))
    dataset.save_to_disk(tmp_path / "saved", num_shards=2)
    manifest = index(str(tmp_path / "saved"), tmp_path / "home")
    assert [shard.rows for shard in manifest.shards] == [3, 2]
    seen = rows_of(tmp_path / "home") + rows_of(tmp_path / "home", "shard_01")
    assert [(row.page_id, row.data) for row in seen] == content
    DatasetDict({"test": dataset}).save_to_disk(tmp_path / "splits")
    assert index(str(tmp_path / "splits"), tmp_path / "home", others=Others.REPLACE).rows == 5
    DatasetDict({"a": dataset, "b": dataset}).save_to_disk(tmp_path / "two")
    with pytest.raises(SourceError, match="has the splits a, b"):
        index(str(tmp_path / "two"), tmp_path / "home", others=Others.REPLACE)


def test_manifest_says_what_was_indexed(tmp_path: Path) -> None:
    home = indexed(tmp_path, pages("a_1", "a_2"), pages("b_1"))
    manifest = Manifest.load(home)
    content = shard_file(tmp_path).read_bytes()
    assert (manifest.shards[0].bytes, manifest.shards[0].sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert manifest.place(manifest.shards[0].file) == str(shard_file(tmp_path))
    assert (manifest.rows, manifest.location) == (3, str(tmp_path / "source"))
    assert index(str(tmp_path / "source"), home) == manifest


def test_files_inside_the_home_are_named_from_it(tmp_path: Path) -> None:
    write_corpus(tmp_path, [pages("a_1")])
    assert index(str(tmp_path), tmp_path).shards[0].file == "corpus/data-0.arrow"
    (tmp_path / "moved").mkdir()
    for name in ("corpus", "shards.json"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    assert [row.page_id for row in rows_of(tmp_path / "moved")] == ["a_1"]


def test_a_link_keeps_its_name(tmp_path: Path) -> None:
    blob = write_arrow(tmp_path / "blobs" / "5f5f", table(pages("a_1")))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "pages.arrow").symlink_to(blob)
    index(str(tmp_path / "source"), tmp_path / "home")
    assert [row.source for row in rows_of(tmp_path / "home")] == ["pages.arrow"]


@pytest.mark.parametrize("name", ["{}/page.png", "{}/data.arrow", "source/{}.arrow", "source/{}.parquet"])
def test_a_source_or_a_file_of_pages_whose_name_is_no_utf_8_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    file = tmp_path / name.format(os.fsdecode("보고서".encode("cp949")))
    try:
        file.parent.mkdir()
        file.write_bytes(write_arrow(tmp_path / "whole.arrow", table(pages("a_1"))).read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    if file.suffix == ".png":
        file.write_bytes(page_image())
    with pytest.raises(SourceError, match=r"\\udcba[^\n]* has a name that is not UTF-8: rename it"):
        index(str(file.parent), tmp_path / "home")
    assert not (tmp_path / "home" / "shards.json").exists()


def test_progress_is_told(tmp_path: Path) -> None:
    source = write_corpus(tmp_path, [pages("a_1", "a_1"), pages("../x")], [query("q", "?", "a_1", "z_9")])
    lines: list[str] = []
    index(str(source), tmp_path / "home", lines.append)
    told = "\n".join(lines)
    for part in ("data-1.arrow (2 of 2): 1 page", "1 rows repeat", "1 rows have no usable id", "'z_9'", "1 query"):
        assert part in told


def test_a_manifest_of_640_shards_loads_without_heavy_imports(tmp_path: Path) -> None:
    shard = {"file": "a.arrow", "format": "arrow", "rows": 64, "bytes": 1, "sha256": "0" * 64}
    shards = [shard | {"key": f"shard_{at:02d}"} for at in range(640)]
    (tmp_path / "shards.json").write_text(json.dumps({"version": 1, "source": "x", "shards": shards}))
    code = (
        "import sys; from pathlib import Path; from kopub.pages.manifest import Manifest;"
        "print(Manifest.load(Path(sys.argv[1])).keys[-1], {'pyarrow', 'numpy', 'dagster'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=SAMPLES.parent)
    assert done.stdout.split() == ["shard_639", "set()"]


# Queries


def test_queries_belong_to_the_shard_of_their_first_known_page(tmp_path: Path) -> None:
    asked = [query("q1", "하나?", "b_1", "a_1"), query("q2", "둘?", "nowhere_1", "a_1"), query("q3", "셋?")]
    home = indexed(tmp_path, pages("a_1"), pages("b_1"), queries=asked)
    corpus = Corpus(home=str(home))
    assert [found.query_id for found in corpus.queries("shard_01") if found.query_id != "q3"] == ["q1"]
    assert [found.query_id for found in corpus.queries("shard_00") if found.query_id != "q3"] == ["q2"]
    everywhere = [found for key in corpus.manifest.keys for found in corpus.queries(key)]
    assert sorted(found.query_id for found in everywhere) == ["q1", "q2", "q3"]
    assert next(found for found in everywhere if found.query_id == "q2").ground_truth == ["nowhere_1", "a_1"]
    assert corpus.manifest.queries is not None
    assert corpus.manifest.queries.unknown == ["nowhere_1"]
    assert corpus.unknown_pages == {"nowhere_1"}


def test_query_ids_are_made_unique(tmp_path: Path) -> None:
    asked = [query("q", "하나?", "a_1"), query("q", "둘?", "a_1"), query("q#2", "셋?", "a_1")]
    found = Corpus(home=str(indexed(tmp_path, pages("a_1"), queries=asked))).queries("shard_00")
    assert [(each.query_id, each.query) for each in found] == [("q", "하나?"), ("q#2", "둘?"), ("q#2#2", "셋?")]


def test_a_folder_without_queries_has_none_and_forgets_old_ones(tmp_path: Path) -> None:
    home = indexed(tmp_path, pages("a_1"), queries=[query("q", "?", "a_1")])
    assert len(Corpus(home=str(home)).queries("shard_00")) == 1
    (tmp_path / "source" / "qa.parquet").unlink()
    lines: list[str] = []
    index(str(tmp_path / "source"), home, lines.append)
    assert Corpus(home=str(home)).queries("shard_00") == []
    assert lines[-1].endswith("has no queries")


def test_page_numbers_are_resolved_through_annotations(tmp_path: Path) -> None:
    pq.write_table(table(pages("f_1", "f_2", "g_1")), tmp_path / "Some-corpus.parquet")
    rows = [{"id": "f_2", "query": "?", "ground_truth": [1, 2]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "Some-QA.parquet")
    with pytest.raises(SourceError, match="row 0 names page 1 of the corpus, and no annotations"):
        index(str(tmp_path), tmp_path / "home")
    annotations = [{"file_id": "f", "page_indices": [0, 1]}, {"file_id": "g", "page_indices": [2]}]
    pq.write_table(pa.Table.from_pylist(annotations), tmp_path / "Some-annotations.parquet")
    index(str(tmp_path), tmp_path / "home")
    assert Corpus(home=str(tmp_path / "home")).queries("shard_00")[0].ground_truth == ["f_2", "g_1"]


def test_queries_that_changed_under_the_manifest_are_refused(tmp_path: Path) -> None:
    home = indexed(tmp_path, pages("a_1"), queries=[query("q", "?", "a_1")])
    found = pq.read_table(home / "queries.parquet")
    pq.write_table(pa.concat_tables([found, found]), home / "queries.parquet")
    with pytest.raises(SourceError, match="changed since it was indexed"):
        Corpus(home=str(home)).queries("shard_00")


@pytest.mark.parametrize("content", [None, b"", b"PAR1"], ids=["lost", "empty", "damaged"])
def test_queries_that_the_index_lost_are_read_again_from_the_source(tmp_path: Path, content: bytes | None) -> None:
    home = indexed(tmp_path, pages("a_1"), queries=[query("q", "?", "a_1")])
    before = (home / "shards.json").read_bytes()
    (home / "queries.parquet").unlink()
    if content is not None:
        (home / "queries.parquet").write_bytes(content)
    index(str(tmp_path / "source"), home)
    assert [each.query_id for each in Corpus(home=str(home)).queries("shard_00")] == ["q"]
    assert (home / "shards.json").read_bytes() == before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "q", "query": "?"}], "has the columns id, query; wanted id, query, ground_truth"),
        ([{"id": "q", "query": " ", "ground_truth": ["a_1"]}], "row 0 has no query"),
        ([{"id": None, "query": "?", "ground_truth": ["a_1"]}], "row 0 has no id"),
    ],
)
def test_unusable_queries_are_refused(tmp_path: Path, rows: list, message: str) -> None:
    write_corpus(tmp_path, [pages("a_1")])
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "qa.parquet")
    with pytest.raises(SourceError, match=message):
        index(str(tmp_path), tmp_path / "home")


# Rows that cannot be used


@pytest.mark.parametrize("page_id", HOSTILE_IDS, ids=quoted)
def test_a_hostile_id_never_gets_out(tmp_path: Path, page_id: str) -> None:
    before, bad, after = rows_of(indexed(tmp_path, pages("a_1", page_id, "a_2")))
    assert (before.problem, after.problem) == (None, None)
    assert (bad.page_id, bad.doc_id) == ("shard_00/row_1", None)
    assert bad.problem is not None
    assert bad.problem.startswith("row 1: the id ")
    assert bad.problem.isprintable()
    assert len(bad.problem) < 120


@pytest.mark.parametrize("page_id", ["a_1", "install.ko_15", "가나다_1", "보고서 (최종)_12", "x" * 200, "...", "-rf"])
def test_ordinary_ids_are_kept(page_id: str) -> None:
    assert problem_with_id(page_id) is None


@given(st.text(max_size=250))
@pytest.mark.slow
def test_a_usable_id_is_one_file_name(page_id: str) -> None:
    if problem_with_id(page_id) is None:
        assert Path("store", page_id).parent == Path("store")
        assert 0 < len(page_id.encode()) <= 200
        assert page_id != "shard_00/row_0"


def test_bytes_that_are_no_text_are_no_id(tmp_path: Path) -> None:
    binary = SCHEMA.set(0, pa.field("id", pa.binary()))
    rows = [{"id": b"ok_1", "image": {"bytes": b"x"}}, {"id": b"\xff\xfe", "image": {"bytes": b"x"}}]
    write_arrow(tmp_path / "source" / "a.arrow", pa.Table.from_pylist(rows, binary))
    index(str(tmp_path / "source"), tmp_path / "home")
    good, bad = rows_of(tmp_path / "home")
    assert (good.page_id, bad.page_id) == ("ok_1", "shard_00/row_1")


def test_missing_ids_and_images(tmp_path: Path) -> None:
    image = page_image()
    rows = rows_of(indexed(tmp_path, [("a_1", None), (None, image), ("a_2", b"")]))
    assert [(row.page_id, row.data, row.problem) for row in rows] == [
        ("a_1", None, "the row has no image bytes"),
        ("shard_00/row_1", image, "row 1 has no id"),
        ("a_2", b"", None),
    ]


def test_a_null_image_struct_is_a_problem_of_its_row(tmp_path: Path) -> None:
    rows = [{"id": "a_1", "image": None}, {"id": "a_2", "image": {"bytes": b"x"}}]
    write_arrow(tmp_path / "source" / "a.arrow", pa.Table.from_pylist(rows, SCHEMA))
    index(str(tmp_path / "source"), tmp_path / "home")
    assert [row.problem for row in rows_of(tmp_path / "home")] == ["the row has no image bytes", None]


def test_only_the_first_page_keeps_an_id(tmp_path: Path) -> None:
    home = indexed(tmp_path, pages("a_1", "a_1", "b_1"), pages("c_1", "b_1", "a_1"))
    assert [shard.duplicates for shard in Manifest.load(home).shards] == [[], ["a_1", "b_1"]]
    assert [row.page_id for row in rows_of(home)] == ["a_1", "shard_00/row_1", "b_1"]
    second = rows_of(home, "shard_01")
    assert [row.page_id for row in second] == ["c_1", "shard_01/row_1", "shard_01/row_2"]
    assert second[1].problem == "row 1: an earlier page has the id 'b_1' already"


def test_a_page_of_an_earlier_shard_is_known_by_its_id_in_whatever_row(tmp_path: Path) -> None:
    home = indexed(tmp_path, pages("a_1"), pages("b_1", "a_1", "b_2"))
    write_as_indexed(home, shard_file(tmp_path, 1), table(pages("a_1", "b_2", "b_1")))
    assert [row.page_id for row in rows_of(home, "shard_01")] == ["shard_01/row_0", "b_2", "b_1"]


# Files that changed after they were indexed


def test_pages_of_the_batches_before_a_cut_come_out(tmp_path: Path) -> None:
    content = pages(*(f"d_{at}" for at in range(8)))
    home = indexed(tmp_path, content, batch_rows=4)
    file = shard_file(tmp_path)
    whole = file.read_bytes()
    end_of_sixth = whole.index(content[5][1] or b"") + len(content[5][1] or b"")
    write_as_indexed(home, file, whole[:end_of_sixth])
    rows = rows_of(home)
    assert [row.page_id for row in rows] == [
        *(f"d_{at}" for at in range(4)),
        *(f"shard_00/row_{at}" for at in range(4, 8)),
    ]
    assert [row.data for row in rows] == [*(data for _, data in content[:4]), *[None] * 4]
    assert all((row.problem or "").startswith(f"row {row.row}: the file is cut off or damaged") for row in rows[4:])
    with Corpus(home=str(home)).reader("shard_00") as reader:
        assert proven(reader, rows[3]) == content[3][1]
        with pytest.raises(
            SourceError, match=r"row 6 cannot be read: the file is cut off .*; bring in a whole file, or m"
        ):
            proven(reader, rows[6])


@pytest.mark.parametrize("file_format", [False, True], ids=["stream", "file"])
def test_a_cut_anywhere_loses_no_row_and_shows_no_wrong_one(tmp_path: Path, file_format: bool) -> None:
    content = [(f"d_{at}", bytes([at]) * 50) for at in range(6)]
    columns = {"file_name": [f"{at}.pdf" for at in range(6)], "page_number": list(range(6))}
    file = write_arrow(tmp_path / "source" / "a.arrow", table(content, columns), 3, file_format)
    index(str(file), tmp_path / "home")
    whole = file.read_bytes()

    @settings(max_examples=150)
    @given(st.integers(1, len(whole) - 1))
    def check(size: int) -> None:
        write_as_indexed(tmp_path / "home", file, whole[:size])
        rows = rows_of(tmp_path / "home")
        assert len(rows) == len(content)
        for row, (page_id, data) in zip(rows, content, strict=True):
            assert row.page_id in (page_id, f"shard_00/row_{row.row}")
            assert row.data is None or row.data == data
            assert (row.data is None) == (row.problem is not None)
            assert row.doc_id in (None, "d", f"{row.row}.pdf")
            assert row.page_no in (None, row.row)

    check()


def test_damage_ends_no_process_and_loses_no_row(tmp_path: Path) -> None:
    content = [(f"d_{at}", bytes([at]) * 50) for at in range(6)]
    home = indexed(tmp_path, content, batch_rows=3)
    file = shard_file(tmp_path)
    whole = file.read_bytes()

    @settings(max_examples=150)
    @given(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), min_size=1, max_size=8))
    def check(changes: list[tuple[int, int]]) -> None:
        damaged = bytearray(whole)
        for at, value in changes:
            damaged[at] = value
        write_as_indexed(home, file, bytes(damaged))
        with suppress(SourceError):
            rows = rows_of(home)
            assert len(rows) == len({row.page_id for row in rows}) == len(content)

    check()


@pytest.mark.parametrize(
    ("sound", "broken"),
    [
        (struct.pack("<3i", 0, 50, 100), struct.pack("<3i", 0, 2**31 - 1, 100)),
        # The lengths and nulls of ids, images and their bytes.
        (struct.pack("<6q", 2, 0, 2, 0, 2, 0), struct.pack("<6q", 2, 0, 2, 0, 1, 0)),
    ],
    ids=["offsets", "fewer bytes than images"],
)
def test_a_damaged_batch_costs_its_own_rows(tmp_path: Path, sound: bytes, broken: bytes) -> None:
    content = [(f"d_{at}", bytes([at]) * 50) for at in range(6)]
    home = indexed(tmp_path, content, batch_rows=2)
    file = shard_file(tmp_path)
    whole = file.read_bytes()
    second = whole.index(sound, whole.index(sound) + 1)
    damaged = whole[:second] + broken + whole[second + len(sound) :]
    write_as_indexed(home, file, damaged)
    rows = rows_of(home)
    assert [row.page_id for row in rows] == ["d_0", "d_1", "shard_00/row_2", "shard_00/row_3", "d_4", "d_5"]
    assert [row.data for row in rows] == [data if at not in (2, 3) else None for at, (_, data) in enumerate(content)]
    with pytest.raises(SourceError, match=r"the file is damaged .*; bring in a whole file and index again"):
        index(str(tmp_path / "source"), home)


@pytest.mark.parametrize("content", [b"", b"not an Arrow file at all", b"\xff\xff\xff\xff", b"ARROW1\0\0"])
def test_a_file_of_which_nothing_can_be_read(tmp_path: Path, content: bytes) -> None:
    home = indexed(tmp_path, pages("a_1", "a_2"))
    write_as_indexed(home, shard_file(tmp_path), content or b" ")
    rows = rows_of(home)
    assert [row.page_id for row in rows] == ["shard_00/row_0", "shard_00/row_1"]
    assert all("the file is cut off" in (row.problem or "") for row in rows)


def test_a_column_called_like_a_text_layer_is_read_as_its_rows_are(tmp_path: Path) -> None:
    file = tmp_path / "source" / "a.parquet"
    file.parent.mkdir()
    pq.write_table(table(pages("a_1", "a_2")).append_column("pdf_text_layer", pa.array([1, None])), file)
    index(str(file.parent), tmp_path / "home")
    stored = Corpus(home=str(tmp_path / "home")).text_layers("shard_00")
    layers = [stored.layer(row.page_id, row.row, row.text_layer_id) for row in rows_of(tmp_path / "home")]
    assert [layer and layer.words for layer in layers] == [(), None]


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    file = tmp_path / "source" / "a.parquet"
    file.parent.mkdir()
    content = pages(*(f"d_{at}" for at in range(6)))
    pq.write_table(table(content), file, row_group_size=3, use_dictionary=False, compression="zstd")
    index(str(file.parent), tmp_path / "home")
    whole = file.read_bytes()
    second = pq.ParquetFile(file).metadata.row_group(1).column(1).data_page_offset
    write_as_indexed(tmp_path / "home", file, whole[:second] + b"\xff" * 64 + whole[second + 64 :])
    rows = rows_of(tmp_path / "home")
    assert [row.data for row in rows] == [*(data for _, data in content[:3]), None, None, None]
    assert all("the file is damaged" in (row.problem or "") for row in rows[3:])
    write_as_indexed(tmp_path / "home", file, whole[: len(whole) // 2])
    assert [row.page_id for row in rows_of(tmp_path / "home")] == [f"shard_00/row_{at}" for at in range(6)]


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_another_file_in_its_place_is_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / "source" / f"a.{suffix}"
    write = write_arrow if suffix == "arrow" else lambda path, content: pq.write_table(content, path)
    file.parent.mkdir()
    write(file, table(pages("a_1", "a_2")))
    index(str(file), tmp_path / "home")
    whole = file.read_bytes()
    for others in (pages("a_1", "a_2", "a_3"), pages("a_1")):
        write(file, table(others))
        with pytest.raises(SourceError, match=rf"a\.{suffix} changed since it was indexed: run `kopub index` again"):
            rows_of(tmp_path / "home")
    file.write_bytes(whole)
    assert [row.page_id for row in rows_of(tmp_path / "home")] == ["a_1", "a_2"]
    for others in (pages("a_1", "a_2", "a_3"), pages("a_1")):
        write_as_indexed(tmp_path / "home", file, table(others))
        with pytest.raises(SourceError, match=f"has {len(others)} rows and had 2 .* index` again"):
            rows_of(tmp_path / "home")
    file.unlink()
    with pytest.raises(SourceError, match=r"cannot be opened: No such file"):
        rows_of(tmp_path / "home")


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_bytes_are_given_out_under_no_other_name(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / "source" / f"a.{suffix}"
    write = write_arrow if suffix == "arrow" else lambda path, content: pq.write_table(content, path)
    file.parent.mkdir()
    content = pages("a_1", "a_2")
    write(file, table(content))
    index(str(file), tmp_path / "home")
    seen = [(at, page_id, sha256(data)) for at, (page_id, data) in enumerate(content)]
    write_as_indexed(tmp_path / "home", file, table(content[::-1]))
    with Corpus(home=str(tmp_path / "home")).reader("shard_00") as reader:
        for row, page_id, seen_bytes in seen:
            with pytest.raises(SourceError, match=rf"a\.{suffix}: row {row} does not hold .* again$") as caught:
                reader.page(page_id or "", row, seen_bytes)
            assert f"raw_pages saw of {page_id!r}: materialize raw_pages of shard_00" in str(caught.value)
        assert reader.page("a_1", 1, sha256(content[0][1])).data == content[0][1]
        assert reader.sha256(0) == sha256(content[1][1])
        with pytest.raises(SourceError, match="does not hold the bytes"):
            reader.page("a_1", 0, None)


def test_bytes_that_were_proven_stay_what_they_are(tmp_path: Path) -> None:
    content = pages("a_1")
    home = indexed(tmp_path, content)
    with Corpus(home=str(home)).reader("shard_00") as reader:
        page = reader.page("a_1", 0, sha256(content[0][1]))
        file = shard_file(tmp_path)
        with file.open("r+b") as written:
            written.write(bytes(file.stat().st_size))
        assert page.data == content[0][1]


# Sources that are refused


def refused(source: Path, tmp_path: Path) -> str:
    """Return the one line that `index` refuses a source with, leaving nothing behind."""
    with pytest.raises(SourceError) as caught:
        index(str(source), tmp_path / "home")
    assert not (tmp_path / "home").exists()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "source" / "a.arrow", pa.table({"id": ["a"], "picture": [b"x"]}))
    wanted = f"{path} has the columns id: string, picture: binary; wanted id: string and image: struct<bytes: binary>"
    assert refused(path.parent, tmp_path) == wanted
    pq.write_table(pa.table({"id": [1], "image": [b"x"]}), tmp_path / "b.parquet")
    assert "id: int64, image: binary; wanted" in refused(tmp_path / "b.parquet", tmp_path)


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
@pytest.mark.parametrize("name", ["id", "image", "license"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, suffix: str, name: str) -> None:
    content = table(pages("a_1", "a_2"))
    twice = content.append_column(content.schema.field(name), content[name])
    path = tmp_path / "source" / f"a.{suffix}"
    path.parent.mkdir()
    if suffix == "arrow":
        write_arrow(path, twice)
    else:
        pq.write_table(twice, path)
    assert refused(path.parent, tmp_path) == f"{path} has 2 columns named {name}: rename or drop all but one"


def test_two_columns_of_one_name_are_refused_in_queries(tmp_path: Path) -> None:
    write_corpus(tmp_path / "source", [pages("a_1")], [query("q", "?", "a_1")])
    path = tmp_path / "source" / "qa.parquet"
    asked = pq.read_table(path)
    pq.write_table(asked.append_column("query", asked["query"]), path)
    with pytest.raises(SourceError, match=r"qa\.parquet cannot be read: it has query in two columns"):
        index(str(tmp_path / "source"), tmp_path / "home")


@pytest.mark.parametrize("image", [pa.struct([("bytes", pa.binary()), ("bytes", pa.binary())]), pa.struct([])])
def test_an_image_without_its_one_field_of_bytes_is_refused(tmp_path: Path, image: pa.StructType) -> None:
    schema = pa.schema([("id", pa.string()), ("image", image)])
    path = write_arrow(tmp_path / "source" / "a.arrow", schema.empty_table())
    assert "wanted id: string and image: struct<bytes: binary>" in refused(path.parent, tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state.json", '{"_data_files": 5}'),
        ("state.json", '{"_data_files": [5]}'),
        ("state.json", '{"_data_files": [{"filename": 5}]}'),
        ("state.json", "[" * 10_000),
        ("state.json", "[]"),
        ("dataset_dict.json", '{"splits": 5}'),
        ("dataset_dict.json", '{"splits": [5]}'),
        ("dataset_dict.json", "\xff"),
    ],
)
def test_what_datasets_wrote_is_not_trusted(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / name).write_bytes(content.encode("latin-1"))
    assert f"{name} cannot be read: " in refused(tmp_path / "source", tmp_path)


def test_broken_files_are_not_indexed(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "source" / "a.arrow", table(pages("a_1", "a_2")), 1)
    whole = path.read_bytes()
    for size in (len(whole) - 8, len(whole) - 1, len(whole) // 2, 5):
        path.write_bytes(whole[:size])
        assert refused(path.parent, tmp_path).startswith(f"{path}: the file is cut off or damaged")
    path.write_bytes(b"")
    assert refused(path.parent, tmp_path).startswith(f"{path}: the file is cut off or damaged")
    path.unlink()
    parquet = path.with_suffix(".parquet")
    pq.write_table(table(pages("a_1")), parquet)
    cut(parquet, 100)
    assert refused(path.parent, tmp_path).startswith(f"{parquet}: the file is cut off or damaged")


def test_sources_without_pages(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    assert "has no pages in Arrow or Parquet, and no PDF, image" in refused(tmp_path / "source", tmp_path)
    # A hostile list of splits leads back to its own folder.
    (tmp_path / "source" / "dataset_dict.json").write_text('{"splits": ["."]}')
    assert "has no pages in Arrow or Parquet, and no PDF, image" in refused(tmp_path / "source", tmp_path)
    write_arrow(tmp_path / "source" / "a.arrow", table([]))
    assert refused(tmp_path / "source", tmp_path).endswith("has no pages")
    assert "is neither a folder" in refused(tmp_path / "nowhere", tmp_path)
    (tmp_path / "source" / "state.json").write_text("{")
    assert "state.json cannot be read" in refused(tmp_path / "source", tmp_path)


def test_empty_files_are_left_out(tmp_path: Path) -> None:
    write_arrow(tmp_path / "source" / "a-1.arrow", table([]))
    write_arrow(tmp_path / "source" / "a-2.arrow", table(pages("a_1")))
    assert [shard.key for shard in index(str(tmp_path / "source"), tmp_path / "home").shards] == ["shard_00"]


def test_a_refused_source_leaves_the_old_index(tmp_path: Path) -> None:
    home = indexed(tmp_path, pages("a_1"))
    before = (home / "shards.json").read_bytes()
    cut(shard_file(tmp_path), 100)
    with pytest.raises(SourceError, match="the file is cut off or damaged"):
        index(str(tmp_path / "source"), home)
    assert (home / "shards.json").read_bytes() == before
    assert sorted(path.name for path in home.iterdir()) == ["shards.json"]


def index_while_another(tmp_path: Path, others: Others) -> list[SourceError]:
    """Index two sources at once, the second one while the first holds the home."""
    for name in ("one", "two"):
        write_corpus(tmp_path / name, [pages(f"{name}_1")])
    told, refusals = Event(), list[SourceError]()

    def second() -> None:
        try:
            index(str(tmp_path / "two"), tmp_path / "home", lambda _: told.set(), others=others)
        except SourceError as error:
            refusals.append(error)

    thread = Thread(target=second)

    def first(line: str) -> None:
        if not thread.ident:
            thread.start()
            assert told.wait(30)

    index(str(tmp_path / "one"), tmp_path / "home", first)
    thread.join()
    return refusals


def test_a_source_that_waited_for_another_one_is_refused_as_if_it_came_later(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (refusal,) = index_while_another(tmp_path, Others.REFUSE)
    assert re.search(r"home holds .*/one: --add adds .*/two to it", str(refusal))
    assert [source.name for source in Manifest.load(tmp_path / "home").sources] == ["one"]


def test_two_first_indexes_of_a_home_that_is_not_there_keep_both_sources(tmp_path: Path) -> None:
    assert index_while_another(tmp_path, Others.ADD) == []
    assert [source.name for source in Manifest.load(tmp_path / "home").sources] == ["one", "two"]


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(StoreError, match="was not written"):
        index(str(write_corpus(tmp_path / "source", [pages("a_1")])), tmp_path / "home")


def test_a_full_disk_leaves_the_old_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = indexed(tmp_path, pages("a_1"))
    before = (home / "shards.json").read_bytes()
    write_corpus(tmp_path / "more", [pages("a_1", "a_2")])

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"the disk is full: .*shards\.json was not written"):
        index(str(tmp_path / "more"), home, others=Others.REPLACE)
    assert [(path.name, path.read_bytes()) for path in home.iterdir()] == [("shards.json", before)]


# The manifest itself


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a shard manifest"),
        ("[]", "is not a shard manifest"),
        ('{"version": 3}', "has format 3, this release reads 2"),
        ('{"version": 1, "source": "x", "shards": []}', "shards: List should have at least 1 item"),
        ('{"version": 1, "source": "x", "shard": []}', "shards: Field required"),
        ("[" * 10_000, "nested too deeply"),
        ('{"version": 1, "source": "x", "shards": ' + "[" * 10_000 + "]" * 10_000 + "}", "nested too deeply"),
        ('{"version": ' + "[" * 500 + "]" * 500 + "}", "has format .*, this release reads 2"),
        ('{"version": 1, "source": 5, "shards": {}}', "source: Input should be a valid string"),
        ('{"version": 1, "source": "x", "shards": [5]}', r"shards\.0: Input should be a valid dictionary"),
        ('{"version": 1, "source": "x", "shards": [], "a\\nb": 1}', r"is not a shard manifest"),
        ('{"version": 1, "source": 1' + "0" * 5000 + "}", "is not a shard manifest"),
        ("\ud800", "is not a shard manifest"),
    ],
)
def test_an_unusable_manifest_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "shards.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(SourceError, match=message) as caught:
        Manifest.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("file", ["a\\u0000b.arrow", "\\ud800.arrow"])
def test_a_manifest_that_names_no_possible_file(tmp_path: Path, file: str) -> None:
    home = indexed(tmp_path, pages("a_1"))
    path = home / "shards.json"
    path.write_text(re.sub('"file": ".*"', lambda _: f'"file": "{file}"', path.read_text()))
    with pytest.raises(SourceError, match=r"arrow cannot be opened|is not a shard manifest"):
        rows_of(home)


def test_keys_cannot_be_made_up(tmp_path: Path) -> None:
    home = indexed(tmp_path, pages("a_1"))
    path = home / "shards.json"
    path.write_text(path.read_text().replace("shard_00", "../../x"))
    with pytest.raises(SourceError, match=r"'../../x' is not a shard key"):
        Manifest.load(home)


def test_an_unknown_shard(tmp_path: Path) -> None:
    corpus = Corpus(home=str(indexed(tmp_path, pages("a_1"))))
    for read in (corpus.queries, lambda key: list(corpus.rows(key))):
        with pytest.raises(SourceError, match="there is no shard shard_07"):
            read("shard_07")


# The samples


def test_samples_are_the_corpus_of_a_home_without_one(tmp_path: Path) -> None:
    corpus = Corpus(home=str(tmp_path / "home"))
    rows = [row for key in corpus.manifest.keys for row in corpus.rows(key)]
    assert len(rows) == 12
    assert [row for row in rows if row.problem or not row.license] == []
    asked = [found for key in corpus.manifest.keys for found in corpus.queries(key)]
    assert len(asked) == 16
    assert {page for found in asked for page in found.ground_truth} == {row.page_id for row in rows}
    assert {found.type for found in asked} == {"text", "visual", "cross"}


def test_indexing_the_samples_again_changes_nothing(tmp_path: Path) -> None:
    again = index(str(SAMPLES), tmp_path)
    samples = Manifest.load(SAMPLES)
    files = [shard.model_copy(update={"file": f"corpus/{Path(shard.file).name}"}) for shard in again.shards]
    assert (files, again.queries, again.location) == (samples.shards, samples.queries, samples.location)
    for shard in again.shards:
        assert hashlib.sha256(Path(shard.file).read_bytes()).hexdigest() == shard.sha256


def test_every_sample_names_its_licence() -> None:
    notices = (SAMPLES / "README.md").read_text("utf-8")
    corpus = Corpus(home=str(SAMPLES))
    for key in corpus.manifest.keys:
        for row in corpus.rows(key):
            document, _, page = row.page_id.rpartition("_")
            assert document in notices
            assert f"_{page}`" in notices
    assert {path.name for path in (SAMPLES / "LICENSES").iterdir()} == {"GPL-2.0.txt", "GFDL-1.2.txt", "MPL-2.0.txt"}
