/*
 * The CUDA backend. All of it is plain C over the CUDA runtime; device code is in kernels/cuda,
 * behind launch.h. Its files are floors: each includes and calls only what stands below it.
 *
 *   module                          the module's one export, and what it takes from the core
 *   ops                             the table of operations
 *   device_weights                  weights: into the device's memory, in the device's type
 *   quant_weights  quant_run        quantised ones, packed into tiles; products with them
 *   quant_pack
 *   mix_run                         a mixture of experts as launches
 *   draft_work                      what a draft has in addition: split products, steps as a launch
 *   device                          finding and opening a device; the numerics class
 *   gemm_run       prefill          who makes a product; who computes a prompt's attention
 *   gemm_plan      prefill_prove    tests of wgmma, cuBLASLt and cuDNN against the kernels that
 *                                   define the classes
 *   gemm_suggest   span_plans       what cuBLASLt suggests; plans of cuDNN's calls
 *   gemm_library                    one product by cuBLASLt
 *   cublaslt       sdpa_cudnn       NVIDIA's libraries (sdpa_absent where built without cuDNN)
 *                  cudnn
 *   library                         finding them at run time
 *   staging  graph                  pinned buffers for loading; rounds recorded and replayed
 *   weight_memory                   device memory of weights, the small ones cut from slabs
 *   memory                          device and pinned memory, copies
 *   cuda_stream                     the current device, errors, a stream and its first error
 *
 * Three objects go through it:
 *
 *   sb_device        one per model   (device.h)
 *   sb_exec          one per model of a pool   (ops.c)
 *   sb_cuda_stream   one per pool: the execs of its target and its draft share it, and its graphs
 */
#ifndef SB_CUDA_OPS_H
#define SB_CUDA_OPS_H

#include "backend/backend.h"

const struct sb_backend *sb_backend_cuda(void);

#endif
