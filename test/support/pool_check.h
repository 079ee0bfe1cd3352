/*
 * The invariants of a pool between two steps: lengths and columns of its residents, slots, lists,
 * and the counters of bytes.
 * It looks into the library's own structs and walks all residents, so it is for tests only.
 */
#ifndef SB_TEST_POOL_CHECK_H
#define SB_TEST_POOL_CHECK_H

#include "pool/pool.h"

/* SPECBATCH_E_INTERNAL and a line in specbatch_last_error that says which invariant is broken. */
int32_t pool_check(const struct specbatch_pool *pool);

#endif
