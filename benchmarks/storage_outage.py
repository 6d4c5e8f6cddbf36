"""Check a run whose object storage does not answer for a minute.

    python -m benchmarks.storage_outage PID [--seconds 60]

PID is the gateway at `AWS_ENDPOINT_URL`: it is stopped (SIGSTOP) when the first pages are read, and continues after
`--seconds`. The run makes all tables of a corpus of tiny pages. Prints whether the run succeeded, how long it took, and
the pages that are lost, doubled or wrong.
"""

import argparse
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from uuid import uuid4

from benchmarks.synthetic_corpus import faults, make_home, settings_of, write

PAGES, SHARDS, SECONDS_A_PAGE = 16, 4, 0.5
BUCKET = "outage"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pid", type=int)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), arguments.pid, arguments.seconds)


def run(folder: Path, pid: int, seconds: float) -> None:
    import dagster as dg
    import s3fs

    from kopub_assets.definitions import definitions_of
    from kopub_assets.running.execution import execute

    home = make_home(folder / "home", write(folder / "source", PAGES, SHARDS, 4))
    os.environ["DAGSTER_HOME"] = str(home / "dagster")
    fs = s3fs.S3FileSystem()
    if not fs.exists(BUCKET):
        fs.mkdir(BUCKET)
    url = f"s3://{BUCKET}/{uuid4().hex}"
    settings = settings_of(home, SECONDS_A_PAGE, url)
    definitions = definitions_of(settings)
    names = [key.to_user_string() for key in definitions.resolve_asset_graph().materializable_asset_keys]
    outage = threading.Thread(target=_stop, args=(pid, seconds, url), daemon=True)
    outage.start()
    started = time.monotonic()
    with dg.DagsterInstance.get() as instance:
        failed = execute(definitions, instance, names, settings.corpus.manifest.keys)
    took = time.monotonic() - started
    print(f"{'; '.join(failed) or 'succeeded'}: {took:.0f} s, of which {seconds:.0f} s without storage")
    print(f"{PAGES} pages in {SHARDS} shards: {faults(settings)}")


def _stop(pid: int, seconds: float, url: str) -> None:
    """Stop the gateway once a page is read, and let it continue later."""
    from kopub.store.table_store import TableStore

    store = TableStore(url)
    while not store.published("layout_regions"):
        time.sleep(0.2)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main()
