/*
 * Where an answer with stop strings has to end, worked out from the whole answer without any: by
 * decoding each of its beginnings anew, and by looking for the strings in all of its text at once.
 * The library does neither. And requests for it: strings that are cut out of such a text.
 */
#ifndef SB_TEST_STOP_ORACLE_H
#define SB_TEST_STOP_ORACLE_H

#include "specbatch.h"
#include "text/pipeline.h"

enum { STOP_ORACLE_TOKENS = 96, STOP_ORACLE_TEXT = 8192, STOP_ORACLE_STRINGS = 16 };

/* An answer that ended by its length or by an id. */
struct whole_answer {
    const struct sb_tokenizer *tokenizer;
    int32_t ids[STOP_ORACLE_TOKENS];
    int32_t n;
    char text[STOP_ORACLE_TEXT];
    size_t length;
    size_t ends[STOP_ORACLE_TOKENS]; /* of each token in the text */
};

struct stop_strings {
    char bytes[STOP_ORACLE_STRINGS][256];
    const char *at[STOP_ORACLE_STRINGS];
    size_t lengths[STOP_ORACLE_STRINGS];
    size_t n;
};

/* What a request with stop strings has to give. */
struct cut_answer {
    int32_t n;      /* the first so many ids */
    size_t length;  /* the first so many bytes of the text */
    int is_stopped; /* 0: no string is found, and it is the whole answer */
};

/* Fills in the text and the ends of whole->ids[0..n). E_NOMEM; E_INTERNAL if they are too long. */
int32_t stop_oracle_read(struct whole_answer *whole, const struct sb_tokenizer *tokenizer);
/* Cuts the answer. */
struct cut_answer stop_oracle_cut(const struct whole_answer *whole,
                                  const struct stop_strings *stops, int32_t min_new);
/* Draws strings: parts of the text, parts with other ends, parts of those, strings that repeat
 * themselves. The state is trace_random's. */
void stop_oracle_draw(struct stop_strings *stops, const struct whole_answer *whole,
                      uint64_t *state);
/* Adds one string. */
void stop_strings_add(struct stop_strings *stops, const char *text, size_t n);

#endif
