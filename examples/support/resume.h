/*
 * Goes on with a result file that an earlier run left. Its ids tell which prompts are done. A line
 * says nothing of the model and options that made it, but they determine it: so the last of them
 * is made again, and is to come out the same to the byte, before anything is written behind it.
 */
#ifndef EX_RESUME_H
#define EX_RESUME_H

#include "prompts.h"
#include "run.h"
#include "specbatch.h"

struct ex_resumed {
    size_t n;               /* results, */
    long long bytes;        /* and the length of their lines */
    struct ex_prompts last; /* of the last one, as the file has them, that did not end early; or
                               none */
    char *line;             /* that result, */
    size_t number;          /* and its line's number, from 1 */
};

/* Drops the prompts whose results `file` has, but for out->last. A last line without an end is
 * torn, and its prompt is not done. 1, or 0 after a line on stderr, when a line is not the result
 * of one of the prompts. ex_resumed_free either way. */
int ex_resume(struct ex_resumed *out, struct ex_prompts *prompts, const char *file);
/* Makes the last result again, if there is one; its prompt has been encoded. Returns EX_OK, also
 * when a signal has ended it; after a line on stderr EX_USAGE if another result comes out, and
 * EX_FAILED if none does. */
int ex_resumed_check(const struct ex_resumed *resumed, const char *file, specbatch_model *target,
                     specbatch_draft *draft, const struct ex_settings *settings);
void ex_resumed_free(struct ex_resumed *resumed);

#endif
