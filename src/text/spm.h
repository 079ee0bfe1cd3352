/*
 * A SentencePiece model as its pieces: what is read from a tokenizer.model (spm.c), or from a GGUF
 * file (gguf_vocab.c), on its way into the tables of a tokenizer.
 */
#ifndef SB_SPM_H
#define SB_SPM_H

#include "pipeline.h"

/* The types of pieces. */
enum {
    SB_SPM_NORMAL = 1,
    SB_SPM_UNKNOWN = 2,
    SB_SPM_CONTROL = 3,
    SB_SPM_USER_DEFINED = 4,
    SB_SPM_UNUSED = 5,
    SB_SPM_BYTE = 6
};

/* What is given is zero, but for the first two. */
struct sb_spm {
    struct sb_tokenizer *t;
    const char *path; /* begins messages */
    float *scores;    /* [capacity], by id */
    size_t capacity, n_pieces;
    int byte_fallback;    /* the bytes of unknown text are tokens */
    int dummy_prefix;     /* a blank is put before the text */
    int squeeze;          /* blanks at the ends vanish, runs of them become one */
    int user_raw;         /* user-defined pieces are found in the text as it came, not normalised */
    int32_t bos, eos;     /* the ids that begin and end a text, or -1 */
    const char *charsmap; /* n_charsmap bytes: the normaliser's map, which may be none */
    size_t n_charsmap;
};

/* Adds the piece with the next id. An unused piece leaves its id without a spelling. E_FORMAT,
 * E_NOMEM. */
int32_t sb_spm_add(struct sb_spm *spm, const char *text, size_t n, uint64_t type, float score);
/* Fills the tokenizer, when all pieces have been added. E_FORMAT, E_UNSUPPORTED, E_NOMEM. */
int32_t sb_spm_build(struct sb_spm *spm);
void sb_spm_clear(struct sb_spm *spm);

/* Changes a tokenizer that sb_spm_build has filled: a blank is put before a text only if it begins
 * with none, or never if not `prefix`, and in either case not behind an added token in the text.
 * `path` begins messages. E_UNSUPPORTED: the model has a normaliser that does more; E_NOMEM. */
int32_t sb_spm_set_prefix(struct sb_tokenizer *t, int prefix, const char *path);

#endif
