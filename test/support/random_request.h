/*
 * Random requests that want all that a request can: sampling with filters, penalties and biases,
 * bans before min_new, ids and strings that end them, masks, log-probabilities of tokens, of
 * alternatives and of the prompt, several answers or the best of them, priorities and deadlines.
 * What a request must give is what it gives when it is decoded plainly, alone in a pool of batch 1
 * without kept prefixes, and without a deadline.
 *
 * A clock is not a function of the seed. So most deadlines are over at once or never come, and of
 * one that may come at any time only this is compared: that the tokens are the first of the plain
 * ones. Which answers are the best is known where nothing comes at any time.
 */
#ifndef RANDOM_REQUEST_H
#define RANDOM_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "specbatch.h"

enum {
    RANDOM_PROMPT = 96, /* tokens of a prompt, at most */
    RANDOM_NEW = 40,    /* tokens that a request asks for, at most */
    RANDOM_TEXT = 4096, /* bytes of an answer's text, at most */
    RANDOM_STOP = 16,   /* bytes of a stop string, at most, with a NUL */
    RANDOM_TOP = 4,     /* alternatives to a token, at most */
    RANDOM_ANSWERS = 4  /* that are made for a request, at most */
};

enum random_deadline {
    RANDOM_UNBOUNDED,
    RANDOM_OVER,    /* before the next step begins */
    RANDOM_ANY_TIME /* at some moment of a trace, or behind its end */
};

/* What a result has, to be compared. */
struct random_answer {
    int32_t finish, status;
    size_t n;
    int32_t tokens[RANDOM_NEW];
    int has_logprobs, has_text;
    float logprobs[RANDOM_NEW];
    size_t n_top, n_scored;
    int32_t top_ids[RANDOM_NEW * RANDOM_TOP];
    float top_logprobs[RANDOM_NEW * RANDOM_TOP];
    float prompt_logprobs[RANDOM_PROMPT];
    char text[RANDOM_TEXT];
    size_t text_length;
    double mean; /* of the tokens' log-probabilities, where the best answers are asked for */
};

/* The pointers of the request are into the struct, which therefore stays where it is. */
struct random_request {
    specbatch_request request;
    specbatch_sampling sampling;
    int32_t ids[RANDOM_PROMPT], stop_ids[2], bias_ids[3];
    float bias[3];
    specbatch_stops stops;
    char stop_text[2][RANDOM_STOP];
    const char *stop_strings[2];
    specbatch_mask mask;
    specbatch_answers answers;
    int32_t n_made; /* answers that are made, of which answers.n are handed out */
    enum random_deadline deadline;
    struct random_answer plain[RANDOM_ANSWERS]; /* each that of its seed, without others */

    /* In the pool of a trace. */
    uint64_t id; /* of the first answer; 0: not submitted */
    int64_t turn;
    int queued[RANDOM_ANSWERS], cancelled[RANDOM_ANSWERS], collected[RANDOM_ANSWERS];
    int32_t n_collected;
};

/* Draws a request to this model. */
void random_request_draw(struct random_request *random, const specbatch_model *model,
                         uint64_t *state);
/* Has it decoded plainly. If there is a text, some requests then get parts of it as strings that
 * end them, and are decoded again. Returns a status. */
int32_t random_request_ask(struct random_request *random, specbatch_model *model, uint64_t *state);
/* Compares a result, the next one of its request, with the plain answer. Returns NULL, or what
 * differs. */
const char *random_request_compare(struct random_request *random, const specbatch_result *result);

#endif
