# What a run on a GPU needs, or one line that says what is missing: sourced by check_gpu.sh and bench_gpu.sh.

# gpu_missing NAME: prints FAIL and is true where this build or this machine cannot run on a GPU.
gpu_missing() {
    if [ ! -e "$B/libspecbatch_cuda.so" ]; then
        echo "FAIL $1: no CUDA module in this build (is nvcc there? make CUDA=1)"
    elif ! nvidia-smi -L >/dev/null 2>&1; then
        echo "FAIL $1: no GPU on this machine (nvidia-smi -L finds none)"
    else
        return 1
    fi
}
