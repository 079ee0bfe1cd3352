/*
 * What is wished of an answer, besides the prompt: by the options of a program for all prompts
 * (run_args.h), and by the fields of a prompt's line for that one, which go before the options.
 *
 *     options  -> the program's wish  --.
 *                                        >--  ex_wish_of  ->  a specbatch_request
 *     line     -> the prompt's wish   --'
 *                 and a bit for each field that the line has
 *
 * Both are the same struct, and a table of its fields says how each is read. In zeros every field
 * but max_new has its default.
 */
#ifndef EX_WISH_H
#define EX_WISH_H

#include <stddef.h>
#include <stdint.h>
#include <yajl/yajl_tree.h>

#include "args.h"
#include "specbatch.h"

struct ex_wish {
    int32_t max_new, min_new, draft_len, top_logprobs, priority; /* as of specbatch_request */
    int32_t n, best_of;                                          /* 0: 1, and as many as n */
    int32_t ignore_eos, logprobs, filtered_logprobs, spare_prompt;
    int32_t score;       /* the log-probabilities of the prompt are wished too */
    int32_t deadline_ms; /* 0: none */
    uint32_t draft_sources;
    specbatch_sampling sampling;
    struct ex_strings stops;
    struct {
        int32_t *at;
        size_t n;
    } stop_ids;
};

/* What a line wishes. */
struct ex_line_wish {
    struct ex_wish wish;
    uint32_t here;   /* bit i: the line has the field i */
    void *blocks[4]; /* what its pointers point into, to be freed */
    size_t n_blocks;
};

enum { EX_WHY = 160 };

/* Takes the value of the field of this name. Returns 1; 0 and in `why` what is wrong with it; or -1
 * if a wish has no such field. */
int ex_wish_take(struct ex_line_wish *line, const char *name, yajl_val value, char why[EX_WHY]);
void ex_wish_free(struct ex_line_wish *line);

/* The wish of a line where the program wishes `usual`. A usual min_new gives way to a line's
 * max_new; what else does not fit together the library refuses. */
struct ex_wish ex_wish_of(const struct ex_line_wish *line, const struct ex_wish *usual);
int32_t ex_wish_answers(const struct ex_wish *wish); /* that are handed out */
int32_t ex_wish_made(const struct ex_wish *wish);    /* that are made for them */

/* A wish as the library's structs, which point into each other and into the wish. */
struct ex_request {
    specbatch_request request;
    specbatch_sampling sampling;
    specbatch_stops stops;
    specbatch_answers answers;
};
void ex_wish_request(struct ex_request *out, const struct ex_wish *wish);

#endif
