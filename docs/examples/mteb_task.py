"""A release as a task of MTEB: `python mteb_task.py RELEASE MODEL` scores a text embedding model on its questions.

RELEASE is a folder or a repository of the Hub, MODEL a name that mteb knows. The pictures of KoPub itself are mteb's
own task SDSKoPubVDRT2IRetrieval; this one compares a question with the texts of the pages.
"""

import sys
from typing import Any

import mteb
from mteb.tasks.retrieval.kor.sds_kopub_vdr_t2i_retrieval import SDSKoPubVDRT2IRetrieval


class ReleaseRetrieval(SDSKoPubVDRT2IRetrieval):
    metadata = SDSKoPubVDRT2IRetrieval.metadata.model_copy(
        update={"name": "KoPubReleaseRetrieval", "category": "t2t", "modalities": ["text"]}
    )

    def __init__(self, release: str) -> None:
        super().__init__()
        self.release = release

    def load_data(self, *_: Any, **__: Any) -> None:
        from datasets import load_dataset

        corpus, queries, judgements = (
            load_dataset(self.release, config, split="train") for config in ("corpus", "queries", "qrels")
        )
        relevant: dict[str, dict[str, int]] = {}
        for row in judgements.to_list():
            relevant.setdefault(row["query-id"], {})[row["corpus-id"]] = row["score"]
        texts: Any = {
            "corpus": corpus.select_columns(["id", "text"]),
            "queries": queries.select_columns(["id", "text"]),
        }
        split: Any = {**texts, "relevant_docs": relevant, "top_ranked": None}
        self.dataset = {"default": {"test": split}}
        self.data_loaded = True


if __name__ == "__main__":
    release, name = sys.argv[1:]
    for result in mteb.evaluate(mteb.get_model(name), ReleaseRetrieval(release)).task_results:
        print(f"{name}: nDCG@10 {result.get_score():.3f}")
