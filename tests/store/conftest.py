"""Buckets for the tests that share a store between processes."""

import uuid
from collections.abc import Iterator

import pytest

from tests.doubles.s3 import BUCKET, S3Double
from tests.support.servers.buckets import bucket
from tests.support.servers.ceph import ceph, lacking


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the environment variables of a real Ceph where it is installed, else of the double."""
    if getattr(request, "param", "") == "double" or lacking():
        with S3Double() as double:
            yield double.environment
    else:
        with ceph(tmp_path_factory.mktemp("ceph")) as environment:
            yield environment


@pytest.fixture
def url(server: dict[str, str]) -> Iterator[str]:
    with bucket(server, f"{BUCKET}-{uuid.uuid4().hex[:8]}") as url:
        yield url
