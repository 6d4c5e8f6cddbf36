"""The dataset that others load: Parquet files by configuration, and a card that says how they were made."""

from dataclasses import asdict

import dagster as dg
import pyarrow as pa

from kopub_assets.common import Finished, Problems, blocking_check, over_shards, shard_recipe, table_asset
from kopub_assets.recipes import own_recipe
from resources.embedding.base import Embedder
from resources.layout.base import LayoutDetector
from resources.pages.corpus import Corpus
from resources.recognition.base import Recognizer
from resources.release.base import ReleaseAbout, ReleaseInput, ReleaseTarget
from resources.release.inventory import part_path
from resources.settings import load_settings
from resources.shards import ShardStore
from resources.tables import HF_RELEASE

OWN = own_recipe("hf_release")
EVERY_PAGE_RELEASED = "every_page_released"


@table_asset(
    "hf_release",
    "release",
    HF_RELEASE,
    OWN,
    kinds={"huggingface"},
    check_specs=[
        blocking_check(EVERY_PAGE_RELEASED, "hf_release", "Every page of the shard is in the release, with its state.")
    ],
)
def hf_release(
    context: dg.AssetExecutionContext,
    store: ShardStore,
    corpus: Corpus,
    layout: LayoutDetector,
    recognition: Recognizer,
    embedding: Embedder,
    release: ReleaseTarget,
):
    """The released files of a shard, with their hashes; the card is written last, from what the release holds.

    `datasets.load_dataset(folder, config)` opens it. Nothing leaves this machine unless the profile
    names a repository.
    """
    engines = {
        "layout_regions": layout,
        "ocr_results": recognition,
        "corpus_image_embeddings": embedding,
        "corpus_text_embeddings": embedding,
        "query_embeddings": embedding,
    }
    about = ReleaseAbout(
        title=release.title,
        license=release.license,
        source=corpus.manifest.name,
        profile=load_settings().profile_name,
        shards=corpus.manifest.keys,
        made_with={asset: engine.recipe() for asset, engine in engines.items()},
        limits=list(dict.fromkeys(limit for engine in engines.values() for limit in engine.limits)),
    )
    problems = Problems([EVERY_PAGE_RELEASED])

    def make(shard: str) -> Finished:
        with store.exclusive("hf_release", shard):
            made_by = shard_recipe(store, "hf_release", shard, OWN)
            tables = ReleaseInput.read(store, shard)
            files = release.publish(shard, tables)
            released = sum(file.rows or 0 for file in files if file.path == part_path("pages", shard))
            if released != tables.raw_pages.num_rows:
                problems.note(EVERY_PAGE_RELEASED, shard, f"{released} of {tables.raw_pages.num_rows} pages released")
            problems.stop_at(shard)
            table = pa.Table.from_pylist([asdict(file) for file in files], HF_RELEASE)
            changed = table.num_rows
            if store.has("hf_release", shard):
                before = set(store.read("hf_release", shard)["sha256"].to_pylist())
                changed = sum(file.sha256 not in before for file in files)
            store.update("hf_release", shard, table, {"recipe": made_by})
        context.log.info(f"hf_release {shard}: {changed} of {len(files)} files changed")
        metadata = {
            "dagster/row_count": len(files),
            "computed": changed,
            "kept": len(files) - changed,
            "bytes": sum(file.bytes for file in files),
            "files": dg.MetadataValue.table(
                [dg.TableRecord({"path": f.path, "rows": f.rows or 0, "bytes": f.bytes}) for f in files]
            ),
        }
        return Finished(made_by, metadata)

    yield from over_shards(context, problems, make, at_end=lambda: release.finish(about))
