#!/usr/bin/env bash
# Installs what GPU profiles need beyond `make setup`: `deploy/gpu.sh PYTHON`, or `make setup GPU=1`.
# It checks the driver before it downloads gigabytes; `kopub doctor` checks the rest.
set -euo pipefail
python=$1
oldest=580 # the oldest NVIDIA driver for CUDA 13, which the locked torch is built for

fail() {
    echo "$1; then type make setup GPU=1 again (docs/gpu.md)" >&2
    exit 1
}

[ "$(uname -s)" = Linux ] || fail "GPU profiles need Linux, under Windows that of WSL 2"
command -v nvidia-smi > /dev/null || fail "there is no nvidia-smi: install NVIDIA's driver, $oldest or newer"
drivers=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader) || fail "nvidia-smi says: $drivers"
driver=${drivers%%$'\n'*} # nvidia-smi prints one line per card
[ "${driver%%.*}" -ge "$oldest" ] || fail "the driver is $driver: install $oldest or newer"
echo "Driver $driver. Installing torch and vLLM: several GB to fetch, about 10 GB on disk, 5 minutes and more"
deploy/pip.sh "$python" --constraint requirements.lock --editable '.[gpu]'
"$(dirname "$python")/kopub" profiles
echo "next: export KOPUB_PROFILE=NAME, then kopub pull, kopub doctor, kopub run FOLDER (docs/gpu.md)"
