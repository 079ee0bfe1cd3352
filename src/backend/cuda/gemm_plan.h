/*
 * Plans of products: for a shape of weight and a number of rows, who makes the product. gemm_plan.c
 * says how that is found.
 */
#ifndef SB_CUDA_GEMM_PLAN_H
#define SB_CUDA_GEMM_PLAN_H

#include <stdatomic.h>

#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/gemm_library.h"
#include "backend/cuda/plan_file.h"

enum {
    SB_PLANS_FROM = 9,    /* rows; with fewer, mma.sync reads the weight once at the speed of the
                             memory, */
    SB_LIBRARY_FROM = 65, /* and with fewer than these little is lost, but cuBLASLt's pieces would
                             have the weight read and written once more */
    SB_PLANS_TO = 512     /* rows of one call; far fewer already share one reading of the weights */
};

/* For one number of rows. */
struct sb_plan {
    enum sb_maker by;          /* which has the bits of the kernel by mma.sync, and is that or took
                                  less time */
    cublasLtMatmulAlgo_t algo; /* of the library */
};

struct sb_shape {
    int32_t n_out, n_in, gated; /* as in struct sb_weight */
    const void *data;           /* a weight of this shape */
    int32_t max_rows;           /* of a call */
    atomic_int tested;     /* plans up to this many rows are there, and calls have no more; grows
                              while other pools run */
    struct sb_plan *plans; /* [SB_PLANS_TO + 1] */
};

/* What planning a shape has found, for the log. */
struct sb_findings {
    int by[3];     /* numbers of rows that each enum sb_maker makes */
    int different; /* of them: cuBLASLt has no algorithm of the same bits */
    int refuses_wgmma;
    int32_t wanted, most; /* rows that were to be planned, and for which there are plans */
};

/* Plans a shape for every number of rows from those that are tested up to `rows`, or up to fewer
 * where there is no memory for the test of so many, without timing what the file, if there is one,
 * has verdicts on. Calls no function of the host, so that a lock may be held. E_NOMEM: there is
 * none for the rows of one product either that is never made in pieces; E_DEVICE. */
int32_t sb_gemm_plan(const struct sb_gemm_library *library, const struct sb_gpu *gpu,
                     struct sb_shape *shape, int32_t rows, struct sb_plan_file *file,
                     struct sb_findings *found);
/* Writes to the log what was found, if anything was. */
void sb_gemm_tell(const struct sb_gpu *gpu, const struct sb_shape *shape,
                  const struct sb_findings *found);

#endif
