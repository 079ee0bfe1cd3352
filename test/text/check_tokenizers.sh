#!/bin/sh
# Random strings through the library's tokenizers and through the reference implementations, which
# must give the same ids and texts (compare_tokenizers.py). The tokenizers are those below
# test/data, ../shared and build; others are made of known models' patterns, of every construct of
# Oniguruma's syntax, and of random patterns. The reference implementations are the Python packages
# tokenizers 0.23 and sentencepiece, in $SB_TOKENIZERS_VENV or where `make setup-tokenizers` puts
# them.
#   SB_TOKENIZERS_FULL=1    30,000 strings for each instead of 1,000: minutes instead of seconds
. "$(dirname "$0")/../lib.sh"
python=${SB_TOKENIZERS_VENV:-build/tokenizers-venv}/bin/python
if ! [ -x "$python" ]; then
    echo "SKIP compare_tokenizers: no $python (make setup-tokenizers)"
    exit
fi
for package in tokenizers sentencepiece; do
    if ! "$python" -B -c "import $package" 2>/dev/null; then
        echo "SKIP compare_tokenizers: $python lacks $package (make setup-tokenizers)"
        exit
    fi
done
how='--strings 1000 --patterns 1000'
[ -z "$SB_TOKENIZERS_FULL" ] || how='--strings 30000 --patterns 20000'
folders=test/data/tokenizers
for folder in "${SPECBATCH_DATA:-../shared/data}/tokenizers" build/tokenizer_*; do
    if [ -d "$folder" ]; then
        folders="$folders $folder"
    else
        echo "SKIP compare_tokenizers_in_$folder: not there"
    fi
done
"$python" -B test/text/compare_tokenizers.py "$B/test/text/tokenize" $how $folders
