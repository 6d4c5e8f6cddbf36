#!/bin/sh
# Puts settings and databases into an empty Dagster home, then executes the command: `start.sh COMMAND...`.
# A home that is not writable, such as that of a Kubernetes pod, already has what it needs.
set -eu
[ -w "$DAGSTER_HOME" ] || exec "$@"
settings=$(dirname "$0")/../local
[ -e "$DAGSTER_HOME/dagster.yaml" ] || cp "$settings/dagster.yaml" "$DAGSTER_HOME/"
python "$settings/instance.py"
exec "$@"
