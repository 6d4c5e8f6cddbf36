#!/bin/sh
# Installs Tesseract's Korean and English data if they are missing: `deploy/tessdata.sh PYTHON`.
# The engine itself comes with the Python package. Without root, it unpacks Debian's packages into the
# virtual environment.
set -u
python=$1

have() { "$python" -c 'from kopub.recognition.tesseract.recognizer import tessdata_folder; tessdata_folder()' 2> /dev/null; }

unpack_into() {
    folder=$(mktemp -d)
    (cd "$folder" && apt-get download -qq tesseract-ocr-kor tesseract-ocr-eng && for deb in ./*.deb; do
        dpkg -x "$deb" "$1"
    done)
    rm -r "$folder"
}

have && exit 0
echo "Tesseract's Korean and English data are missing; installing them."
if command -v apt-get > /dev/null && [ "$(id -u)" = 0 ]; then
    # Another installation may be under way, as a machine begins one by itself after its start. It is waited for.
    while LC_ALL=C apt-get update -qq 2>&1 | grep "get lock"; do sleep 5; done
    apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 tesseract-ocr-kor tesseract-ocr-eng
elif command -v apt-get > /dev/null; then
    unpack_into "$("$python" -c 'import sys; print(sys.prefix)')"
elif command -v brew > /dev/null; then
    brew install --quiet tesseract-lang
fi
have && exit 0
"$python" -c 'from kopub.recognition.tesseract.recognizer import install; print(f"They could not be installed here. Type: {install()}")' >&2
exit 1
