#!/bin/sh
# Tokens sampled from random logits by the library and by the logits processors of Hugging Face
# Transformers, which must be the same (compare_filters.py). The packages transformers, torch and
# numpy are those of the Python in $SB_TRANSFORMERS_VENV, or in build/transformers-venv.
. "$(dirname "$0")/../lib.sh"
python=${SB_TRANSFORMERS_VENV:-build/transformers-venv}/bin/python
if ! [ -x "$python" ]; then
    echo "SKIP compare_filters: no $python with transformers and torch"
    exit
fi
if "$python" -B test/cpu/compare_filters.py "$B/test/cpu/print_samples" >"$tmp/log" 2>&1; then
    indented "$tmp/log"
else
    cat "$tmp/log" >"$tmp/out"
fi
verdict compare_filters
exit $failed
