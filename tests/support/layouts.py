"""Comparison of page layouts."""

from collections.abc import Iterable, Mapping

import numpy as np

from kopub.layout.regions import Layout


def by_id(layouts: Iterable[Layout]) -> dict[str, Layout]:
    every = list(layouts)
    named = {layout.page_id: layout for layout in every}
    assert len(named) == len(every), "a page came out twice"
    return named


def assert_alike(found: Mapping[str, Layout], expected: Mapping[str, Layout]) -> None:
    """Assert that regions are equal within 0.01, because the batch changes boxes' last bits."""
    assert set(found) == set(expected)
    for page_id, layout in found.items():
        same = expected[page_id]
        assert (layout.state, layout.reason) == (same.state, same.reason)
        assert [(region.label, region.task) for region in layout.regions] == [(r.label, r.task) for r in same.regions]
        boxes = [[region.bbox for region in each.regions] for each in (layout, same)]
        assert np.allclose(*boxes, atol=0.01)
