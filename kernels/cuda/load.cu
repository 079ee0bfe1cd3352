/*
 * Loads every kernel of a class before the first launch.
 *
 * By default CUDA loads a kernel when it is first used, and loading may need what is forbidden
 * while a stream captures. A round is captured the second time its shape comes. That round may have
 * a kernel which no round before it had, since another number of rows takes another kernel.
 *
 * To ask for a kernel's attributes is to load it: CUDA Programming Guide, "Lazy Loading",
 * https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/lazy-loading.html. The
 * shared memory that a kernel may have is set here too, once, so that launches need not set it.
 */
#include "kernels/cuda/common.cuh"

extern "C" cudaError_t sb_cuda_load_kernels(enum sb_dtype type)
{
    static cudaError_t (*const of_file[])(enum sb_dtype) = {
        sb_load_accept,      sb_load_act,         sb_load_attend_mma, sb_load_attend_reference,
        sb_load_compare,     sb_load_embed,       sb_load_gemm_mma,   sb_load_gemm_reference,
        sb_load_gemm_wgmma,  sb_load_norm,        sb_load_move,       sb_load_rope,
        sb_load_select,      sb_load_embed_quant, sb_load_gemm_quant, sb_load_gemm_quant_reference,
        sb_load_draft_gemm,  sb_load_draft_step,  sb_load_tile,       sb_load_mix,
        sb_load_experts_mma,
    };
    cudaError_t error = cudaSuccess;

    for (size_t i = 0; error == cudaSuccess && i < sizeof of_file / sizeof of_file[0]; i++)
        error = of_file[i](type);
    return error;
}
