#!/bin/sh
# Gives an empty volume of Dagster its settings and databases, then becomes the command: `start.sh COMMAND...`.
# A home that is not to be written, as that of a pod of Kubernetes, has what it needs.
set -eu
[ -w "$DAGSTER_HOME" ] || exec "$@"
settings=$(dirname "$0")/../local
[ -e "$DAGSTER_HOME/dagster.yaml" ] || cp "$settings/dagster.yaml" "$DAGSTER_HOME/"
python "$settings/instance.py"
exec "$@"
