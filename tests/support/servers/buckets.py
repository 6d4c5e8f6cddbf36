"""Buckets of S3 servers for tests: of the double, and of a real Ceph."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def bucket(environment: dict[str, str], name: str) -> Iterator[str]:
    """The URL of a new bucket of the server that `environment` names, for this process too."""
    from s3fs import S3FileSystem

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        for key, value in environment.items():
            patch.setenv(key, value)
        S3FileSystem.clear_instance_cache()
        S3FileSystem().mkdir(name)
        yield f"s3://{name}"
        S3FileSystem.clear_instance_cache()
