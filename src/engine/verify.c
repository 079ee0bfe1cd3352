/*
 * Verification and commitment: the only way in which a token gets into a sequence.
 *
 * The target's pass of a round holds
 *
 *   for each decode row    its last committed token and its n proposals: n + 1 queries. The target
 *                          selects a token after each. Plain decoding is the case n = 0.
 *   for each prompt chunk  that part of the prompt. Nothing is selected, but where the prompt is to
 *                          be scored it is told how probable the token was that follows (scores.h)
 *
 * Acceptance is the paper's Algorithm 1, lines 8-15, except that a row all of whose proposals are
 * accepted keeps the bonus token too.
 *
 * Chunks. A prompt is cut at multiples of prefill_chunk from its own first token, so the boundaries
 * depend on that prompt alone. Its last token belongs to no chunk: it is the first query that the
 * sequence decodes with. For a newcomer that query is in the same pass as the prompt's last chunk.
 * This works because each layer writes the keys and values of all of a pass's tokens before it
 * reads any, so the query finds entries of its own pass just as it would find those of an earlier
 * one. A pass with chunks is therefore not apart (struct sb_pass).
 *
 * Spans. Where the backend wants them, prefill_chunk is a multiple of a span's length
 * (pool/create.c). So a chunk holds a span whole or not at all, and which spans a prompt has
 * depends on neither the chunk length nor the round.
 */
#include "engine/round.h"
#include "engine/stops.h"

#include "fault.h"
#include "status.h"

/* Adds padding tokens to row b, from index j of the row on, where the round is padded. */
static void add_padding(struct sb_round *round, struct sb_runner *target, int32_t sink, int32_t b,
                        int32_t j)
{
    for (; round->padded && j <= round->n_steps; j++) {
        const int32_t place = b * round->stride + j;
        sb_pass_add_token(target, sink, 0, sb_round_padding_at(round), place);
        if (round->wants & SB_WANTS_SCORES)
            sb_scores_want_nothing(round, place);
    }
}

static void add_decode_row(struct sb_round *round, struct sb_runner *target, int32_t b,
                           int32_t sink)
{
    const struct sb_round_row *row = &round->rows[b];
    const struct sb_seq *seq = row->seq;
    const int32_t in_pass = sb_pass_add_seq(target, seq->at, seq->cap, seq->start);
    const int32_t first = b * round->stride;
    /* A newcomer's query stands behind the prompt tokens whose entries this pass will write. */
    const int32_t pos = b < sb_round_n_ready(round) ? seq->kv_len : sb_seq_content(seq);

    round->n_draft[b] = row->n_draft;
    for (int32_t j = 0; j <= row->n_draft; j++)
        sb_pass_add_token(target, in_pass, pos + j, first + j, first + j);
    add_padding(round, target, sink, b, row->n_draft + 1);
}

/* Whether a span of this prompt begins at `pos`. A preempted sequence that is computed anew has its
 * answer so far in chunks too, and none of that in spans, as it never was in one. */
static int begins_span(const struct sb_seq *seq, int32_t pos, int32_t span)
{
    if (SB_FAULT(RECOMPUTED_AS_PROMPT) && span > 0)
        return pos % span == 0 && pos + span <= sb_seq_content(seq);
    return pos < sb_seq_spanned(seq, span) && pos % span == 0;
}

/* `at` is where the chunk's tokens go in round->tokens. Their places in the verdict are behind
 * those of the rows. */
static void add_chunk(struct sb_round *round, struct sb_runner *target,
                      const struct sb_chunk *chunk, int32_t at)
{
    const struct sb_seq *seq = chunk->seq;
    const int32_t in_pass = sb_pass_add_seq(target, seq->at, seq->cap, seq->start);

    for (int32_t i = 0; i < chunk->n; i++) {
        if (begins_span(seq, seq->kv_len + i, target->limits.span))
            sb_pass_add_span(target, in_pass, seq->kv_len + i);
        round->tokens[at + i] = seq->tokens[seq->kv_len + i];
        sb_pass_add_token(target, in_pass, seq->kv_len + i, at + i,
                          sb_seq_scores_at(seq, seq->kv_len + i)
                              ? round->gaps_at + at + i - round->chunks_at
                              : -1);
    }
}

void sb_verify_prepare(struct sb_round *round, struct sb_runner *target)
{
    int32_t at = round->chunks_at, sink = 0;

    sb_pass_begin(target, 0);
    target->building->is_apart = round->n_chunks == 0;
    if (round->padded)
        sink = sb_pass_add_sink(target);
    for (int32_t b = 0; b < round->n_rows; b++)
        add_decode_row(round, target, b, sink);
    for (int32_t b = round->n_rows; b < round->n_padded; b++) {
        round->n_draft[b] = 0;
        add_padding(round, target, sink, b, 0);
    }
    for (int32_t i = 0; i < round->n_chunks; i++) {
        add_chunk(round, target, &round->chunks[i], at);
        at += round->chunks[i].n;
    }
    if (round->padded)
        sb_pass_fill_up(target, round->n_padded + 1, round->max_len);
}

/* Bytes of the verdict that are downloaded: all but the log-probabilities of prompts, unless there
 * may be some. */
static size_t verdict_bytes(const struct sb_round *round)
{
    const size_t of_prompts = (size_t)round->chunk_tokens * sizeof *round->logprob;

    return round->verdict_bytes - (round->wants & SB_WANTS_SCORES ? 0 : of_prompts);
}

int32_t sb_verify_issue(struct sb_round *round, struct sb_runner *target)
{
    const struct sb_backend *be = target->backend;
    const int32_t wants = round->wants;
    int32_t rc = SPECBATCH_OK;

    sb_pass_run(target, 0, round->dev_tokens);
    if (round->n_rows == 0 && !(wants & SB_WANTS_SCORES))
        return rc;
    sb_pass_select(target, 0, target->model->config.vocab, sb_round_samplers(round),
                   round->dev_picks, wants & SB_WANTS_LOGPROBS ? round->dev_logprob : NULL,
                   wants & SB_WANTS_MARGINS ? round->dev_margin : NULL,
                   wants & SB_WANTS_SCORES ? &round->scores.view : NULL);
    be->accept(target->exec, round->dev_tokens, round->dev_picks, round->dev_n_draft,
               round->n_padded, round->stride, round->dev_n_accept);
    SB_TRY(
        be->download(target->exec, round->host_verdict, round->dev_verdict, verdict_bytes(round)));
    if (wants & SB_WANTS_SCORES)
        SB_TRY(sb_scores_download(round, target->exec));
    if (SB_FAULT(BONUS_FROM_DRAFT))
        SB_TRY(
            be->download(target->exec, round->host_inputs, round->dev_inputs, round->tokens_bytes));
done:
    return rc;
}

/* `place`: of its first token in the verdict. */
static void finish_chunk(struct sb_round *round, const struct sb_chunk *chunk, int32_t place)
{
    struct sb_seq *seq = chunk->seq;

    if (seq->scores)
        sb_scores_take_prompt(round, chunk, place);
    seq->kv_len += chunk->n + SB_FAULT(PREFILL_SKIPS_ONE);
    if (!seq->finish && sb_seq_is_ready(seq) && seq->n_tokens == seq->max_tokens)
        seq->finish = SPECBATCH_FINISH_LENGTH;
}

void sb_verify_finish(struct sb_round *round)
{
    int32_t place = round->gaps_at;

    for (int32_t b = 0; b < round->n_rows; b++) {
        struct sb_round_row *row = &round->rows[b];
        row->n_accept = round->n_accept[b];
        if (SB_FAULT(FORCED_NOT_VERIFIED) && row->n_accept < row->n_forced)
            row->n_accept = row->n_forced;
    }
    for (int32_t i = 0; i < round->n_chunks; i++) {
        finish_chunk(round, &round->chunks[i], place);
        place += round->chunks[i].n;
    }
}

/* If there are several reasons, the first one here is reported. */
int32_t sb_finish_at(const struct sb_seq *seq, const struct sb_config *config, int32_t id)
{
    if (!seq->ignore_eos)
        for (int32_t i = 0; i < config->n_eos; i++)
            if (id == config->eos[i])
                return SPECBATCH_FINISH_EOS;
    for (int32_t i = 0; i < seq->n_stop_ids; i++)
        if (id == seq->stop_ids[i])
            return SPECBATCH_FINISH_STOP;
    if (seq->n_tokens == seq->max_tokens)
        return SPECBATCH_FINISH_LENGTH;
    return 0;
}

/* Appends one selected token to a sequence; `at` is its index in the round's verdict. Returns 0
 * when the sequence ends with it, or before it at a stop string. */
static int append(struct sb_round *round, struct sb_seq *seq, int32_t at, int32_t id,
                  int was_accepted)
{
    const int32_t i = sb_seq_n_generated(seq);

    if (id < 0) {
        seq->finish = SPECBATCH_FINISH_ERROR;
        seq->status = sb_fail(id == SB_PICK_NAN ? SPECBATCH_E_NAN : SPECBATCH_E_NO_CHOICE,
                              id == SB_PICK_NAN ? "request %llu: NaN logits after %d tokens"
                                                : "request %llu: no token is allowed after %d",
                              (unsigned long long)seq->id, seq->n_tokens);
        if (seq->stops)
            sb_stops_cut(seq);
        return 0;
    }
    seq->tokens[seq->n_tokens++] = id;
    seq->accepted += was_accepted != 0;
    if (seq->logprobs)
        seq->logprobs[i] = round->logprob[at + SB_FAULT(LOGPROB_SHIFTED)];
    if (seq->margins)
        seq->margins[i] = round->margin[at];
    if (seq->scores)
        sb_scores_take(round, seq, i, at);
    seq->finish = sb_finish_at(seq, &round->model->config,
                               SB_FAULT(STOP_LATE) ? seq->tokens[seq->n_tokens - 2] : id);
    if (seq->stops)
        sb_stops_take(seq, was_accepted);
    return !seq->finish;
}

int32_t sb_commit(struct sb_round *round, int32_t b)
{
    const struct sb_round_row *row = &round->rows[b];
    const int32_t first = b * round->stride, before = row->seq->n_tokens;
    struct sb_seq *seq = row->seq;
    int32_t n;

    /* A prompt may have ended it in this round's own pass. */
    for (n = 0; n <= row->n_accept && !seq->finish; n++) {
        const int from_draft = (SB_FAULT(BONUS_FROM_DRAFT) && n == row->n_accept &&
                                n < row->n_draft) ||
                               (SB_FAULT(FORCED_NOT_VERIFIED) && n < row->n_forced);
        if (!append(round, seq, first + n,
                    from_draft ? round->tokens[first + n + 1] : round->picks[first + n],
                    n < row->n_accept))
            break;
    }
    n = seq->n_tokens - before;
    /* Both caches forget what was not committed, by their lengths: entries beyond a length are
     * never read. */
    seq->kv_len += n + (SB_FAULT(LAST_KV_PRESENT) && seq->rounds == 0);
    if (seq->draft_kv_len > seq->n_tokens - 1 + SB_FAULT(DRAFT_NOT_ROLLED_BACK))
        seq->draft_kv_len = seq->n_tokens - 1 + SB_FAULT(DRAFT_NOT_ROLLED_BACK);
    seq->rounds++;
    seq->drafted += (uint64_t)row->n_draft;
    return n;
}
