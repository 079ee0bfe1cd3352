/* Requests by id, from submission to collection: a hash table with chains, which doubles when it is
 * full. Each call is O(1). */
#ifndef SB_IDMAP_H
#define SB_IDMAP_H

#include <stddef.h>

#include "engine/seq.h"

struct sb_idmap {
    struct sb_mem mem;
    struct sb_seq **buckets; /* chains through seq->hash_next */
    size_t n, n_buckets;     /* n_buckets is a power of two */
};

/* Makes room for so many more sequences. E_NOMEM. */
int32_t sb_idmap_reserve(struct sb_idmap *map, size_t more);
void sb_idmap_add(struct sb_idmap *map, struct sb_seq *seq);
struct sb_seq *sb_idmap_find(const struct sb_idmap *map, uint64_t id); /* NULL: absent */
void sb_idmap_remove(struct sb_idmap *map, struct sb_seq *seq);
/* Takes out any sequence that is still in the map, NULL when there is none: for freeing a pool.
 * Emptying a map costs one walk of its buckets, and drops those it is done with, so after the first
 * call only this and sb_idmap_free may be called. */
struct sb_seq *sb_idmap_drain(struct sb_idmap *map);
void sb_idmap_free(struct sb_idmap *map); /* the table, not the sequences */

#endif
