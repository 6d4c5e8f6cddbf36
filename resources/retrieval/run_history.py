"""The runs of the retrieval scores: which is compared with which."""

from resources.retrieval.comparison import compare, significant_drops
from resources.retrieval.scoring import RUN
from resources.scores.history import ALL, Contents, History, Run
from resources.store.corpus_tables import SCORES as SCORES_TABLE

__all__ = ["ALL", "HISTORY", "SCORES", "Contents", "Run"]

SCORES = SCORES_TABLE.name
"""The asset of the scores."""

HISTORY = History(
    scores=SCORES_TABLE,
    runs="retrieval_runs",
    members="retrieval_pages",
    member_column="page_id",
    schema=RUN,
    compare=compare,
    drops=significant_drops,
    member="pages",
)
"""A run is compared query by query, with one that searched the same pages."""
