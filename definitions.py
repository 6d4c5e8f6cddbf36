"""The front door: what Dagster loads."""

import dagster as dg

from kopub_assets.corpus_image_embeddings import corpus_image_embeddings
from kopub_assets.corpus_text_embeddings import corpus_text_embeddings
from kopub_assets.hf_release import hf_release
from kopub_assets.layout_regions import layout_regions
from kopub_assets.ocr_results import ocr_results
from kopub_assets.parsed_texts import parsed_texts
from kopub_assets.query_embeddings import query_embeddings
from kopub_assets.raw_pages import raw_pages
from resources.settings import load_settings


@dg.definitions
def definitions() -> dg.Definitions:
    return dg.Definitions(
        assets=[
            raw_pages,
            layout_regions,
            ocr_results,
            parsed_texts,
            corpus_image_embeddings,
            corpus_text_embeddings,
            query_embeddings,
            hf_release,
        ],
        resources=load_settings().resources,
        # Stages use all cores or the GPU by themselves; a process per step would only add its start-up.
        executor=dg.in_process_executor,
    )
