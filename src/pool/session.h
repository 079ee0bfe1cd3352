/*
 * Sessions: a path of the prefix cache in a file, and back.
 *
 *   cache (prefix.h)  --- save: block by block, through one buffer --->  file (session_file.h)
 *                    <--- load: once to check it, once more to fill blocks ---
 *
 * What is loaded is a path like any other: a request that begins with its ids hits it, it ages, and
 * it can be pinned. So a session is no state of its own, and a request that goes on with one is an
 * ordinary request, whose tokens are those of a cold run.
 *
 * A file is read twice. The first time checks every byte of it and changes nothing, so that a file
 * which is refused has not even pushed a block out of the cache. The second time fills blocks, each
 * of which is found only after its check was read again: a file that is overwritten in between is
 * noticed. Rejected: reading once into blocks that become findable at the end. Older blocks would
 * have been evicted for a file that turns out to be damaged.
 */
#ifndef SB_SESSION_H
#define SB_SESSION_H

#include "pool/pool.h"

/* Semantics and status codes of the public functions. */
int32_t sb_session_save(struct specbatch_pool *pool, const int32_t *ids, size_t n_ids,
                        const char *path, size_t *n_kept);
int32_t sb_session_load(struct specbatch_pool *pool, const char *path, int32_t *ids,
                        size_t capacity, size_t *n);

#endif
