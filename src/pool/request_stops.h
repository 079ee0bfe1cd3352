/* What a pool does about stop strings (engine/stops.h): it checks them when a request is submitted,
 * and takes back what is undecided when it ends a request itself. */
#ifndef SB_REQUEST_STOPS_H
#define SB_REQUEST_STOPS_H

#include "engine/stops.h"
#include "pool/pool.h"

/* Checks a request's stop strings and copies them. Without any, *out is NULL. E_INVALID,
 * E_OPTIONS, E_NO_TOKENIZER, E_NOMEM. */
int32_t sb_pool_make_stops(struct sb_stops **out, const struct specbatch_pool *pool,
                           const specbatch_request *request);
/* Call this before a request is ended by something else than its own tokens, such as
 * specbatch_pool_cancel: cuts it to its decided text, which no later token could have taken back.
 */
void sb_pool_settle(struct specbatch_pool *pool, struct sb_seq *seq);

#endif
