/* Merges as files write them: by the spellings of the pieces, not by their ids. */
#include <string.h>

#include "pipeline.h"
#include "status.h"

int sb_merge_cut(struct sb_half half[2], const char *text, size_t n)
{
    const char *space = memchr(text, ' ', n);

    if (!space)
        return 0;
    half[0] = (struct sb_half){text, (size_t)(space - text)};
    half[1] = (struct sb_half){space + 1, n - half[0].n - 1};
    return !memchr(half[1].at, ' ', half[1].n);
}

int32_t sb_merge_add(struct sb_tokenizer *t, const struct sb_half half[2], size_t rank,
                     struct sb_bytes *joined, const char *path, const char *where)
{
    int32_t rc = SPECBATCH_OK, ids[3];

    joined->n = 0;
    SB_TRY(sb_bytes_add(joined, half[0].at, half[0].n));
    SB_TRY(sb_bytes_add(joined, half[1].at, half[1].n));
    ids[0] = sb_vocab_find_base(&t->vocab, half[0].at, half[0].n);
    ids[1] = sb_vocab_find_base(&t->vocab, half[1].at, half[1].n);
    ids[2] = sb_vocab_find_base(&t->vocab, joined->data, joined->n);
    if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %s: %s of \"%.80s\" is not in the vocabulary", path, where,
                ids[0] < 0   ? "the first half"
                : ids[1] < 0 ? "the second half"
                             : "the whole",
                joined->data);
    SB_TRY(sb_bpe_add(&t->bpe, &t->mem, ids[0], ids[1], (uint32_t)rank, ids[2]));
done:
    return rc;
}
