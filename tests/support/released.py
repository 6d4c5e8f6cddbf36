"""Small tables with every hard case of a release, and releases of them."""

import hashlib
import io
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import yaml
from PIL import Image

from kopub.release.base import ReleaseDescription, ReleaseInput
from kopub.release.hub import HubPush, HubTarget
from kopub.release.local import LocalRelease
from kopub.release.publishing import publish
from kopub.search import metrics
from kopub.store import schemas
from kopub.store.schemas import HF_RELEASE, RETRIEVAL_SCORES
from kopub.store.table_store import ShardStore

DIM = 8
HOSTILE = "<script>alert(1)</script> | `x` ![i](http://e) \x00\x1b[31m\n# title"


def jpeg(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 10), (shade, 0, 0)).save(file, "JPEG")
    return file.getvalue()


def unit(position: int, dim: int = DIM) -> list[np.float16]:
    return list(np.eye(dim, dtype=np.float16)[position % dim])


def page_tables(shard: int, pages: int = 3, dim: int = DIM, license: str | None = "CC-BY-SA-4.0") -> ReleaseInput:
    """Return a shard of pages with images and texts, whose last page cannot be decoded."""
    ids = [f"doc{shard}_{n}" for n in range(1, pages + 1)]
    lost = ids[-1]
    ended = {
        page_id: {"state": "quarantined", "reason": "the image is damaged", "fingerprint": "f"}
        if page_id == lost
        else {"state": "ok", "reason": None, "fingerprint": "f"}
        for page_id in ids
    }
    box, grid = [1.0, 2.0, 30.5, 40.0], [10, 20, 305, 400]
    region = {"index": 0, "label": "image", "task": "skip", "score": 0.5, "bbox": box, "bbox_2d": grid, "polygon": None}
    second = {**region, "index": 1, "label": "text", "task": "text", "polygon": [[0.0, 0.0], [1.0, 1.0]]}
    read = {"state": "ok", "reason": None, "finish_reason": "stop", "attempts": 1, "seconds": 0.1, "bbox_2d": grid}
    read = {**read, "origin": "recognizer"}
    raw, layouts, readings, texts, vectors = [], [], [], [], []
    for at, page_id in enumerate(ids):
        known, ok = {"page_id": page_id, **ended[page_id]}, page_id != lost
        raw.append(
            {
                **known,
                "page_idx": at,
                "doc_id": f"doc{shard}",
                "page_no": at + 1,
                "sha256": f"{shard}{at}".zfill(64),
                "format": "PNG",
                "width": 100,
                "height": 200,
                "n_bytes": 9,
                "license": license,
                "source": "a.arrow",
            }
        )
        layouts.append({**known, "regions": [region, second] if ok else None})
        readings.append({
            **known,
            "page_idx": at,
            "regions": [
                {**read, "index": 0, "label": "image", "native_label": "image", "content": ""},
                {**read, "index": 1, "label": "text", "native_label": "text", "content": f"본문 {page_id}"},
            ] if ok else None,
            "markdown": f"![image](crops/{page_id}_0.jpg)\n\n본문 {page_id}" if ok else None,
            "image_crops": [{"path": f"crops/{page_id}_0.jpg", "bbox": box, "label": "image"}] if ok else None,
            "crop_images": [jpeg(at)] if ok else None,
        })  # fmt: skip
        compared = {"text_layer": "sound", "text_layer_distance": 0.25} if not at else {}
        texts.append({**known, "text": f"본문 {page_id}" if ok else None, "n_chars": 5 if ok else 0, **compared})
        vectors.append({**known, "vector": unit(at, dim) if ok else None})
    query = {
        "query_id": f"q{shard}",
        "query": "무엇?",
        "answer": "그것",
        "type": "text",
        "domain": "law",
        "ground_truth": [ids[0], ids[1]],
        "vector": unit(0, dim),
        "state": "ok",
        "reason": None,
        "fingerprint": "f",
    }
    return ReleaseInput(
        raw_pages=pa.Table.from_pylist(raw, schemas.RAW_PAGES),
        layout_regions=pa.Table.from_pylist(layouts, schemas.LAYOUT_REGIONS),
        ocr_results=pa.Table.from_pylist(readings, schemas.OCR_RESULTS),
        parsed_texts=pa.Table.from_pylist(texts, schemas.PARSED_TEXTS),
        corpus_image_embeddings=pa.Table.from_pylist(vectors, schemas.page_embeddings(dim)),
        corpus_text_embeddings=pa.Table.from_pylist(vectors, schemas.page_embeddings(dim)),
        query_embeddings=pa.Table.from_pylist([query], schemas.query_embeddings(dim)),
    )


def without_queries(made: ReleaseInput) -> ReleaseInput:
    return replace(made, query_embeddings=made.query_embeddings.slice(0, 0))


def changed(table: pa.Table, **columns: list) -> pa.Table:
    """Return `table` with the values of some columns replaced."""
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(name), pa.array(values, table.schema.field(name).type))
    return table


def about(*shards: str, **says: object) -> ReleaseDescription:
    known = {"title": "Pages", "source": "samples", "profile": "cpu"}
    return ReleaseDescription(**{**known, "shards": shards, **says})  # type: ignore[arg-type]


def release_of(folder: Path, *shards: ReleaseInput) -> LocalRelease:
    release = LocalRelease(folder=str(folder))
    for index, made in enumerate(shards):
        release.publish(f"shard_{index:02d}", made)
    release.finish(about(*(f"shard_{index:02d}" for index in range(len(shards)))))
    return release


def load(folder: Path, config: str | None = None) -> datasets.Dataset:
    return datasets.load_dataset(str(folder), config, split="train")  # type: ignore[return-value]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def front_matter(folder: Path) -> dict:
    return yaml.safe_load((folder / "README.md").read_text("utf-8").split("---\n")[1])


@dataclass
class ReleasedCorpus:
    """A release folder and its store; `says` overrides fields of its description."""

    home: Path
    shards: list[str] = field(default_factory=lambda: ["shard_00", "shard_01"])
    says: dict[str, object] = field(default_factory=dict)
    logged: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.home / "release"

    @property
    def about(self) -> ReleaseDescription:
        return about(*self.shards, **self.says)

    @property
    def files(self) -> dict[str, str]:
        """Return the SHA-256 of each file of the release by path."""
        return {path: hashlib.sha256(content).hexdigest() for path, content in contents(self.folder).items()}

    def put(self, *tables: ReleaseInput) -> None:
        """Release the tables as the first shards, and write empty retrieval scores."""
        contents = {shard: {"parsed_texts": f"texts of {shard}"} for shard in self.shards}
        for shard, made in zip(self.shards, tables, strict=False):
            files = LocalRelease(folder=str(self.folder)).publish(shard, made)
            table = pa.Table.from_pylist([asdict(file) for file in files], HF_RELEASE)
            self.store.write("hf_release", shard, table, {"recipe": "r", "made_from": json.dumps(contents[shard])})
        LocalRelease(folder=str(self.folder)).finish(self.about)
        metrics.HISTORY.write_scores(self.store, RETRIEVAL_SCORES.empty_table(), "i", "nothing to measure", contents)

    def push(self, repo: str, tag: str | None = None, create: bool = False) -> HubPush:
        target = HubTarget(repo=repo, create=create)
        release = LocalRelease(folder=str(self.folder))
        return publish(self.about, release, target, self.store, tag, self.logged.append)

    @property
    def store(self) -> ShardStore:
        return ShardStore(url=str(self.home / "store"))
