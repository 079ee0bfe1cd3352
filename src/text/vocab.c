/*
 * The table of pieces. An id finds its spelling by index; a spelling finds its id by hash.
 *
 *   pieces  [ {at, length, flags}, ... ]       by id; `at` is an offset in text
 *   text    [ <unk>\0 <s>\0 ... ]
 *   slots   [ {id + 1, 32 bits of hash} ... ]  open addressing, linear probing, at most half full
 *
 * A slot holds bits of the hash so that a probe which does not match is nearly always recognised in
 * the slot itself, without a cache miss in `pieces` and another in `text`. Most of the time that it
 * takes to build a vocabulary of 150,000 pieces goes into such probes.
 */
#include <string.h>

#include "pipeline.h"
#include "status.h"

const struct sb_piece *sb_vocab_piece(const struct sb_vocab *vocab, int32_t id)
{
    if (id < 0 || (size_t)id >= vocab->n || vocab->pieces[id].flags == 0)
        return NULL;
    return &vocab->pieces[id];
}

const char *sb_vocab_text(const struct sb_vocab *vocab, const struct sb_piece *piece)
{
    return vocab->text.data + piece->at;
}

/* The slot of a spelling, or the free slot where it belongs. At least half of the slots are
 * free. */
static size_t find_slot(const struct sb_vocab *vocab, uint64_t hash, const char *text, size_t n)
{
    size_t slot = (size_t)hash & (vocab->n_slots - 1);

    for (;; slot = (slot + 1) & (vocab->n_slots - 1)) {
        uint32_t id1 = vocab->slots[slot].id1;
        const struct sb_piece *piece;
        if (id1 == 0)
            return slot;
        if (vocab->slots[slot].hash != (uint32_t)(hash >> 32))
            continue;
        piece = &vocab->pieces[id1 - 1];
        if (piece->length == n && memcmp(sb_vocab_text(vocab, piece), text, n) == 0)
            return slot;
    }
}

int32_t sb_vocab_find(const struct sb_vocab *vocab, const char *text, size_t n)
{
    if (vocab->n_slots == 0)
        return -1;
    return (int32_t)vocab->slots[find_slot(vocab, sb_hash(&vocab->key, text, n), text, n)].id1 - 1;
}

int32_t sb_vocab_find_base(const struct sb_vocab *vocab, const char *text, size_t n)
{
    int32_t id = sb_vocab_find(vocab, text, n);
    return id >= 0 && vocab->pieces[id].flags & SB_PIECE_BASE ? id : -1;
}

static void insert(struct sb_vocab *vocab, size_t slot, uint64_t hash, uint32_t id)
{
    vocab->slots[slot].id1 = id + 1;
    vocab->slots[slot].hash = (uint32_t)(hash >> 32);
    vocab->n_used++;
}

int32_t sb_vocab_reserve(struct sb_vocab *vocab, size_t n)
{
    const struct sb_mem *mem = vocab->text.mem;
    size_t wanted = vocab->n_slots ? vocab->n_slots : 1024;

    while (wanted / 2 < n)
        wanted *= 2;
    if (wanted == vocab->n_slots)
        return SPECBATCH_OK;
    void *grown = sb_alloc(mem, wanted, sizeof *vocab->slots);
    if (!grown)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for the vocabulary");
    sb_free(mem, vocab->slots);
    vocab->slots = grown;
    vocab->n_slots = wanted;
    vocab->n_used = 0;
    for (size_t id = 0; id < vocab->n; id++) {
        const struct sb_piece *piece = sb_vocab_piece(vocab, (int32_t)id);
        const char *text = piece ? sb_vocab_text(vocab, piece) : NULL;
        uint64_t hash = piece ? sb_hash(&vocab->key, text, piece->length) : 0;
        if (piece)
            insert(vocab, find_slot(vocab, hash, text, piece->length), hash, (uint32_t)id);
    }
    return SPECBATCH_OK;
}

/* Room for `need` pieces; the new ones are zero, which says that their ids are free. */
static int32_t grow_pieces(struct sb_vocab *vocab, size_t need)
{
    const size_t before = vocab->capacity;
    struct sb_piece *grown = sb_grow(vocab->text.mem, vocab->pieces, &vocab->capacity, need,
                                     sizeof *grown);

    if (!grown)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for the vocabulary");
    memset(grown + before, 0, (vocab->capacity - before) * sizeof *grown);
    vocab->pieces = grown;
    return SPECBATCH_OK;
}

/* How many bytes of a piece a message shows. */
static int shown(size_t n)
{
    return n < 60 ? (int)n : 60;
}

int32_t sb_vocab_add(struct sb_vocab *vocab, const char *where, const char *text, size_t n,
                     int64_t id, uint32_t flags)
{
    uint64_t hash = sb_hash(&vocab->key, text, n);
    int32_t rc = SPECBATCH_OK;

    if (id < 0 || id >= SB_ID_LIMIT)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: id %lld of piece \"%.*s\" is out of range", where,
                       (long long)id, shown(n), text);
    SB_TRY(sb_vocab_reserve(vocab, vocab->n_used + 1));
    const size_t slot = find_slot(vocab, hash, text, n);
    if (vocab->slots[slot].id1)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: piece \"%.*s\" has two ids, %d and %d", where,
                       shown(n), text, (int)vocab->slots[slot].id1 - 1, (int)id);
    if (vocab->text.n + n >= UINT32_MAX)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: the vocabulary is longer than 4 GiB", where);
    SB_TRY(grow_pieces(vocab, (size_t)id + 1));
    struct sb_piece *piece = &vocab->pieces[id];
    if (piece->flags)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: id %d is both \"%.60s\" and \"%.*s\"", where,
                       (int)id, sb_vocab_text(vocab, piece), shown(n), text);
    piece->at = (uint32_t)vocab->text.n;
    SB_TRY(sb_bytes_add(&vocab->text, text, n));
    SB_TRY(sb_bytes_add(&vocab->text, "", 1));
    piece->length = (uint32_t)n;
    piece->flags = flags;
    if (n > vocab->longest)
        vocab->longest = n;
    if ((size_t)id >= vocab->n)
        vocab->n = (size_t)id + 1;
    insert(vocab, slot, hash, (uint32_t)id);
done:
    return rc;
}

void sb_vocab_clear(struct sb_vocab *vocab)
{
    sb_free(vocab->text.mem, vocab->pieces);
    sb_free(vocab->text.mem, vocab->slots);
    sb_bytes_clear(&vocab->text);
}
