"""The words of each page of a shard, as tables that are kept while the texts and the tokenizer are the same."""

import pyarrow as pa

from resources.fingerprints import table_fingerprint
from resources.retrieval import morphemes
from resources.store.schemas import RETRIEVAL_TOKENS

TOKENS = "retrieval_tokens"
"""The name of the table in the store."""


def made_from(texts: pa.Table) -> dict[str, str]:
    """What decides the words of these texts, a table of `page_id` and `text`, as the metadata of their table."""
    return {"texts": table_fingerprint(texts), "version": str(morphemes.VERSION.number), **morphemes.tokenizer()}


def tokenised(texts: pa.Table) -> pa.Table:
    """The table of the words of these texts, in their order."""
    tokens = list(morphemes.tokens(texts["text"].to_pylist()))
    return pa.Table.from_arrays([texts["page_id"], pa.array(tokens, pa.list_(pa.string()))], schema=RETRIEVAL_TOKENS)
