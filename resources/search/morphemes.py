"""Korean text as the words that carry its meaning. The morphological model is part of the package."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from resources.code_version import CodeVersion
from resources.fingerprints import table_fingerprint
from resources.freed_memory import give_back
from resources.store.schemas import RETRIEVAL_TOKENS

if TYPE_CHECKING:
    from kiwipiepy import Kiwi, Token

VERSION = CodeVersion("retrieval.morphemes", {1: "the first release"})
_CONTENT = re.compile(r"N[NR]|V[VA]|XR|MM|MAG|S[LHN]|W_")
"""Nouns, numerals, verbs, adjectives, roots, modifiers, Latin, hanja, numbers, addresses: no particles, no endings."""
_VERB = re.compile(r"V[VA]")


def tokens(texts: Iterable[str]) -> Iterator[list[str]]:
    """The content morphemes of each text, in order, case-folded."""
    for morphemes in _analysed(texts):
        yield [token.form.casefold() for token in morphemes if _CONTENT.match(token.tag)]


def query_tokens(queries: Iterable[str]) -> Iterator[list[str]]:
    """The content morphemes of each query; of a verb made a noun (`밝` + `기`) the noun too.

    In a sentence such a noun is one morpheme, and by itself, as people type it, it is analysed as two.
    """
    for morphemes in _analysed(queries):
        nouns = [
            f"{stem.form}{ending.form}"
            for stem, ending in pairwise(morphemes)
            if ending.tag == "ETN" and _VERB.match(stem.tag) and stem.end == ending.start
        ]
        yield [*(token.form.casefold() for token in morphemes if _CONTENT.match(token.tag)), *nouns]


def _analysed(texts: Iterable[str]) -> "Iterator[list[Token]]":
    composed = (unicodedata.normalize("NFKC", text) for text in texts)
    return cast("Iterator[list[Token]]", _kiwi().tokenize(composed))


@cache
def tokenizer() -> dict[str, str]:
    """What decides the tokens besides this module's code."""
    return {package: version(package) for package in ("kiwipiepy", "kiwipiepy_model")} | {"dictionary": "single words"}


TOKENS = "retrieval_tokens"
"""The name of the table in the store."""


def made_from(texts: pa.Table) -> dict[str, str]:
    """What decides the words of these texts, a table of `page_id` and `text`, as the metadata of their table."""
    return {"texts": table_fingerprint(texts), "version": str(VERSION.number), **tokenizer()}


def tokenised(texts: pa.Table) -> pa.Table:
    """The table of the words of these texts, in their order."""
    words = pa.array(list(tokens(texts["text"].to_pylist())), pa.list_(pa.string()))
    return pa.Table.from_arrays([texts["page_id"], words], schema=RETRIEVAL_TOKENS)


@cache
def _kiwi() -> "Kiwi":
    """Takes about a second, 330 MB on the way and 300 MB for good; where little is kept, 250 MB.

    The dictionary of typing errors is not asked. The one of names of several words would take another second and
    190 MB, and would hide `스토리` in `토이 스토리`; the scores are the same with and without it.
    """
    from kiwipiepy import Kiwi

    kiwi = Kiwi(load_typo_dict=False, load_multi_dict=False)
    # It is built to its end at the first text.
    kiwi.tokenize("")
    give_back()
    return kiwi
