"""pytest-xdist keeps the tests of a file together, and those that wait for other processes."""

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="all tests run in one process")
def test_a_test_has_its_group(request: pytest.FixtureRequest):
    assert request.node.nodeid.endswith("@test_groups")
