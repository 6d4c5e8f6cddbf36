"""The protocol of rerankers, which read question and page together, and one that does nothing."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from kopub.engine import Engine
from kopub.fingerprints import CodeVersion

if TYPE_CHECKING:
    # This would load the client of servers into every command.
    from kopub.reranking.pairs import Pair, Relevance

Seen = Literal["image", "text", "both"]


class Reranker(Engine):
    """Scores how well a page answers a question, by reading both at once."""

    off: ClassVar[str | None] = None
    """Why the engine scores nothing; None for an engine that scores."""

    speed_only: ClassVar[frozenset[str]] = frozenset({"depth", "search_seconds"})

    depth: int = Field(default=50, ge=1, le=1000, description="Pages of a question that are scored: the first found.")
    sees: Seen = Field(default="image", description="What is read of a page: its image, its text, or both.")
    search_seconds: float = Field(
        default=20.0,
        gt=0,
        description="Longest wait of a search, once the server runs; it then shows the pages as they were found.",
    )

    def boot(self) -> None:
        """Start what the next question needs besides the server, if anything; do not wait."""

    @abstractmethod
    def score(self, pairs: Iterable["Pair"]) -> Iterator["Relevance"]:
        """Yield one `Relevance` for each pair, in any order, while taking pairs lazily.

        A pair that cannot be scored has a reason instead. Raises `EngineError` if the engine cannot run at all.
        """


class NoReranking(Reranker):
    """Scores nothing: pages stay as they were found, and no server is started for it."""

    code_version: ClassVar[CodeVersion] = CodeVersion("reranking.none", {1: "the first release"})
    off: ClassVar[str | None] = "reranking.engine is none"

    def score(self, pairs: Iterable["Pair"]) -> Iterator["Relevance"]:
        return iter(())
