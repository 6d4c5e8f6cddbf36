#!/bin/sh
# Gives an empty volume of Dagster its settings and databases, then becomes the command: `start.sh COMMAND...`.
set -eu
settings=$(dirname "$0")/../local
[ -e "$DAGSTER_HOME/dagster.yaml" ] || cp "$settings/dagster.yaml" "$DAGSTER_HOME/"
python "$settings/instance.py"
exec "$@"
