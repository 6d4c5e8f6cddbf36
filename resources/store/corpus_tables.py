"""The tables of the store: each asset's, by what it holds. An asset's name stands here and nowhere else.

An asset writes its table, and search, release and diff read it: the table is what they agree on, so it belongs to
neither.
"""

from resources.store import schemas
from resources.store.table import CorpusTables, Table

TABLES = CorpusTables(
    pages=Table("raw_pages", schemas.RAW_PAGES),
    regions=Table("layout_regions", schemas.LAYOUT_REGIONS),
    readings=Table("ocr_results", schemas.OCR_RESULTS),
    texts=Table("parsed_texts", schemas.PARSED_TEXTS),
    image_vectors=Table("corpus_image_embeddings", schemas.page_embeddings),
    text_vectors=Table("corpus_text_embeddings", schemas.page_embeddings),
    query_vectors=Table("query_embeddings", schemas.query_embeddings, key="query_id"),
)
FIGURE_NOTES = Table("figure_notes", schemas.FIGURE_NOTES)
FIGURE_VECTORS = Table("figure_embeddings", schemas.figure_embeddings)
FIGURE_TABLES = (FIGURE_NOTES, FIGURE_VECTORS)
"""Made only where a profile wants them: no corpus has to have them."""
VECTOR_TABLES = {"text": TABLES.text_vectors, "image": TABLES.image_vectors, "figure": FIGURE_VECTORS}
"""The table of each kind of vector that a query is compared with."""
RELEASED_FILES = Table("hf_release", schemas.HF_RELEASE, key="path")
SCORES = Table("retrieval_scores", schemas.RETRIEVAL_SCORES, key="retriever")
OCR_SCORES = Table("ocr_scores", schemas.OCR_SCORES, key="metric")
BENCHMARKS = "benchmark_scores"
"""The asset that evaluates the benchmarks of the gates; its tables lie in homes of their own."""
