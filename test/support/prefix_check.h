/* The invariants of the prefix cache's tree while no path is open. */
#ifndef SB_TEST_PREFIX_CHECK_H
#define SB_TEST_PREFIX_CHECK_H

#include "pool/prefix_tree.h"

/* SPECBATCH_E_INTERNAL and a line in specbatch_last_error that says which invariant is broken. */
int32_t prefix_check(const struct sb_prefix_tree *tree);

#endif
