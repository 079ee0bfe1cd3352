/*
 * The draft made of the text itself.
 *
 * It looks for the last n tokens of a sequence at an earlier place of the same sequence, prompt
 * included. It takes the largest n from max_match down to min_match that occurs, and of its places
 * the latest, and proposes the tokens that followed there. Summaries, edited code and answers that
 * quote repeat long stretches, and then most proposals are right although no model made them. Where
 * the tokens that followed run out, because the match is near the end, the proposals continue
 * themselves: a text with a period of three tokens is continued for as long as is asked.
 *
 *   A. Saxena: Prompt Lookup Decoding. 2023. It takes the first match, of at most three tokens.
 *   N. Yang et al.: Inference with Reference: Lossless Acceleration of Large Language Models
 *   (LLMA). arXiv 2304.04487, 2023. It copies from documents that are given as references.
 *
 * Both search the whole text again in every round. Here every slot has a hash table for each n,
 * from the n-grams of its sequence to the place behind their latest occurrence:
 *
 *   position   0 1 2 3 4 5 6
 *   token      a b c x a b c            The trigram "a b c" is followed at 3, so x is proposed,
 *                                       then a, b, c, and then the proposals again: x, a, ...
 *
 * An n-gram is entered when a token stands behind it, so the last n tokens find earlier places
 * only. Tables hold positions and no n-grams, whose tokens are in the sequence. Their memory is
 * taken with the pool, since a round takes none. A sequence uses and clears as much of its slot's
 * tables as max_tokens of its own need, so its prompt and each new token cost a constant number of
 * accesses a length on average, whatever the text is (hash.h).
 *
 * Rejected: a suffix automaton, which finds matches of every length, but takes more memory, and
 * many steps to know the latest of them; longer matches won next to nothing (docs/performance.md).
 * Chains of the positions of equal n-grams, as data compressors have them: in a text that repeats
 * itself a chain is as long as the text.
 */
#include "engine/draft.h"

#include <string.h>

#include "hash.h"
#include "options.h"
#include "status.h"

/* ------------------------------------------------------------ a pool's draft */

/* The state of a slot's tables. */
struct ngram_slot {
    uint64_t id;     /* of the request that they are of; 0: of none */
    int32_t n_ends;  /* n-grams that end before positions 1 .. n_ends are entered */
    uint32_t places; /* of each table that the sequence uses: a power of two */
};

struct ngram_draft {
    struct sb_draft base;
    int32_t max_match, min_match;
    struct sb_hash_key key;
    size_t places;            /* of each table */
    struct ngram_slot *slots; /* [n_slots] */
    int32_t *ends;            /* [n_slots][max_match - min_match + 1][places]: 0, or the position
                                 behind the latest occurrence of an n-gram */
};

static size_t n_tables(int32_t max_match, int32_t min_match)
{
    return (size_t)(max_match - min_match) + 1;
}

/* The places that a table needs for the n-grams of n_tokens tokens: a third at least stay free. */
static uint32_t places_for(int32_t n_tokens)
{
    uint32_t places = 2;

    while (2 * (uint64_t)places < 3 * (uint64_t)n_tokens)
        places *= 2;
    return places;
}

static int32_t *table_of(const struct ngram_draft *draft, int32_t slot, int32_t n)
{
    const size_t of_slot = n_tables(draft->max_match, draft->min_match) * draft->places;

    return draft->ends + (size_t)slot * of_slot + (size_t)(n - draft->min_match) * draft->places;
}

/* The place of the n tokens before position `end` in their table: the one that has them, or the
 * free one that they would get. */
static int32_t *place_of(const struct ngram_draft *draft, const struct sb_seq *seq, int32_t n,
                         int32_t end)
{
    const size_t bytes = (size_t)n * sizeof *seq->tokens;
    const int32_t *ngram = seq->tokens + end - n;
    const uint32_t mask = draft->slots[seq->slot].places - 1;
    int32_t *table = table_of(draft, seq->slot, n);
    uint32_t at = (uint32_t)sb_hash(&draft->key, ngram, bytes) & mask;

    while (table[at] != 0 && memcmp(seq->tokens + table[at] - n, ngram, bytes) != 0)
        at = (at + 1) & mask;
    return &table[at];
}

/* Gives the tables of a slot to the sequence that has it now. */
static void begin(struct ngram_draft *draft, const struct sb_seq *seq)
{
    struct ngram_slot *slot = &draft->slots[seq->slot];

    *slot = (struct ngram_slot){.id = seq->id, .places = places_for(seq->max_tokens)};
    for (int32_t n = draft->min_match; n <= draft->max_match; n++)
        memset(table_of(draft, seq->slot, n), 0, slot->places * sizeof *draft->ends);
}

/* Enters all n-grams that have a token behind them. */
static void enter_ngrams(struct ngram_draft *draft, const struct sb_seq *seq)
{
    struct ngram_slot *slot = &draft->slots[seq->slot];

    if (slot->id != seq->id)
        begin(draft, seq);
    while (slot->n_ends < seq->n_tokens - 1) {
        const int32_t end = ++slot->n_ends;
        for (int32_t n = draft->min_match; n <= draft->max_match && n <= end; n++)
            *place_of(draft, seq, n, end) = end;
    }
}

/* The position of the first token to propose, or 0 if not even min_match tokens recur. */
static int32_t find_match(const struct ngram_draft *draft, const struct sb_seq *seq)
{
    int32_t n = draft->max_match < seq->n_tokens ? draft->max_match : seq->n_tokens, found = 0;

    for (; n >= draft->min_match && !found; n--)
        found = *place_of(draft, seq, n, seq->n_tokens);
    return found;
}

static int32_t ngram_prepare(struct sb_draft *base, struct sb_round *round)
{
    struct ngram_draft *draft = (struct ngram_draft *)base;

    for (int32_t b = 0; b < round->n_rows; b++) {
        struct sb_round_row *row = &round->rows[b];
        const struct sb_seq *seq = row->seq;
        int32_t *out = round->tokens + b * round->stride + 1, from;
        if (row->n_draft == 0)
            continue;
        enter_ngrams(draft, seq);
        if ((from = find_match(draft, seq)) == 0)
            row->n_draft = 0;
        for (int32_t i = 0; i < row->n_draft; i++, from++)
            out[i] = from < seq->n_tokens ? seq->tokens[from] : out[from - seq->n_tokens];
        if (row->n_draft > round->n_steps)
            round->n_steps = row->n_draft;
    }
    return SPECBATCH_OK;
}

static void ngram_free(struct sb_draft *base)
{
    struct ngram_draft *draft = (struct ngram_draft *)base;
    const struct sb_mem mem = base->mem;

    sb_free(&mem, draft->slots);
    sb_free(&mem, draft->ends);
    sb_free(&mem, draft);
}

static const struct sb_draft_ops ngram_ops = {ngram_prepare, NULL, NULL, ngram_free};

/* ------------------------------------------------------------------ a source */

/* The tokens that are compared unless the options say so: at most and at least; and the bound of
 * both. */
enum { MAX_MATCH = 8, MIN_MATCH = 2, MATCH_LIMIT = 16 };

struct ngram_source {
    struct specbatch_draft base;
    int32_t max_match, min_match;
};

/* Positions in the tables of all slots together. E_INVALID. */
static int32_t count_ends(const struct ngram_source *source, const struct sb_draft_limits *limits,
                          size_t *n)
{
    const size_t tables = n_tables(source->max_match, source->min_match);

    if (!sb_mul_size((size_t)limits->target.n_slots, tables * places_for(limits->max_len), n) ||
        *n > SIZE_MAX / sizeof(int32_t))
        return sb_fail(SPECBATCH_E_INVALID, "the n-grams of %d slots of %d tokens: too large",
                       limits->target.n_slots, limits->max_len);
    return SPECBATCH_OK;
}

static int32_t source_bytes(const struct specbatch_draft *source,
                            const struct sb_draft_limits *limits, uint64_t *cache, uint64_t *work)
{
    size_t n_ends;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(count_ends((const struct ngram_source *)source, limits, &n_ends));
    *cache = 0;
    *work = (uint64_t)n_ends * sizeof(int32_t) +
            (uint64_t)limits->target.n_slots * sizeof(struct ngram_slot);
done:
    return rc;
}

static int32_t source_create(struct sb_draft **out, const struct specbatch_draft *base,
                             const struct sb_runner *target, const struct sb_mem *mem,
                             const struct sb_draft_limits *limits)
{
    const struct ngram_source *source = (const struct ngram_source *)base;
    struct ngram_draft *draft = NULL;
    size_t n_ends;
    int32_t rc = SPECBATCH_OK;

    (void)target;
    SB_TRY(count_ends(source, limits, &n_ends));
    SB_NEW(draft, sb_alloc(mem, 1, sizeof *draft), "a draft");
    draft->base = (struct sb_draft){.ops = &ngram_ops, .mem = *mem};
    draft->max_match = source->max_match;
    draft->min_match = source->min_match;
    draft->key = sb_hash_draw(draft);
    draft->places = places_for(limits->max_len);
    SB_NEW(draft->slots, sb_alloc(mem, (size_t)limits->target.n_slots, sizeof *draft->slots),
           "a draft");
    SB_NEW(draft->ends, sb_alloc_raw(mem, n_ends, sizeof *draft->ends), "a draft");
    *out = &draft->base;
    draft = NULL;
done:
    if (draft)
        ngram_free(&draft->base);
    return rc;
}

static void source_free(struct specbatch_draft *source)
{
    const struct sb_mem mem = source->mem;

    sb_free(&mem, source);
}

static const struct sb_source_ops source_ops = {"n-grams",     0,          NULL, source_bytes,
                                                source_create, source_free};

/* Fills in the defaults, which make way for what is given, and checks the ranges. */
static int32_t resolve(specbatch_ngram_options *full, const specbatch_ngram_options *given)
{
    static const char what[] = "n-gram options";
    int32_t rc;

    SB_TRY(sb_options_copy(full, sizeof *full, given, what));
    if (full->max_match == 0)
        full->max_match = full->min_match > MAX_MATCH ? full->min_match : MAX_MATCH;
    SB_TRY(sb_check_range(what, "max_match", full->max_match, 1, MATCH_LIMIT));
    if (full->min_match == 0)
        full->min_match = full->max_match < MIN_MATCH ? full->max_match : MIN_MATCH;
    SB_TRY(sb_check_range(what, "min_match", full->min_match, 1, full->max_match));
done:
    return rc;
}

int32_t sb_source_from_ngrams(struct specbatch_draft **out, const specbatch_ngram_options *options)
{
    const struct sb_mem c_library = {NULL, NULL, NULL};
    struct ngram_source *source;
    specbatch_ngram_options full;
    int32_t rc;

    SB_TRY(resolve(&full, options));
    SB_NEW(source, sb_alloc(&c_library, 1, sizeof *source), "a draft");
    sb_source_init(&source->base, &source_ops, &c_library);
    source->max_match = full.max_match;
    source->min_match = full.min_match;
    *out = &source->base;
done:
    return rc;
}
