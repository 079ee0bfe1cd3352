#!/bin/sh
# Installs the systems that `make peers` measures beside this library into a virtual environment by
# pip: setup_peers.sh FOLDER. `make setup-peers` runs it. Each of them is optional: this script says
# which cannot be installed, and `make peers` skips those. Versions are pinned, so that figures of
# different days are of the same systems.
# PyPI's torch brings CUDA with it (5 GB); PIP_INDEX_URL or PIP_EXTRA_INDEX_URL can name a place
# that has a smaller build. llama.cpp's sources come with llama-cpp-python and are compiled for this
# machine's instruction sets, which takes ten minutes on two cores.
folder=${1:?usage: setup_peers.sh FOLDER}
here=$(dirname "$0")
python=$folder/bin/python
[ -x "$python" ] || ${PYTHON:-python3} -m venv "$folder" || exit 1

# install NAME ARGUMENTS...: installs one system with these arguments of pip.
install() {
    name=$1
    shift
    echo "setup-peers: $name: pip install $*"
    "$python" -m pip install -q --disable-pip-version-check "$@" || {
        echo "setup-peers: $name could not be installed; make peers will skip it"
        return 1
    }
}

# build_llama FLAGS: builds libllama for this machine with these flags of the compiler. pip would
# take the package from its cache, whatever the flags of that build.
build_llama() {
    CMAKE_ARGS="-DGGML_NATIVE=ON -DCMAKE_C_FLAGS='$1' -DCMAKE_CXX_FLAGS='$1'" \
        install llama-cpp-python --no-binary llama-cpp-python --no-cache-dir --force-reinstall \
        llama-cpp-python==0.3.36
}

# has_amx: whether libllama was built with AMX.
has_amx() {
    "$python" -c 'import sys, llama_cpp
sys.exit(b"AMX_INT8 = 1" not in llama_cpp.llama_print_system_info())' 2>/dev/null
}

# crashes: whether libllama fails at a prompt with a quantised file.
crashes() {
    file=$folder/quantised.gguf
    "$python" "$here/to_gguf.py" "$here/../../../examples/demo/target" "$file" q8_0 || return 1
    ! "$python" -c 'import sys, llama_cpp
llama_cpp.Llama(sys.argv[1], n_ctx=64, verbose=False).eval([1] * 32)' "$file" >/dev/null 2>&1
    status=$?
    rm -f "$file"
    return $status
}

install "GGUF export, for llama.cpp and OpenVINO" gguf==0.19.0
install "OpenVINO" openvino-genai==2026.4.1.0
install llama.cpp xllamacpp==2026.10.11549
install Transformers torch==2.15.0 transformers==5.23.0
# The paper's code is written for this version; it goes where only that peer looks.
install "the paper's code" --target "$folder/transformers-4.51.3" --upgrade transformers==4.51.3

# llama.cpp multiplies quantised matrices by AMX where the compiler says that there is any. Some
# virtual machines show the instructions and do not let a program use them.
rm -f "$folder/without-amx"
if build_llama "" && has_amx && crashes; then
    echo "setup-peers: llama.cpp crashes on a quantised file here; building it without AMX"
    build_llama "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" && touch "$folder/without-amx"
fi
