"""The dataset that others load: Parquet files by configuration, and a card that says how they were made."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import dagster as dg
import pyarrow as pa
from pydantic import Field

from kopub_assets.materialize.costs import Account
from kopub_assets.materialize.dagster_assets import (
    Finished,
    Metadata,
    Problems,
    blocking_check,
    over_shards,
    table_asset,
)
from kopub_assets.materialize.loop import Work
from kopub_assets.materialize.provenance import provenance
from kopub_assets.recipes import ENGINE, made_with, own_recipe
from resources.config.gates import Gates
from resources.config.settings import load_settings
from resources.embedding.base import Embedder
from resources.errors import GateClosed
from resources.layout.base import LayoutDetector
from resources.pages.corpus import Corpus
from resources.recognition.base import Recognizer
from resources.release.base import ASSETS, PageImages, ReleasedFile, ReleaseInput
from resources.release.card.describe import describe
from resources.release.card.fitness import fitness
from resources.release.dataset.released_files import list_parts
from resources.release.hub.publishing import publish
from resources.release.hub.repository import HubTarget, Pushed
from resources.release.local import LocalRelease
from resources.release.verify import verify
from resources.states import LOST
from resources.store import ledger
from resources.store.schemas import HF_RELEASE
from resources.store.shard_store import ShardStore

EVERY_PAGE_RELEASED = "every_page_released"
VERIFIED = "verified"
PUBLISH_TAG = "kopub/publish"
"""Run tag that asks for a push, as the field `push` does; for backfills, whose runs share one configuration."""


class Publishing(dg.Config):
    """Whether a run also pushes the release to the repository that the profile configures."""

    push: bool = Field(default=False, description="Push the release to hub.repo when it is made.")
    tag: str = Field(default="", description="Tag of the pushed release; made from its contents when left out.")


@table_asset(
    "hf_release",
    "release",
    HF_RELEASE,
    own_recipe("hf_release", load_settings().release),
    kinds={"huggingface"},
    after=["retrieval_scores"],
    check_specs=[
        blocking_check(EVERY_PAGE_RELEASED, "hf_release", "Every page of the shard is in the release, with its state."),
        blocking_check(VERIFIED, "hf_release", "Files, hashes, counts, columns and joins are right, and it loads."),
    ],
)
def hf_release(
    context: dg.AssetExecutionContext,
    config: Publishing,
    store: ShardStore,
    corpus: Corpus,
    layout: LayoutDetector,
    recognition: Recognizer,
    embedding: Embedder,
    release: LocalRelease,
    hub: HubTarget,
    gates: Gates,
):
    """The released files of a shard, with their hashes; the card is written last, from what the release holds.

    `datasets.load_dataset(folder, config)` opens it. Nothing leaves this machine unless the profile
    names a repository and the run asks for it: by `push`, or by the run tag `kopub/publish`.
    """
    own, spelt = own_recipe("hf_release", release), made_with("hf_release", release)
    sections = {"layout": layout, "recognition": recognition, "embedding": embedding}
    engines = {asset: sections[section] for asset, section in ENGINE.items() if section in sections}
    problems = Problems([EVERY_PAGE_RELEASED, VERIFIED])
    made: dict[str, Metadata] = {}

    def make(shard: str) -> Finished:
        started = time.monotonic()
        with store.exclusive("hf_release", shard):
            stamp = provenance(store, "hf_release", shard, own, spelt)
            runs = {asset: ledger.read(store, asset, shard) for asset in ASSETS}
            tables = ReleaseInput.read(store, shard, runs, corpus.unknown_pages)
            pages, known = corpus.manifest.shard(shard).rows, tables.raw_pages.num_rows
            if known != pages:
                says = f"raw_pages has {known} pages, the corpus has {pages}: materialize it again"
                problems.note(EVERY_PAGE_RELEASED, shard, says)
            problems.stop_at(shard)
            with _page_images(corpus, shard, tables.raw_pages, release.page_images) as images:
                files = release.publish(shard, tables, images)
            table = pa.Table.from_pylist([asdict(file) for file in files], HF_RELEASE)
            before = (
                set(store.read("hf_release", shard)["sha256"].to_pylist()) if store.has("hf_release", shard) else set()
            )
            written = {(file.path, file.sha256): 1.0 for file in files if file.sha256 not in before}
            changed = len(written)
            store.update("hf_release", shard, table, stamp.metadata(table))
            account = Account(store, "hf_release", context.run.run_id, own, gpus=0)
            account.enter(shard, Work(written, [], time.monotonic() - started))
        context.log.info(f"hf_release {shard}: {changed} of {len(files)} files changed")
        made[shard] = _files(files, changed)
        return Finished(stamp.recipe, made[shard])

    def finish() -> None:
        # Only now: what is said of the release depends on what this run put into it.
        about = describe(release, corpus, store, engines, gates, load_settings().profile_name)
        release.finish(about)
        folder = Path(release.folder)
        anew = any(metadata["computed"] for metadata in made.values())
        if found := list(verify(folder, made.keys(), load=anew)):
            for shard in made:
                problems.note(VERIFIED, shard, "; ".join(found))
            raise GateClosed("; ".join(found))
        closed = fitness(list_parts(folder), about).closed
        for metadata in made.values():
            metadata["keeps_it_off_the_hub"] = "; ".join(closed) or "nothing"
        if not (config.push or context.run.tags.get(PUBLISH_TAG, "").lower() == "true"):
            return
        if len(made) < len(context.partition_keys):
            context.log.warning("not pushed: a shard of this run failed")
        else:
            pushed = publish(about, release, hub, store, config.tag or None, context.log.info)
            for metadata in made.values():
                metadata.update(_push(pushed))

    yield from over_shards(context, problems, make, at_end=finish)


@contextmanager
def _page_images(corpus: Corpus, shard: str, raw_pages: pa.Table, wanted: bool) -> Iterator[PageImages | None]:
    """The images of the pages by their ids, straight from the source shard; the release checks their hashes."""
    if not wanted:
        yield None
        return
    pages = {page["page_id"]: page for page in raw_pages.select(["page_id", "page_idx", "state"]).to_pylist()}
    with corpus.reader(shard) as source:
        yield lambda page_id: None if pages[page_id]["state"] in LOST else source.bytes(pages[page_id]["page_idx"])


def _files(files: list[ReleasedFile], changed: int) -> Metadata:
    return {
        "dagster/row_count": len(files),
        "computed": changed,
        "kept": len(files) - changed,
        "bytes": sum(file.bytes for file in files),
        "files": dg.MetadataValue.table(
            [dg.TableRecord({"path": f.path, "rows": f.rows or 0, "bytes": f.bytes}) for f in files]
        ),
    }


def _push(pushed: Pushed) -> Metadata:
    return {
        "commit": dg.MetadataValue.url(pushed.url),
        "pushed_files": pushed.difference.files,
        "pushed_bytes": pushed.difference.bytes,
        "tag": pushed.tag or "none: the release lacks shards of the corpus",
    }
