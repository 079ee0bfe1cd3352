/* Telling the caller's progress function how many bytes of tensors have been read. */
#ifndef SB_PROGRESS_H
#define SB_PROGRESS_H

#include <stdint.h>

#include "specbatch.h"

struct sb_progress {
    const specbatch_model_options *options; /* for the function, which may be NULL */
    const char *what;                       /* is cancelled, for messages: "loading" */
    uint64_t done, total;
};

/* So many more bytes are done. E_CANCELLED. */
int32_t sb_progress_add(struct sb_progress *progress, uint64_t bytes);
/* What has not been done counts as done. E_CANCELLED. */
int32_t sb_progress_end(struct sb_progress *progress);

#endif
