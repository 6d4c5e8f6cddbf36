"""The tables of the corpus by what they hold, for resources that read them and know no asset."""

from kopub_assets.corpus_image_embeddings import CorpusImageEmbeddings
from kopub_assets.corpus_text_embeddings import CorpusTextEmbeddings
from kopub_assets.layout_regions import LayoutRegions
from kopub_assets.ocr_results import OcrResults
from kopub_assets.parsed_texts import ParsedTexts
from kopub_assets.query_embeddings import QueryEmbeddings
from kopub_assets.raw_pages import RawPages
from resources.store.table import CorpusTables

CORPUS_TABLES = CorpusTables(
    pages=RawPages.table,
    regions=LayoutRegions.table,
    readings=OcrResults.table,
    texts=ParsedTexts.table,
    image_vectors=CorpusImageEmbeddings.table,
    text_vectors=CorpusTextEmbeddings.table,
    query_vectors=QueryEmbeddings.table,
)
