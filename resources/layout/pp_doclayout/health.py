"""What the pages of one call say about the model."""

from collections import Counter

from resources.errors import EngineError
from resources.layout.regions import PageLayout
from resources.states import State

NO_REGION = "no region was found on a page with ink"


class Health:
    """Tells a model that fails on every page from single pages that fail."""

    def __init__(self) -> None:
        self._worked = False
        self._failed: list[PageLayout] = []

    def add(self, layout: PageLayout) -> None:
        self._worked |= layout.state in {State.OK, State.BLANK}
        if layout.state is State.FAILED and not self._worked:
            self._failed.append(layout)

    def check(self) -> None:
        """Raise `EngineError` when pages failed and none came out.

        One page without regions may be unusual; several mean that the model finds nothing.
        """
        if self._worked or not self._failed:
            return
        reason, count = Counter(layout.reason for layout in self._failed).most_common(1)[0]
        if len(self._failed) > 1 or NO_REGION not in str(reason):
            raise EngineError(
                f"layout came out for none of {len(self._failed)} pages ({count} times: {reason}); "
                "check the weights, layout.dtype and layout.threshold"
            )
