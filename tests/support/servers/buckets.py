"""Buckets on S3 servers, both the double and a real Ceph."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def bucket(environment: dict[str, str], name: str) -> Iterator[str]:
    """Yield the URL of a new bucket, with this process's variables set to `environment`."""
    from s3fs import S3FileSystem

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        for key, value in environment.items():
            patch.setenv(key, value)
        S3FileSystem.clear_instance_cache()
        S3FileSystem().mkdir(name)
        yield f"s3://{name}"
        S3FileSystem.clear_instance_cache()
