/* What `generate --check` says of a checkpoint: what it is, how it would run, and what it takes. */
#ifndef EX_CHECK_H
#define EX_CHECK_H

#include "specbatch.h"

/* Prints it on stdout, of a target that was opened from `path`, and of a pool with these options
 * (draft may be NULL). 1, or 0 after a line on stderr. */
int ex_check(const specbatch_model *target, const char *path, const specbatch_draft *draft,
             const specbatch_pool_options *options);

#endif
