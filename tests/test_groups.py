"""pytest-xdist runs the tests of a file or of a waiting group in one worker."""

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="all tests run in one process")
def test_a_test_has_its_group(request: pytest.FixtureRequest):
    assert request.node.nodeid.endswith("@test_groups")
