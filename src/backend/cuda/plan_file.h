/*
 * The file of a model's option plan_file: verdicts on the time of products, which are kept from
 * process to process.
 *
 *     specbatch plans 2
 *     NVIDIA H200, sm_90, 132 multiprocessors, driver 13000, cublasLt 130100, specbatch 0.2.0
 *     bf16 4096 4096 0 128 mma
 *     bf16 4096 12288 0 192 wgmma
 *     bf16 24576 4096 12288 128 cublasLt 42 18 24 0 1 2
 *
 * A verdict is for a type and shape of weights (n_out, n_in, gated) and for numbers of rows up to
 * the next one: which of the own kernels was fastest, or that this algorithm of cuBLASLt was, whose
 * attributes are in hexadecimal. It says nothing of bits. Whether a product has those of the kernel
 * by mma.sync is tested in every process (gemm_plan.c). So a file that is old, forged or of another
 * machine can cost time and never change a token, and it needs no checksum. A file whose second
 * line is another one is not used.
 *
 * Rejected: to keep which algorithms had the same bits. That would save their tests, but a file
 * would decide over tokens then.
 */
#ifndef SB_CUDA_PLAN_FILE_H
#define SB_CUDA_PLAN_FILE_H

#include "backend/backend.h"
#include "backend/cuda/cuda_stream.h"

/* What distinguishes one algorithm of cuBLASLt from another. No byte is padding, so algorithms are
 * compared as bytes. */
struct sb_algo_name {
    uint32_t id, tile, stages, custom, inner, cluster;
};

/* Who makes a product: the kernel that defines the class, or one that has its bits. */
enum sb_maker { SB_BY_MMA, SB_BY_WGMMA, SB_BY_LIBRARY };

struct sb_verdict {
    enum sb_dtype type; /* SB_BF16 or SB_F16 */
    int32_t n_out, n_in, gated, rows;
    enum sb_maker by;         /* was fastest */
    struct sb_algo_name algo; /* of cuBLASLt, else zeros */
};

struct sb_plan_file; /* verdicts and the path of the file they are kept in */

/* For a file at `path`, which is copied; nothing is read yet. library: the version of cuBLASLt, or
 * 0 where there is none. The device must be current. E_NOMEM, E_DEVICE. */
int32_t sb_plan_file_open(struct sb_plan_file **out, const struct sb_gpu *gpu, const char *path,
                          size_t library);
void sb_plan_file_close(struct sb_plan_file *file);
/* Adds the verdicts of the file to those that are known already, which go before. One that cannot
 * be used is a line in the log. */
void sb_plan_file_read(struct sb_plan_file *file);
/* The verdict on a type, shape and rows, or NULL. */
const struct sb_verdict *sb_plan_file_find(const struct sb_plan_file *file,
                                           const struct sb_verdict *key);
/* Notes a verdict. One for mma.sync leaves an older verdict as it is: other numbers of rows of its
 * kind may have something faster. */
void sb_plan_file_note(struct sb_plan_file *file, const struct sb_verdict *verdict);
/* Writes the file, with the verdicts that others have written into it since, if there is something
 * new. Failing is a line in the log. */
void sb_plan_file_write(struct sb_plan_file *file);

#endif
