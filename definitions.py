"""The front door: what Dagster loads."""

import dagster as dg

from kopub_assets import command_line
from kopub_assets.corpus_image_embeddings import corpus_image_embeddings
from kopub_assets.corpus_text_embeddings import corpus_text_embeddings
from kopub_assets.hf_release import hf_release
from kopub_assets.layout_regions import layout_regions
from kopub_assets.ocr_results import ocr_results
from kopub_assets.parsed_texts import parsed_texts
from kopub_assets.query_embeddings import query_embeddings
from kopub_assets.raw_pages import raw_pages
from kopub_assets.retrieval_scores import retrieval_scores
from kopub_assets.upgrades.sensor import upgraded
from resources.config.settings import load_settings
from resources.store.reachable import require_reachable


@dg.definitions
def definitions() -> dg.Definitions:
    settings = load_settings()
    if command_line.at_terminal():
        require_reachable(settings.store.url)
    assets = [
        raw_pages,
        layout_regions,
        ocr_results,
        parsed_texts,
        corpus_image_embeddings,
        corpus_text_embeddings,
        query_embeddings,
        retrieval_scores,
        hf_release,
    ]
    names = [asset.key.to_user_string() for asset in assets]
    command_line.install(names, settings.corpus.manifest.keys)
    # Stages use all cores or the GPU by themselves; a process per step would only add its start-up.
    common = dg.Definitions(resources=settings.resources, executor=dg.in_process_executor)
    return dg.Definitions.merge(upgraded(assets, settings.upgrades), common)
