"""Every test has a home of its own; the partitions are those of the samples, shard_00 and shard_01."""

import os
import tempfile

# Read when the assets are imported, so it is set before any test module is.
for name in [name for name in os.environ if name.startswith("KOPUB_") and not name.startswith("KOPUB_TEST_")]:
    del os.environ[name]
os.environ["KOPUB_HOME"] = tempfile.mkdtemp(prefix="kopub-tests-")
