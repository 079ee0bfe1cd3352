/*
 * The memory of a round's masks; masks.h tells what they are.
 *
 *   host, dev    [masked rows of the round][positions: stride][n_words], bits as in struct
 *                sb_samplers
 *
 * Masked rows are counted apart from the others, so that there need be no more of them than there
 * are unfinished requests with a mask. The memory grows when such a request is submitted, because a
 * step takes none. It does not shrink.
 */
#ifndef SB_MASK_BLOCK_H
#define SB_MASK_BLOCK_H

#include "alloc.h"
#include "engine/seq.h"

struct specbatch_model;

/* A row of the round that has a mask. Its first n_asked positions have been asked, and the next
 * call goes up to n_wanted. */
struct sb_masked_row {
    int32_t b; /* which row of the round */
    int32_t n_asked, n_wanted;
};

/* The masks of a round. */
struct sb_mask_block {
    int32_t max_rows, stride; /* those of the round */
    int32_t n_words;          /* of a position */
    int32_t n_requests;       /* unfinished requests that have a mask */
    int32_t room;             /* masked rows that there is memory for */
    int32_t n_rows;           /* masked rows of this round */
    uint32_t *with_token;     /* [n_words] the bits of all ids that have a token */
    char *host, *dev;
    struct sb_masked_row *rows; /* [room] */
    specbatch_mask_row *shown;  /* [room * stride], the first of which a call is given */
    specbatch_mask_row **list;  /* [room * stride], a pointer to each: rows may grow in later
                                   versions, so the host must not index them by its own size */
};

/* Checks and copies the mask of a request; NULL: it has none. E_INVALID, E_OPTIONS. */
int32_t sb_mask_copy(specbatch_mask *out, const specbatch_mask *given);
/* Makes room for n more unfinished requests like this one, if it has a mask. E_NOMEM, E_DEVICE. */
int32_t sb_mask_block_reserve(struct sb_mask_block *block, struct specbatch_model *model,
                              const struct sb_mem *mem, const struct sb_seq *seq, int32_t n);
/* Counts a request that has been submitted, and one that has finished. */
void sb_mask_block_add(struct sb_mask_block *block, const struct sb_seq *seq);
void sb_mask_block_remove(struct sb_mask_block *block, const struct sb_seq *seq);
void sb_mask_block_free(struct sb_mask_block *block, struct specbatch_model *model,
                        const struct sb_mem *mem);

#endif
