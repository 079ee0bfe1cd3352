/*
 * Scores: the log-probabilities of a request beyond those of the tokens that it was given. They are
 * alternatives to its tokens, and what the model made of its prompt.
 *
 *   a sequence        alternatives and log-probabilities, [tokens, n_top]      taken at submission
 *   a round's block   wants [places] | ids [places, n_top] | log-probabilities [places, n_top]
 *                     `-- uploaded    `-- downloaded
 *
 *   places            those of the picks of rows, as in round.h, and then one for each prompt token
 *                     of the round's chunks
 *
 * Position p of a prompt tells how probable token p + 1 is. So all prompt tokens that chunks
 * compute are scored, and none but these. A sequence that was preempted computes them anew, but
 * keeps the scores that it has.
 *
 * The block grows when a request is submitted that needs more than any before it, because a step
 * takes no memory. Rounds in which nobody wants scores do not touch it.
 */
#ifndef SB_SCORES_H
#define SB_SCORES_H

#include "backend/backend.h"
#include "engine/seq.h"

struct sb_round;
struct sb_chunk;
struct specbatch_model;

/* What a request wants, and has so far. */
struct sb_seq_scores {
    int32_t n_top;       /* alternatives to each token; 0: none */
    int32_t is_filtered; /* 1: log-probabilities are by what its sampler leaves */
    int32_t has_prompt;  /* 1: its prompt is scored */
    int32_t n_scored;    /* positions of the prompt so far that have a score */
    int32_t *top_ids;    /* [max_tokens - n_prompt, n_top], of the generated tokens */
    float *top_logprobs;
    float *prompt_logprobs;  /* [n_prompt - 1], of the second token and so on */
    int32_t *prompt_top_ids; /* [n_prompt - 1, n_top] */
    float *prompt_top_logprobs;
};

/* Whether some position of its prompt is yet to be scored. */
static inline int sb_seq_is_scoring(const struct sb_seq *seq)
{
    const struct sb_seq_scores *scores = seq->scores;

    return scores && scores->has_prompt && scores->n_scored < seq->n_prompt - 1;
}

/* Whether this position of it is. */
static inline int sb_seq_scores_at(const struct sb_seq *seq, int32_t pos)
{
    return sb_seq_is_scoring(seq) && pos >= seq->scores->n_scored && pos < seq->n_prompt - 1;
}

/* The scores of a round. */
struct sb_score_block {
    char *host, *dev;
    size_t bytes;          /* of either; 0: no request has needed one yet */
    int32_t places;        /* a round has so many */
    int32_t n_top;         /* alternatives that there is room for */
    int32_t n_moved;       /* how often it has grown, and so moved */
    struct sb_want *wants; /* in the host's block, as the next two */
    int32_t *ids;
    float *logprobs;
    struct sb_scores view;
};

/* Takes the memory of a sequence's scores, which may want none. E_NOMEM. */
int32_t sb_seq_scores_create(struct sb_seq *seq, const struct sb_mem *mem, int32_t n_top,
                             uint32_t flags);
void sb_seq_scores_free(const struct sb_mem *mem, struct sb_seq *seq);
size_t sb_seq_scores_bytes(const struct sb_seq *seq);

/* Makes room for a sequence like this one. E_NOMEM, E_DEVICE. */
int32_t sb_score_block_reserve(struct sb_score_block *block, struct specbatch_model *model,
                               const struct sb_mem *mem, const struct sb_seq *seq);
void sb_score_block_free(struct sb_score_block *block, struct specbatch_model *model,
                         const struct sb_mem *mem);
/* Whether some row or chunk of the round wants scores. */
int sb_round_wants_scores(const struct sb_round *round);
/* Fills in the wants of the round. */
void sb_scores_fill(struct sb_round *round);
/* After that: the place of a padding token wants nothing. */
void sb_scores_want_nothing(struct sb_round *round, int32_t place);
/* Queues the upload of the wants, and the download of the alternatives. E_DEVICE. */
int32_t sb_scores_upload(const struct sb_round *round, struct sb_exec *exec);
int32_t sb_scores_download(const struct sb_round *round, struct sb_exec *exec);

/* Gives token i of an answer its alternatives, from a place of the round. */
void sb_scores_take(const struct sb_round *round, struct sb_seq *seq, int32_t i, int32_t place);
/* Gives a prompt the scores that a chunk has computed; `place`: of the chunk's first token. Ends
 * the sequence if there are NaN logits. Call it before the chunk counts as cached. */
void sb_scores_take_prompt(const struct sb_round *round, const struct sb_chunk *chunk,
                           int32_t place);

/* For the audit. Whether two sequences want the same; whether token i of their answers has the same
 * alternatives; and whether their prompts have the same scores, as far as both have been scored. */
int sb_scores_want_same(const struct sb_seq *a, const struct sb_seq *b);
int sb_scores_same_at(const struct sb_seq *a, const struct sb_seq *b, int32_t i);
int sb_scores_same_prompt(const struct sb_seq *a, const struct sb_seq *b);

#endif
