#!/usr/bin/env bash
# pip install with a few lines of progress instead of hundreds or none: `deploy/pip.sh PYTHON ARGUMENTS`.
set -euo pipefail
python=$1
shift
PYTHONUNBUFFERED=1 "$python" -m pip install --progress-bar off "$@" | awk '
    /^ *Collecting / && ++found % 40 == 0 { print "  " found " packages found"; fflush() }
    /^Installing collected packages/ { print "  unpacking " NF - 3 " packages"; fflush() }
    /^Successfully installed/ { print "  installed"; fflush() }'
