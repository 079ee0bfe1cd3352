/*
 * Prompt files: JSON lines, read in two steps. ex_prompts_read needs no model and finds what is
 * wrong with a file before one is opened; ex_prompts_encode (encode.h) makes ids of texts and
 * checks lengths. Either reports the first bad line as FILE:LINE and fails.
 *
 * A line has one of
 *     "prompt": "text"     "ids": [1, 2, ...]     "turns": ["first", ...], the first turn is taken
 * and may have, for this line only instead of the program's options,
 *     "id" (a string or a number, handed back with the result; else the number of the line),
 *     what a wish has (wish.h): "max_new", "temperature", "stop" and so on,
 * and what else Spec-Bench records have. An unknown field is an error: it may be one of these
 * misspelt. Blank lines and a byte order mark are skipped.
 */
#ifndef EX_PROMPTS_H
#define EX_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "specbatch.h"
#include "wish.h"

struct ex_prompt {
    int32_t *ids;
    size_t n_ids;
    char *text;              /* until it is encoded; NULL if the line gives ids */
    int is_turn;             /* the text is the first turn of a conversation */
    char *id;                /* see id.h */
    size_t line;             /* of the file, from 1 */
    int done;                /* an earlier run has written its result */
    struct ex_line_wish own; /* what the line has of the wish */
};

struct ex_prompts {
    struct ex_prompt *at;
    size_t n, capacity;
    size_t longest; /* n_ids of the longest, when encoded */
};

/* file: "-" is stdin; limit: prompts to read at most, 0: all. 1 on success; else 0, after one line
 * on stderr. ex_prompts_free either way. */
int ex_prompts_read(struct ex_prompts *out, const char *file, int32_t limit);
/* What messages call the file: "stdin" for "-". */
const char *ex_prompts_name(const char *file);
void ex_prompts_free(struct ex_prompts *prompts);
void ex_prompt_free(struct ex_prompt *prompt);

/* The prompts sorted by their ids, to be freed. */
struct ex_prompt **ex_prompts_by_id(const struct ex_prompts *prompts);
/* The most positions that one of them needs, where max_new is that of lines without their own. */
int32_t ex_prompts_positions(const struct ex_prompts *prompts, int32_t max_new);

#endif
