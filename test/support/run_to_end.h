/* Runs a pool to its end by single steps, for tests that shall not rest on specbatch_pool_run. */
#ifndef SB_TEST_RUN_TO_END_H
#define SB_TEST_RUN_TO_END_H

#include "specbatch.h"

/* The status of the last step. */
static inline int32_t run_to_end(specbatch_pool *pool)
{
    size_t active = 1;
    int32_t rc = SPECBATCH_OK;

    while (active && rc == SPECBATCH_OK)
        rc = specbatch_pool_step(pool, &active);
    return rc;
}

#endif
