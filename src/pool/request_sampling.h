/* The sampling of a request: from the caller's struct to what the engine keeps of a sequence
 * (engine/sampling.h). */
#ifndef SB_REQUEST_SAMPLING_H
#define SB_REQUEST_SAMPLING_H

#include "alloc.h"
#include "engine/sampling.h"
#include "specbatch.h"

/* Makes the sampling of answer `answer` to a request, or NULL if the most probable tokens are
 * wanted. vocab: the target's. E_INVALID, E_OPTIONS, E_TOKEN, E_NOMEM. */
int32_t sb_sampling_create(struct sb_sampling **out, const struct sb_mem *mem,
                           const specbatch_sampling *given, int32_t vocab, int32_t answer);
/* NULL is fine. */
void sb_sampling_free(const struct sb_mem *mem, struct sb_sampling *sampling);
size_t sb_sampling_bytes(const struct sb_sampling *sampling);
/* Whether both choose alike, with the same seed. Either may be NULL. */
int sb_sampling_equal(const struct sb_sampling *a, const struct sb_sampling *b);

#endif
