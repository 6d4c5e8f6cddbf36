"""Questions that do not repeat the words of their page, asked of the samples."""

from pathlib import Path

import pytest

import kopub
from benchmarks.reading.text_quality import read_pages
from kopub.embedding.sentence import SentenceEmbedder
from kopub.errors import KopubError
from kopub.evaluation.questions import ALL, UNSEEN, KnownQuestion, read_questions, scored
from kopub.folders import SAMPLES
from kopub.search.options import Mode
from kopub.search.searcher import Searcher
from tests.cli.test_cli import run
from tests.search.test_search import Typist
from tests.support.harness import Platform
from tests.support.sources.corpora import page_image

QUESTIONS = Path(__file__).parents[2] / "benchmarks" / "finding" / "questions"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    texts = {row["id"]: row["text"] for row in read_pages(SAMPLES)}
    pages = [(page_id, page_image(at)) for at, page_id in enumerate(texts)]
    platform = Platform.of(tmp_path_factory.mktemp("questions"), [pages], [])
    platform.engines = {"embedding": SentenceEmbedder(), "recognition": Typist(texts=texts)}
    made = "raw_pages,layout_regions,ocr_results,parsed_texts,corpus_text_embeddings,passage_embeddings"
    platform.make(*made.split(","))
    return platform


def test_questions_in_other_words_find_their_page_of_the_samples(platform: Platform):
    searcher = Searcher(platform.store, ["shard_00"], SentenceEmbedder(), "cpu", platform.home / "search")
    questions = [*read_questions(QUESTIONS), KnownQuestion("김치찌개 맛있게 끓이는 법", "ko", ())]
    pages = kopub.open(platform.home).pages
    found = {(each.mode, each.group): each for each in scored(searcher, pages, questions)}
    assert (found[Mode.FUSION, ALL].answered, found[Mode.FUSION, ALL].unanswered) == (24, 37)
    for group, least in ((ALL, 0.78), (UNSEEN, 0.78), ("en", 0.75)):
        assert found[Mode.FUSION, group].ndcg >= least, found[Mode.FUSION, group]
        assert found[Mode.FUSION, group].ndcg > found[Mode.BM25, group].ndcg + 0.2
    assert (found[Mode.FUSION, ALL].precision or 0) >= 0.8
    assert (found[Mode.FUSION, ALL].recall or 0) >= 0.6


@pytest.mark.services
def test_the_command_asks_the_corpus_and_refuses_other_files(platform: Platform, tmp_path: Path):
    asked = run(platform.home, "kopub", "evaluate", "meaning", str(QUESTIONS / "samples.jsonl"), "--limit", "2")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert "nDCG@10" in asked.stdout
    (tmp_path / "q.jsonl").write_text('{"query": "무엇"}\n', "utf-8")
    for path, line in ((tmp_path / "q.jsonl", "line 1: a question needs query"), (tmp_path / "x", "cannot be read")):
        with pytest.raises(KopubError, match=line):
            read_questions(path)
