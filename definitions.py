"""The front door: what Dagster loads."""

import click
import dagster as dg

from resources.errors import KopubError
from resources.printable import visible


@dg.definitions
def definitions() -> dg.Definitions:
    """Assets and resources of the profile. Dagster prints a `click` error as one line, and any other as a traceback."""
    try:
        return _definitions()
    except KopubError as error:
        raise click.ClickException(visible(str(error))) from None


def _definitions() -> dg.Definitions:
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

    settings = load_settings()
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
    # Stages use all cores or the GPU by themselves; a process per step would only add its start-up.
    common = dg.Definitions(resources=settings.resources, executor=dg.in_process_executor)
    return dg.Definitions.merge(upgraded(assets, settings.upgrades), common)
