"""The content words of Korean texts and queries, as morphemes."""

import ctypes
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, cast

from kopub.fingerprints import CodeVersion
from kopub.processes import ChildWorker, LostAnswer, answer_requests, give_back

if TYPE_CHECKING:
    from kiwipiepy import Kiwi, Token

VERSION = CodeVersion(
    "retrieval.morphemes",
    {1: "the first release", 2: "compounds count whole and in their parts, numbers without separators"},
)
_CONTENT = re.compile(r"N[NR]|V[VA]|XR|MM|MAG|S[LHN]|W_")
"""Tags of nouns, numerals, verbs, adjectives, roots, modifiers, Latin, hanja, numbers and addresses, without particles
and endings."""
_VERB = re.compile(r"V[VA]")
_NOUN = re.compile(r"NN[GP]|XSN|XPN|SL")
_SEPARATOR = re.compile(r"(?<=\d),(?=\d)")


def tokens(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the content words of each text, in order, case-folded."""
    return map(_content_words, _analyse(texts))


def query_tokens(queries: Iterable[str]) -> Iterator[list[str]]:
    """Yield the content words of each query.

    For a verb turned into a noun (`밝` + `기`), the noun is included too: in a sentence it is one morpheme, but alone,
    as people type it, it is analysed as two.
    """
    for morphemes in _analyse(queries):
        words = _content_words(morphemes)
        for stem, ending in pairwise(morphemes):
            if ending.tag == "ETN" and _VERB.match(stem.tag) and stem.end == ending.start:
                words.append(f"{stem.form}{ending.form}")
        yield words


_CHILD_SECONDS = 60.0


def query_words(query: str) -> Callable[[], list[str]]:
    """Begin to find the words of a query; return the function that awaits them.

    Loading the analyser takes over a second, in which no other thread of its process goes on. Where it is not loaded,
    another process finds the words, while this one loads what else a search needs.
    """

    def here() -> list[str]:
        return next(query_tokens([query]))

    def there() -> list[str]:
        worker = ChildWorker(f"{__name__}:answer_queries", _CHILD_SECONDS)
        try:
            return worker.ask(query)
        except (LostAnswer, OSError):
            return here()
        finally:
            worker.end()

    if korean_analyser.cache_info().currsize:
        return here
    try:
        return ThreadPoolExecutor(1, "query_words").submit(there).result
    except RuntimeError:  # the machine has no room for one more thread
        return here


def answer_queries(connection: Connection) -> None:
    """Send the content words of each query that comes, in a process of its own."""
    answer_requests(connection, lambda query: next(query_tokens([query])))


def _content_words(morphemes: "Sequence[Token]") -> list[str]:
    """Return the content morphemes, with the compounds that they form.

    Nouns without a blank between them count together too (`회의` + `록`), because the analyser parts a compound in one
    sentence and not in another. A number counts without the separators of its thousands.
    """
    words: list[str] = []
    compound: list[Token] = []
    for token in [*morphemes, None]:
        is_noun = token is not None and bool(_NOUN.match(token.tag))
        if compound and not (token and is_noun and compound[-1].end == token.start):
            if len(compound) > 1:
                words.append("".join(part.form for part in compound).casefold())
            compound = []
        if token and is_noun:
            compound.append(token)
        if token and _CONTENT.match(token.tag):
            words.append(_SEPARATOR.sub("", token.form).casefold())
    return words


def _analyse(texts: Iterable[str]) -> "Iterator[list[Token]]":
    composed = (unicodedata.normalize("NFKC", text) for text in texts)
    return cast("Iterator[list[Token]]", korean_analyser().tokenize(composed))


@cache
def tokenizer() -> dict[str, str]:
    """Return the versions and settings that determine the tokens, besides this code."""
    packages = {package: metadata.version(package) for package in ("kiwipiepy", "kiwipiepy_model")}
    return packages | {"dictionary": "single words"}


@cache
def korean_analyser() -> "Kiwi":
    """Load the Korean morphological analyser, once for search and documents.

    This takes about a second, and 330 MB temporarily and 250 MB permanently. The dictionary of typing errors is not
    used. The dictionary of multi-word names would take another second and 190 MB, and would hide `스토리` in
    `토이 스토리`; the scores are the same with and without it.
    """
    # Its allocator reads this when it is loaded, and would otherwise keep 50 MB of freed memory.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")
    from kiwipiepy import Kiwi

    kiwi = Kiwi(load_typo_dict=False, load_multi_dict=False)
    # The analyser is fully built only at the first text.
    kiwi.tokenize("")
    give_back()
    return kiwi


def _forget_analyser() -> None:
    """Let a forked process load its own analyser if this one has threads."""
    if korean_analyser.cache_info().currsize and korean_analyser().num_workers:
        # Its destructor would wait for threads that do not exist in the fork, so it is kept while the process lives.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(korean_analyser()))
        korean_analyser.cache_clear()


# A text given to missing threads would be waited for forever, and multiprocessing forks unless told otherwise.
os.register_at_fork(after_in_child=_forget_analyser)
