/* The table of requests by id. Ids are consecutive numbers, so their low bits choose the bucket and
 * spread evenly: no hash function is needed. */
#include "pool/idmap.h"

#include "status.h"

static struct sb_seq **chain(const struct sb_idmap *map, uint64_t id)
{
    return &map->buckets[id & (map->n_buckets - 1)];
}

static void link_in(struct sb_idmap *map, struct sb_seq *seq)
{
    struct sb_seq **head = chain(map, seq->id);

    seq->hash_next = *head;
    *head = seq;
}

int32_t sb_idmap_reserve(struct sb_idmap *map, size_t more)
{
    struct sb_idmap grown = {
        .mem = map->mem, .n = map->n, .n_buckets = map->n_buckets ? map->n_buckets : 64};
    struct sb_seq **old;
    int32_t rc = SPECBATCH_OK;

    if (map->n + more <= map->n_buckets)
        return rc;
    while (map->n + more > grown.n_buckets)
        grown.n_buckets *= 2;
    SB_NEW(grown.buckets, sb_alloc(&map->mem, grown.n_buckets, sizeof(struct sb_seq *)),
           "the request table");
    for (size_t i = 0; i < map->n_buckets; i++)
        for (struct sb_seq *seq = map->buckets[i], *next; seq; seq = next) {
            next = seq->hash_next;
            link_in(&grown, seq);
        }
    old = map->buckets;
    *map = grown;
    sb_free(&map->mem, old); /* last: a hook that does not return must leave a sound table */
done:
    return rc;
}

void sb_idmap_add(struct sb_idmap *map, struct sb_seq *seq)
{
    link_in(map, seq);
    map->n++;
}

struct sb_seq *sb_idmap_find(const struct sb_idmap *map, uint64_t id)
{
    struct sb_seq *seq = map->n_buckets ? *chain(map, id) : NULL;

    while (seq && seq->id != id)
        seq = seq->hash_next;
    return seq;
}

void sb_idmap_remove(struct sb_idmap *map, struct sb_seq *seq)
{
    struct sb_seq **at = chain(map, seq->id);

    while (*at != seq)
        at = &(*at)->hash_next;
    *at = seq->hash_next;
    map->n--;
}

struct sb_seq *sb_idmap_drain(struct sb_idmap *map)
{
    for (; map->n_buckets > 0; map->n_buckets--) {
        struct sb_seq **head = &map->buckets[map->n_buckets - 1], *seq = *head;
        if (seq) {
            *head = seq->hash_next;
            return seq;
        }
    }
    return NULL;
}

void sb_idmap_free(struct sb_idmap *map)
{
    sb_free(&map->mem, map->buckets);
    map->buckets = NULL;
    map->n = map->n_buckets = 0;
}
