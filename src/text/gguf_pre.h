/*
 * The pre-tokenizers of GGUF files. A file names its pre-tokenizer and does not describe it, so
 * each name is a row of a table, whose steps are those of the tokenizer.json that the name stands
 * for. gguf_vocab.c looks a name up, gguf_describe.c the name for what a tokenizer does.
 */
#ifndef SB_GGUF_PRE_H
#define SB_GGUF_PRE_H

#include "pipeline.h"

struct sb_gguf_pre {
    const char *name;
    enum sb_step_kind words; /* the step that cuts a text into words, */
    size_t digits;           /* and how many digits make one at most */
    int nfc;                 /* texts are brought into this form first */
    int ignore_merges;
    int bos;               /* texts begin with the begin-of-sequence id, if the file is silent */
    const char *prefix[2]; /* the tokens that begin a text, whatever the file says */
    const char *pattern;   /* what words are, where that is SB_STEP_SPLIT_PATTERN; else NULL */
};

/* The rows, one after the other; NULL behind the last. Of several names for the same, the first is
 * the usual one. */
const struct sb_gguf_pre *sb_gguf_pre_at(size_t index);

#endif
