"""The runs of the reading scores: which is compared with which."""

from resources.evaluation.runs.comparison import compare, significant_drops
from resources.search.scores import History
from resources.store.corpus_tables import OCR_SCORES
from resources.store.schemas import OCR_RUNS

HISTORY = History(
    scores=OCR_SCORES,
    runs="ocr_runs",
    members="ocr_samples",
    member_column="sample",
    schema=OCR_RUNS,
    compare=compare,
    drops=significant_drops,
    member="samples",
)
"""A run is compared sample by sample, with one that was scored in the same way against the same gold."""
