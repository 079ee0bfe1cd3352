/*
 * A round: the rows chosen for one target pass, their proposals, and the target's verdict on them.
 *
 *   tokens     its sections are
 *     [b * stride]      row b: last committed token | proposal 1 | .. | proposal K; stride = K + 1
 *     [gaps_at + b]     row b: the committed token before its last one, if the draft lacks it too
 *     [chunks_at + i]   prompt tokens of the chunks that ride along
 *   n_draft    [b]     how many proposals row b has
 *
 *   The block of inputs, the same on host and device. Its beginning, as far as the round needs it,
 *   is uploaded once a round:
 *     tokens | n_draft | block of the target's pass | blocks of the draft's passes, in order
 *   (runner.h draws the block of a pass.) Samplers and wants have blocks of their own, as these
 *   grow.
 *
 *   The verdict, computed on the device and downloaded once a round:
 *   picks      the token that the target selects after each token of a row, at the same index
 *   n_accept   [b]     how many of row b's leading proposals equal the pick before them
 *   margin, logprob    of the picks, if some row wants them; and behind the picks' own
 *     logprob[gaps_at + i]   of the token that follows prompt token i of the chunks
 *
 * Alternatives to the picks are in a block of their own (scores.h).
 *
 * The new tokens of a row are picks[0 .. n_accept]. An accepted proposal equals its pick, so no
 * proposal is ever copied into a sequence: whatever a draft proposes, it cannot change a token.
 *
 *   1. sb_round_begin        writes each row's first token on the host
 *      sb_masks_force        asks masks; rows that they force ask the draft for nothing
 *   2. draft->ops->prepare   builds the draft's passes; runs only those that close long gaps
 *      sb_masks_propose      gives rows their forced proposals
 *      sb_verify_prepare     builds the target's pass; runs nothing
 *   3. sb_round_issue        uploads, runs K draft passes and the target's, accepts, downloads;
 *                            where rows have masks it waits for the draft and asks them
 *   4. sb_verify_finish      gives each row its n_accept, on the host
 *
 * A backend may record what a round issues and replay it in later rounds (backend.h). For such a
 * backend rounds are padded to few shapes, so that one recording serves many of them, also while
 * rows come and go and grow:
 *
 *     rows        rounded up to 1, 2, 4, 8, 16, 24, 32, 48, 64, ..
 *     proposals   of each row: as many as the longest row has
 *     max_len     rounded up to 256, 512, 1024, ..
 *     lists       of samplers: likewise, in words
 *
 * What a row lacks, or a whole row that is not there, is filled up with padding tokens. These lie
 * in the sink, a slot of one column that no sequence holds, so a padding token attends to itself
 * alone; they are greedy, want nothing, and nobody reads their picks. Rounds with prompt chunks are
 * not padded and not recorded, as prompts have all lengths, and those with masks neither, as the
 * host has to be asked in their middle. sb_round_key names a shape.
 */
#ifndef SB_ROUND_H
#define SB_ROUND_H

#include <stdint.h>

#include "engine/mask_block.h"
#include "engine/runner.h"
#include "engine/sampling.h"
#include "engine/scores.h"
#include "engine/seq.h"

struct sb_draft;

struct sb_round_row {
    struct sb_seq *seq;
    int32_t limit;    /* proposals that it may have at most */
    int32_t n_draft;  /* proposals: first how many are asked for, then how many were made */
    int32_t n_accept; /* how many of them the target accepts */
    int32_t n_forced; /* how many of them are all that its mask allows (masks.h): none, or all */
};

/* Prompt tokens of one sequence that ride along in the target's pass. */
struct sb_chunk {
    struct sb_seq *seq;
    int32_t n; /* how many, from position kv_len on */
};

/* Whether this chunk is the last one that the prompt needs. Ask before the pass has run. */
static inline int sb_chunk_completes_prompt(const struct sb_chunk *chunk)
{
    return chunk->seq->kv_len + chunk->n >= sb_seq_content(chunk->seq);
}

/* What a round has only when some row of it wants it: outputs beyond the tokens, each of which
 * costs a pass over the logits, samplers, and masks, which are part of samplers. */
enum sb_round_wants {
    SB_WANTS_LOGPROBS = 1,
    SB_WANTS_MARGINS = 2,
    SB_WANTS_SAMPLERS = 4,
    SB_WANTS_MASKS = 8,
    SB_WANTS_SCORES = 16
};

struct sb_round {
    struct sb_mem mem;
    struct specbatch_model *model; /* the target; borrowed */
    int32_t max_rows;
    int32_t stride;       /* of a row in `tokens` and `picks`: the pool's draft length + 1 */
    int32_t gaps_at;      /* where the section of gaps begins in `tokens` */
    int32_t chunks_at;    /* where the section of prompt tokens begins */
    int32_t chunk_tokens; /* how many that section has room for */

    struct sb_round_row *rows; /* [max_rows] decode rows */
    int32_t n_rows;
    int32_t n_newcomers; /* The last so many rows are newcomers: this round's pass completes their
                            prompts. They have no proposals. */
    struct sb_chunk *chunks; /* [max_chunks] */
    int32_t n_chunks, max_chunks;
    int32_t n_steps;  /* the largest n_draft, known once the draft has prepared */
    int32_t n_passes; /* draft passes that are issued with the round: as many as the proposals of a
                         model, n_steps at most; 0 if it made them when it prepared */
    int32_t wants;    /* enum sb_round_wants: what at least one row has asked for */
    int32_t padded;   /* 1: the round is padded */
    int32_t n_padded; /* rows with those that fill up a padded round; else n_rows */
    int32_t repeats; /* Set by sb_round_issue. 1: the next round of this shape takes as long as this
                        one. 0: recording took part of the time. */
    int32_t max_len; /* of a padded round: a bound on its positions, rounded up so that it seldom
                        changes */

    char *host_inputs, *dev_inputs;
    size_t tokens_bytes;       /* of tokens and n_draft */
    size_t pass_bytes[2];      /* of a block: of the target's pass, and of one of the draft's */
    int32_t *tokens, *n_draft; /* in the host's block */
    int32_t *dev_tokens, *dev_n_draft;

    char *host_verdict, *dev_verdict; /* picks, n_accept, margin, logprob */
    size_t verdict_bytes;
    int32_t *picks, *n_accept; /* in the host's block */
    float *logprob, *margin;
    int32_t *dev_picks, *dev_n_accept;
    float *dev_logprob, *dev_margin;

    struct sb_sampler_block samplers;
    struct sb_mask_block masks;
    struct sb_score_block scores;
};

/* Rows that were ready before the round: all but the newcomers, which come last. */
static inline int32_t sb_round_n_ready(const struct sb_round *round)
{
    return round->n_rows - round->n_newcomers;
}

struct sb_round_limits {
    int32_t max_rows;      /* decode rows */
    int32_t draft_len;     /* proposals of a row */
    int32_t max_chunks;    /* chunks that ride along */
    int32_t prefill_chunk; /* prompt tokens of all chunks together */
};

/* Bytes that sb_round_create would take, beside the blocks of passes, which runners state. */
size_t sb_round_bytes(const struct sb_round_limits *limits);
/* Fills in *round, which the caller owns and has zeroed; after a failure sb_round_free cleans up.
 * Places the blocks of the target's runner and of the draft's (NULL: there is none), which are
 * borrowed. E_NOMEM. */
int32_t sb_round_create(struct sb_round *round, struct sb_runner *target, struct sb_runner *draft,
                        const struct sb_mem *mem, const struct sb_round_limits *limits);
void sb_round_free(struct sb_round *round);

/* Call when the rows and prompt chunks have been chosen. Writes each row's first token on the host,
 * leaves its proposals empty, and finds out what the rows want. */
void sb_round_begin(struct sb_round *round, const struct sb_runner *target);
/* The place whose token padding tokens have: the first of the section of gaps. Its sampler is
 * greedy (sampling.h), whatever the rows' are. */
static inline int32_t sb_round_padding_at(const struct sb_round *round)
{
    return round->gaps_at;
}
/* From now on the round is not padded. Before its passes are built. */
void sb_round_unpad(struct sb_round *round);
/* The key of a padded round's recording: what decides which operations it issues, with which sizes
 * and addresses. */
uint64_t sb_round_key(const struct sb_round *round);
/* The samplers of its rows, or NULL if they all are greedy. */
const struct sb_samplers *sb_round_samplers(const struct sb_round *round);
/* round_issue.c: uploads what passes read of the round, but no pass, by either runner. E_DEVICE. */
int32_t sb_round_upload(const struct sb_round *round, const struct sb_runner *runner);
/* round_issue.c: runs what has been prepared and waits for it. *drafted_ns: the time at which the
 * draft's passes had been issued. E_DEVICE. */
int32_t sb_round_issue(struct sb_round *round, struct sb_runner *target, struct sb_draft *draft,
                       uint64_t *drafted_ns);

/* verify.c: builds the target's pass over all rows and prompt chunks. */
void sb_verify_prepare(struct sb_round *round, struct sb_runner *target);
/* Issues that pass with selection, acceptance and the download of the verdict, which is complete
 * after the next exec_sync. E_DEVICE. */
int32_t sb_verify_issue(struct sb_round *round, struct sb_runner *target);
/* Call after that exec_sync: gives rows their n_accept and prompts their scores, and counts prompt
 * chunks as cached. A sequence that shall have no answer ends with its prompt. */
void sb_verify_finish(struct sb_round *round);
/* Why a sequence ends at token `id`, its latest, or 0 if it does not: SPECBATCH_FINISH_*. */
int32_t sb_finish_at(const struct sb_seq *seq, const struct sb_config *config, int32_t id);
/* Appends what a row won to its sequence: n_accept + 1 tokens, or fewer if one of them ends the
 * sequence, which is then the last; a stop string also takes tokens of earlier rounds back. Cuts
 * both caches back to the committed tokens. Returns by how many tokens the sequence has grown, a
 * negative number if more were taken back. */
int32_t sb_commit(struct sb_round *round, int32_t row);

#endif
