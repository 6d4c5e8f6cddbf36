"""The first page: how much there is, what to ask, what to look at."""

from collections.abc import Sequence

from kopub_web.asked import Asked, Shown
from kopub_web.elements.cards import counted_lists, document_cards
from kopub_web.room import CALLS, Room
from kopub_web.scores import READING
from resources.errors import KopubError
from resources.states import State

_QUESTIONS, _DOCUMENTS = 6, 12


def home(room: Room, asked: Asked) -> Shown:
    now, t = room.now, asked.t
    corpus = now.corpus
    scores = [
        {
            "name": t(f"home.{score.kind}", benchmark=score.of, retriever=score.of, metric=score.metric),
            "value": score.value,
            "samples": score.samples,
        }
        for score in now.scores
    ]
    notes = [t.sentence(note)[0] for note in corpus.notes]
    return Shown(
        "home.html.jinja",
        {
            "corpus_name": room.name,
            "notes": notes if len(corpus.pages) else [t("home.nothing"), *notes],
            "documents_count": len(corpus.documents),
            "pages_count": len(corpus.pages),
            "lists": counted_lists(now, CALLS),
            "questions": _questions(room),
            "scores": scores,
            "evaluated": any(score.kind == READING for score in now.scores),
            "versions": len(now.replaced),
            "documents": document_cards(corpus.documents[:_DOCUMENTS], asked),
            "tables": now.tables,
            "states": [state.value for state in State],
            "shards_count": len(room.settings.corpus.manifest.keys),
        },
    )


def _questions(room: Room) -> Sequence[str]:
    """Questions that came with the corpus, of its first shards that have some."""
    corpus = room.settings.corpus
    found: list[str] = []
    try:
        for shard in corpus.manifest.keys if corpus.manifest.queries else ():
            found += [query.query for query in corpus.queries(shard)]
            if len(found) >= _QUESTIONS:
                break
    except KopubError:
        # A file of questions that changed is no reason to show nothing; a run says it.
        return []
    return list(dict.fromkeys(found))[:_QUESTIONS]
