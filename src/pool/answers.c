/* Sharing the columns of a prompt, and choosing the best answers; answers.h draws both. */
#include "pool/answers.h"

#include <math.h>

#include "fault.h"
#include "options.h"
#include "status.h"

struct sb_answers {
    atomic_int references; /* sequences, which are freed on any thread when they are results */
    int32_t n, n_made;     /* answers there will be, and those that were added so far */
    int32_t n_given;       /* how many of them are handed out */
    int32_t n_ended;
    int32_t apart;               /* 1: each computes the prompt for itself */
    struct sb_seq *first, *last; /* those that have a slot, through seq->sibling_next */
    struct sb_candidate {
        struct sb_seq *seq;
        double score;
    } all[]; /* [n] */
};

static size_t bytes_for(int32_t n)
{
    return sizeof(struct sb_answers) + (size_t)n * sizeof(struct sb_candidate);
}

int32_t sb_answers_resolve(specbatch_answers *full, const specbatch_request *request)
{
    static const char what[] = "request: answers";
    int32_t rc = SPECBATCH_OK;

    *full = (specbatch_answers){.n = 1, .best_of = 1};
    if (!request->answers)
        return rc;
    SB_TRY(sb_options_copy(full, sizeof *full, request->answers, what));
    SB_TRY(sb_check_range(what, "n", full->n, 1, SB_ANSWERS_MAX));
    if (full->best_of == 0)
        full->best_of = full->n;
    SB_TRY(sb_check_range(what, "best_of", full->best_of, full->n, SB_ANSWERS_MAX));
    if (full->best_of > full->n && (request->flags & SPECBATCH_REQUEST_FILTERED_LOGPROBS))
        SB_FAIL(SPECBATCH_E_INVALID,
                "%s: best_of compares the model's own log-probabilities, and the flag "
                "FILTERED_LOGPROBS keeps others",
                what);
done:
    return rc;
}

int32_t sb_answers_create(struct sb_answers **out, const struct sb_mem *mem,
                          const specbatch_answers *full, int apart)
{
    struct sb_answers *answers;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(answers, sb_alloc(mem, 1, bytes_for(full->best_of)), "a request");
    atomic_init(&answers->references, 1);
    answers->n = full->best_of;
    answers->n_given = full->n;
    answers->apart = apart;
    *out = answers;
done:
    return rc;
}

void sb_answers_add(struct sb_answers *answers, struct sb_seq *seq)
{
    answers->all[answers->n_made++].seq = seq;
    atomic_fetch_add(&answers->references, 1);
    seq->answers = answers;
    seq->held = answers->n > answers->n_given;
}

void sb_answers_release(const struct sb_mem *mem, struct sb_answers *answers)
{
    if (answers && atomic_fetch_sub(&answers->references, 1) == 1)
        sb_free(mem, answers);
}

size_t sb_answers_bytes(const struct sb_seq *seq)
{
    const struct sb_answers *answers = seq->answers;

    return answers && seq->answer == 0 ? bytes_for(answers->n) : 0;
}

/* ------------------------------------------------------------------ copying */

static int has_prompt(const struct sb_seq *seq)
{
    return seq->kv_len >= seq->n_prompt - 1;
}

/* Entries of the prompt that a sequence has in a cache. */
static int32_t n_cached(const struct sb_seq *seq, int is_draft)
{
    const int32_t n = is_draft ? seq->draft_kv_len : seq->kv_len;

    return n < seq->n_prompt - 1 ? n : seq->n_prompt - 1;
}

/* Copies to n siblings, `to` and those before it in the list, what they lack and `from` has in one
 * cache. The list of moves is that of the realignments, none of which is asked for between rounds;
 * it has room for all residents. */
static int32_t copy_in(struct specbatch_pool *pool, struct sb_runner *runner,
                       const struct sb_seq *from, const struct sb_seq *to, int32_t n)
{
    const int is_draft = runner == pool->draft->runner;
    const int32_t have = n_cached(from, is_draft);
    struct sb_moves *moves = &pool->sched.realignment.moves;
    int32_t most = 0;

    sb_moves_begin(moves, n);
    for (int32_t i = 0; i < n; i++, to = to->sibling_previous) {
        const int32_t at = n_cached(to, is_draft), len = have > at ? have - at : 0;
        sb_moves_set(moves, i, &runner->kv,
                     (struct sb_place){from->at, from->cap, from->start + at},
                     (struct sb_place){to->at, to->cap, to->start + at}, len);
        most = len > most ? len : most;
    }
    return most > 0 ? sb_moves_run(moves, runner) : SPECBATCH_OK;
}

/* Enters what a sibling has been given by `from`. */
static void count_copied(struct specbatch_pool *pool, const struct sb_seq *from, struct sb_seq *to)
{
    const int32_t n = n_cached(from, 0), n_draft = n_cached(from, 1);

    if (n > to->kv_len) {
        pool->stats[SB_STAT_shared_prompts]++;
        pool->stats[SB_STAT_shared_tokens] += (uint64_t)(n - to->kv_len);
        to->kv_len = n;
    }
    if (n_draft > to->draft_kv_len)
        to->draft_kv_len = n_draft;
    sb_sched_cached(&pool->sched, to);
}

/* Gives n siblings, `last` and those before it in the list, what `from` has of the prompt. */
static int32_t give(struct specbatch_pool *pool, const struct sb_seq *from, struct sb_seq *last,
                    int32_t n)
{
    struct sb_seq *to = last;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(copy_in(pool, &pool->runner, from, last, n));
    if (pool->draft->runner)
        SB_TRY(copy_in(pool, pool->draft->runner, from, last, n));
    for (int32_t i = 1; i < n; i++) /* to the oldest, which is reported first (residents.h) */
        to = to->sibling_previous;
    for (; n > 0; n--, to = to->sibling_next) {
        to->follows = 0;
        count_copied(pool, from, to);
    }
done:
    return rc;
}

/* Gives all that lack it the prompt, which the first one has. */
static int32_t spread(struct specbatch_pool *pool, const struct sb_answers *answers)
{
    int32_t n = 0;

    for (struct sb_seq *seq = answers->last; !has_prompt(seq); seq = seq->sibling_previous)
        n++;
    return n > 0 ? give(pool, answers->first, answers->last, n) : SPECBATCH_OK;
}

/* ----------------------------------------------------------------- the list */

static int shares(const struct sb_seq *seq)
{
    return seq->answers && !seq->answers->apart;
}

static void link_first(struct sb_answers *answers, struct sb_seq *seq)
{
    seq->sibling_previous = NULL;
    seq->sibling_next = answers->first;
    *(answers->first ? &answers->first->sibling_previous : &answers->last) = seq;
    answers->first = seq;
}

static void link_last(struct sb_answers *answers, struct sb_seq *seq)
{
    seq->sibling_next = NULL;
    seq->sibling_previous = answers->last;
    *(answers->last ? &answers->last->sibling_next : &answers->first) = seq;
    answers->last = seq;
}

int32_t sb_answers_join(struct specbatch_pool *pool, struct sb_seq *seq)
{
    struct sb_answers *answers = seq->answers;

    if (!shares(seq))
        return SPECBATCH_OK;
    if (has_prompt(seq))
        link_first(answers, seq);
    else
        link_last(answers, seq);
    if (has_prompt(answers->first))
        return spread(pool, answers);
    seq->follows = answers->first != seq;
    return SPECBATCH_OK;
}

int32_t sb_answers_filled(struct specbatch_pool *pool, struct sb_seq *seq)
{
    return shares(seq) && has_prompt(seq) ? spread(pool, seq->answers) : SPECBATCH_OK;
}

int32_t sb_answers_hand_over(struct specbatch_pool *pool, struct sb_seq *seq)
{
    struct sb_seq *next = seq->sibling_next;

    if (!shares(seq) || seq->answers->first != seq || !next || has_prompt(next))
        return SPECBATCH_OK;
    return give(pool, seq, next, 1);
}

void sb_answers_leave(struct sb_seq *seq)
{
    struct sb_answers *answers = seq->answers;
    struct sb_seq *previous = seq->sibling_previous, *next = seq->sibling_next;

    if (!shares(seq))
        return;
    *(previous ? &previous->sibling_next : &answers->first) = next;
    *(next ? &next->sibling_previous : &answers->last) = previous;
    seq->sibling_previous = seq->sibling_next = NULL;
    seq->follows = 0;
    if (answers->first)
        answers->first->follows = 0;
}

/* --------------------------------------------------------------- the choice */

/* The mean log-probability of an answer's tokens. Answers without tokens, and those that were
 * cancelled or failed, come after all others. */
static double score_of(const struct sb_seq *seq)
{
    const int32_t n = sb_seq_n_generated(seq);
    double sum = 0.0;

    if (n == 0 || seq->finish == SPECBATCH_FINISH_CANCELLED ||
        seq->finish == SPECBATCH_FINISH_ERROR)
        return -INFINITY;
    for (int32_t i = 0; i < n; i++)
        sum += (double)seq->logprobs[i];
    return SB_FAULT(BEST_BY_SUM) ? sum : sum / n;
}

/* Takes the best candidate out: of equals the first. */
static struct sb_seq *take_best(struct sb_answers *answers)
{
    struct sb_candidate *best = NULL;
    struct sb_seq *seq;

    for (struct sb_candidate *c = answers->all; c < answers->all + answers->n; c++)
        if (c->seq && (!best || c->score > best->score))
            best = c;
    seq = best->seq;
    best->seq = NULL;
    return seq;
}

struct sb_seq *sb_answers_end(struct sb_seq *seq, struct sb_seq **dropped)
{
    struct sb_answers *answers = seq->answers;
    struct sb_seq *given = NULL, **end = &given;

    *dropped = NULL;
    seq->next = NULL;
    if (!seq->held)
        return seq;
    answers->all[seq->answer].score = score_of(seq);
    if (++answers->n_ended < answers->n)
        return NULL;
    for (int32_t i = 0; i < answers->n_given; i++) {
        *end = take_best(answers);
        (*end)->held = 0;
        (*end)->next = NULL;
        end = &(*end)->next;
    }
    for (int32_t i = 0; i < answers->n; i++)
        if (answers->all[i].seq) {
            answers->all[i].seq->next = *dropped;
            *dropped = answers->all[i].seq;
        }
    return given;
}
