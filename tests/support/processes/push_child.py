"""A process that pushes a release, for a test that kills it:

python -m tests.support.processes.push_child HOME REPOSITORY
"""

import sys
from pathlib import Path

from tests.support.released import ReleasedCorpus

if __name__ == "__main__":
    ReleasedCorpus(Path(sys.argv[1])).push(sys.argv[2])
