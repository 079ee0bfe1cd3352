/*
 * Sequences of calls on a pool. The first bytes choose the models, the draft and the pool's
 * options; then each byte is a call, with the bytes behind it as arguments. Beside the pool goes
 * the simplest model of what it may do: which requests exist, what was polled of each, which were
 * collected. At the end everything is run out, collected and given back.
 *
 * What is checked: every status is one that the header allows just there; ids are 1, 2, 3, ...;
 * each request is collected once; polled tokens are the result's first ones; tokens of a text
 * stream make the result's text; a draft that calls its pool is told that it is busy, and it
 * hears once of the end of each request that it has proposed for; results are equal to plain
 * decoding's, when the input asks for it; and all memory comes back.
 *
 * Some requests wish for more (add_wishes): sampling with numbers of any kind, stop strings, masks,
 * several answers or the best of some, deadlines. Each answer has an entry of its own, and all of
 * them the request of the first. Of the best of some it is not known here which are handed out,
 * only how many.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/support/fuzz.h"

#define RANDOM_TARGET "test/data/models/qwen3_untied_f32_sharded"
#define RANDOM_DRAFT RANDOM_TARGET ".draft"
#define TEXT_MODEL "examples/demo/draft"

enum {
    REQUESTS = 12, /* of one input */
    MAX_LEN = 48,
    MAX_NEW = 12,
    PROMPT = 40,
    STOP = 3,         /* bytes of a stop string */
    STEPS_MAX = 2000, /* to run out: far more than any pool here needs */
    MEMORY = 64 << 20
};

enum { UNKNOWN, ALIVE, CANCELLED, COLLECTED };

struct asked {
    struct asked *first; /* of the answers to its request, perhaps itself */
    int state;
    int proposed, retired;     /* the draft has been asked for it, and told of its end */
    specbatch_request request; /* its pointers are to the arrays below */
    int32_t ids[PROMPT], stop;
    specbatch_sampling sampling;
    int32_t bias_id;
    float bias;
    specbatch_stops stops;
    const char *stop_strings[2];
    char stop_text[2][STOP + 1];
    specbatch_mask mask;
    uint8_t rule; /* of the mask */
    specbatch_answers answers;
    int n_collected; /* of these answers */
    char text[PROMPT];
    int32_t polled[MAX_NEW];
    size_t n_polled;
    specbatch_text_stream *stream; /* NULL without a tokenizer */
    char streamed[64 * MAX_NEW];
    size_t n_streamed;
};

struct world {
    struct fuzz_input input;
    specbatch_model *target;
    specbatch_pool *pool;
    specbatch_pool_options options;
    struct asked asked[REQUESTS + 1]; /* by id */
    uint64_t n;                       /* submitted */
    int fails;                        /* the draft or a mask has broken its rules in this step */
    int has_ops, released;            /* the draft is functions; they were told of their end */
};

/* ------------------------------------------------------------------------------- draft */

static specbatch_model *open_once(int which)
{
    static const char *const paths[] = {RANDOM_TARGET, RANDOM_DRAFT, TEXT_MODEL};
    static specbatch_model *models[3];

    if (!models[which])
        FUZZ_CHECK(specbatch_model_open(&models[which], paths[which], NULL) == SPECBATCH_OK);
    return models[which];
}

static void check_row(const struct world *w, const specbatch_draft_row *row)
{
    const uint64_t id = row->request_id;

    FUZZ_CHECK(row->struct_size == sizeof *row && row->n_out == 0);
    FUZZ_CHECK(id >= 1 && id <= w->n && w->asked[id].state == ALIVE);
    FUZZ_CHECK(row->request_user == w->asked[id].first && !w->asked[id].retired);
    FUZZ_CHECK(row->k >= 1 && row->k <= w->options.draft_len);
    FUZZ_CHECK(row->n_tokens >= 1 && row->n_tokens < MAX_LEN);
    const int32_t last = row->tokens[row->n_tokens - 1];
    FUZZ_CHECK(last >= 0 && last < specbatch_model_vocab_size(w->target));
}

/* Bytes of the input; now and then more than is allowed, or a call of the pool that asks. Returns
 * what propose is to return. */
static int32_t propose_row(struct world *w, specbatch_draft_row *row)
{
    const uint8_t how = fuzz_byte(&w->input);
    uint64_t value;

    if (how % 64 == 63) {
        w->fails = 1;
        row->n_out = how & 128 ? -1 : row->k + 1;
        return SPECBATCH_OK;
    }
    if (how % 64 == 62) {
        FUZZ_CHECK(specbatch_pool_step(w->pool, NULL) == SPECBATCH_E_BUSY);
        FUZZ_CHECK(specbatch_pool_cancel(w->pool, row->request_id) == SPECBATCH_E_BUSY);
        FUZZ_CHECK(specbatch_pool_stat(w->pool, "rounds", &value) == SPECBATCH_OK);
    }
    for (int32_t i = 0; i < row->k; i++)
        row->out[i] = how % 2 ? row->tokens[(row->n_tokens + (size_t)i) % row->n_tokens]
                              : (int32_t)fuzz_number(&w->input, 2) - 8;
    row->n_out = how % 3 ? row->k : row->k / 2;
    w->fails |= how % 64 == 61;
    return how % 64 == 61 ? 1 : SPECBATCH_OK;
}

static int32_t propose(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    struct world *w = user;
    int32_t stop = 0;

    FUZZ_CHECK(n_rows >= 1 && n_rows <= (size_t)w->options.batch);
    for (size_t i = 0; i < n_rows; i++) {
        check_row(w, rows[i]);
        w->asked[rows[i]->request_id].proposed = 1;
        stop |= propose_row(w, rows[i]);
    }
    return stop;
}

static void retire(void *user, uint64_t id, void *request_user)
{
    struct world *w = user;

    FUZZ_CHECK(id >= 1 && id <= w->n && request_user == w->asked[id].first);
    FUZZ_CHECK(w->asked[id].proposed && !w->asked[id].retired);
    w->asked[id].retired = 1;
}

static void release(void *user)
{
    ((struct world *)user)->released++;
}

/* A draft of each kind. NULL is one too. */
static specbatch_draft *make_draft(struct world *w, uint8_t how)
{
    specbatch_draft_ops ops = SPECBATCH_DRAFT_OPS_INIT;
    specbatch_ngram_options ngrams = SPECBATCH_NGRAM_OPTIONS_INIT;
    specbatch_draft *draft = NULL;
    int32_t rc = SPECBATCH_OK;

    if (how & 128) {
        ops.propose = propose;
        ops.retire = retire;
        ops.release = release;
        ops.user = w;
        rc = specbatch_draft_from_ops(&draft, &ops);
    } else if ((how & 66) == 66) {
        ngrams.max_match = 1 + (int32_t)fuzz_below(&w->input, 16);
        ngrams.min_match = 1 + (int32_t)fuzz_below(&w->input, (uint32_t)ngrams.max_match);
        rc = specbatch_draft_from_ngrams(&draft, &ngrams);
    } else if (!(how & 2)) {
        rc = specbatch_draft_from_model(&draft, open_once(how & 1 ? 2 : 1));
    }
    FUZZ_CHECK(fuzz_status(rc) == SPECBATCH_OK);
    return draft;
}

/* ------------------------------------------------------------------------------ wishes */

static struct world *stepped; /* for masks, which also run in an audit's pool */

/* By the rule: all, an eighth, one id, or none; a function of the rule and the tokens. In the pool
 * itself, not in an audit, it may fail, or call the pool. */
static int32_t allow(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    const struct asked *a = user;
    const uint8_t how = stepped ? fuzz_byte(&stepped->input) : 0;

    if (how % 64 == 62)
        FUZZ_CHECK(specbatch_pool_step(stepped->pool, NULL) == SPECBATCH_E_BUSY);
    for (size_t b = 0; b < n_rows; b++) {
        const specbatch_mask_row *row = rows[b];
        const uint32_t chance = (uint32_t)row->tokens[row->n_tokens - 1] * 2654435761u + a->rule;
        FUZZ_CHECK(row->request_user == a && row->n_prompt + row->n_answer <= row->n_tokens);
        FUZZ_CHECK(row->n_tokens < MAX_LEN && row->n_answer < (size_t)a->request.max_new);
        for (size_t w = 0; w < row->n_words; w++)
            row->allowed[w] &= chance % 7 == 0    ? (uint32_t)(w == (chance >> 24) % row->n_words)
                               : chance % 61 == 0 ? 0u
                               : a->rule & 1      ? ~0u
                                                  : 0x11111111u;
    }
    if (how % 64 == 63)
        stepped->fails = 1;
    return how % 64 == 63;
}

/* A number that a field may have, or any other. */
static float number(struct fuzz_input *input, float usual)
{
    const uint8_t how = fuzz_byte(input);
    const uint32_t bits = how < 4 ? (uint32_t)fuzz_number(input, 4) : 0;
    float any;

    memcpy(&any, &bits, sizeof any);
    return how < 4 ? any : usual * (float)(how & 15) / 8.0f;
}

static void wish_sampling(struct fuzz_input *input, struct asked *a)
{
    specbatch_sampling *s = &a->sampling;

    *s = (specbatch_sampling)SPECBATCH_SAMPLING_INIT;
    s->seed = fuzz_byte(input);
    s->temperature = number(input, 1.0f);
    s->top_k = (int32_t)fuzz_byte(input) - 1;
    s->top_p = number(input, 0.5f);
    s->typical_p = number(input, 0.5f);
    s->min_p = number(input, 0.1f);
    s->repetition_penalty = number(input, 1.2f);
    s->presence_penalty = number(input, 1.0f);
    s->frequency_penalty = number(input, 1.0f);
    s->penalty_window = (int32_t)fuzz_byte(input) - 1;
    s->flags = fuzz_byte(input) % 16 == 15 ? 2 : fuzz_byte(input) & 1;
    a->bias_id = (int32_t)fuzz_number(input, 2) - 1;
    a->bias = number(input, 8.0f);
    s->bias_ids = &a->bias_id;
    s->bias = &a->bias;
    s->n_bias = fuzz_byte(input) & 1;
    a->request.sampling = s;
}

/* Letters that are frequent, or any bytes. */
static void wish_stops(struct fuzz_input *input, struct asked *a)
{
    a->stops = (specbatch_stops)SPECBATCH_STOPS_INIT;
    a->stops.strings = a->stop_strings;
    a->stops.n_strings = 1 + (fuzz_byte(input) & 1);
    for (size_t i = 0; i < a->stops.n_strings; i++) {
        const size_t n = fuzz_below(input, STOP + 1);
        for (size_t k = 0; k < n; k++) {
            const uint8_t byte = fuzz_byte(input);
            a->stop_text[i][k] = byte < 128 ? " etaoin,"[byte % 8] : (char)byte;
        }
        a->stop_strings[i] = a->stop_text[i];
    }
    a->request.stops = &a->stops;
}

static void add_wishes(struct fuzz_input *input, struct asked *a)
{
    const uint8_t what = fuzz_byte(input);
    specbatch_request *r = &a->request;

    if (what & 1)
        wish_sampling(input, a);
    if (what & 2)
        wish_stops(input, a);
    if (what & 4) {
        a->mask = (specbatch_mask)SPECBATCH_MASK_INIT;
        a->mask.allow = allow;
        a->mask.user = a;
        a->rule = fuzz_byte(input);
        r->mask = &a->mask;
    }
    if (what & 8) {
        a->answers.n = (int32_t)fuzz_below(input, 4);
        a->answers.best_of = (int32_t)fuzz_below(input, 5);
        r->answers = &a->answers;
    }
    if (what & 16)
        r->min_new = (int32_t)fuzz_below(input, MAX_NEW + 2) - 1;
    if (what & 32)
        r->priority = (int32_t)fuzz_number(input, 2) - 2000;
    if (what & 64)
        r->deadline_ns = fuzz_byte(input) & 1 ? 1 : UINT64_MAX - fuzz_byte(input);
    if (what & 128) {
        r->top_logprobs = (int32_t)fuzz_below(input, 34);
        r->flags ^= fuzz_byte(input) & 1 ? SPECBATCH_REQUEST_FILTERED_LOGPROBS : 16u;
        r->draft_sources = fuzz_byte(input) & 3;
    }
}

/* How many answers a request makes. */
static uint64_t n_made(const struct asked *a)
{
    return a->answers.best_of > a->answers.n ? (uint64_t)a->answers.best_of
                                             : (uint64_t)a->answers.n;
}

/* Of its answers only the best are handed out, and that is unknown until all have ended. */
static int is_held(const struct asked *a)
{
    return a->first->answers.best_of > a->first->answers.n;
}

/* ------------------------------------------------------------------------------- calls */

/* The prompt of an earlier request, which is to end at a token that was polled of it. */
static void ask_again(struct fuzz_input *input, struct asked *a, const struct asked *old)
{
    specbatch_request *r = &a->request;

    memcpy(a->ids, old->first->ids, sizeof a->ids);
    memcpy(a->text, old->first->text, sizeof a->text);
    r->ids = old->request.ids ? a->ids : NULL;
    r->n_ids = old->request.n_ids;
    r->text = old->request.text ? a->text : NULL;
    r->text_flags = old->request.text_flags;
    if (old->n_polled > 0) {
        a->stop = old->polled[fuzz_below(input, (uint32_t)old->n_polled)];
        r->stop_ids = &a->stop;
        r->n_stop_ids = 1;
    }
}

static void make_request(struct world *w, struct asked *a)
{
    struct fuzz_input *input = &w->input;
    specbatch_request *r = &a->request;
    const int32_t vocab = specbatch_model_vocab_size(w->target);
    const uint8_t how = fuzz_byte(input);

    *a = (struct asked){.request = SPECBATCH_REQUEST_INIT, .answers = SPECBATCH_ANSWERS_INIT};
    r->user = a->first = a;
    r->max_new = 1 + (int32_t)fuzz_below(input, MAX_NEW);
    r->draft_len = (int32_t)fuzz_below(input, 8) - 1;
    r->flags = how & 3;
    if (how & 128) {
        r->flags |= SPECBATCH_REQUEST_PROMPT_LOGPROBS;
        r->top_logprobs = how & 31;
    }
    if (how & 4) {
        a->stop = (int32_t)fuzz_number(input, 2) % vocab;
        r->stop_ids = &a->stop;
        r->n_stop_ids = 1;
    }
    if (how & 64 && w->n > 0) {
        ask_again(input, a, &w->asked[1 + fuzz_below(input, (uint32_t)w->n)]);
    } else if (how & 8) {
        const uint32_t n = fuzz_below(input, PROMPT - 1);
        for (uint32_t i = 0; i < n; i++)
            a->text[i] = (char)fuzz_byte(input);
        r->text = a->text;
        r->text_flags = how >> 4 & 3;
    } else {
        r->n_ids = 1 + fuzz_below(input, PROMPT);
        r->ids = a->ids;
        for (size_t i = 0; i < r->n_ids; i++)
            a->ids[i] = (how & 16 ? (int32_t)i : (int32_t)fuzz_number(input, 2)) % (vocab + 1);
    }
}

/* The entries of a request that was taken: one for each answer. */
static void enter(struct world *w, struct asked *a)
{
    for (uint64_t i = 0; i < n_made(a); i++) {
        struct asked *answer = &w->asked[++w->n];
        if (i > 0)
            *answer = (struct asked){.first = a, .request = a->request};
        answer->state = ALIVE;
        if (specbatch_model_has_tokenizer(w->target))
            FUZZ_CHECK(specbatch_text_stream_create(&answer->stream, w->target, 0) == SPECBATCH_OK);
    }
}

static void submit(struct world *w, int wishes)
{
    struct asked *a = &w->asked[w->n + 1];
    const specbatch_request *r = &a->request;
    uint64_t id = 0;
    int32_t rc;

    if (w->n == REQUESTS)
        return;
    make_request(w, a);
    if (wishes)
        add_wishes(&w->input, a);
    if (w->n + n_made(a) > REQUESTS)
        return;
    rc = fuzz_status(specbatch_pool_submit(w->pool, r, &id));
    if (rc != SPECBATCH_OK) {
        FUZZ_CHECK(rc == SPECBATCH_E_INVALID || rc == SPECBATCH_E_TOO_LONG ||
                   rc == SPECBATCH_E_TOKEN || rc == SPECBATCH_E_QUEUE_FULL ||
                   rc == SPECBATCH_E_NO_TOKENIZER || (rc == SPECBATCH_E_OPTIONS && wishes));
        FUZZ_CHECK((rc == SPECBATCH_E_NO_TOKENIZER) <=
                   ((r->text || r->stops) && !specbatch_model_has_tokenizer(w->target)));
        return;
    }
    FUZZ_CHECK(id == w->n + 1);
    enter(w, a);
}

static size_t n_alive(const struct world *w)
{
    size_t n = 0;

    for (uint64_t id = 1; id <= w->n; id++)
        n += w->asked[id].state == ALIVE;
    return n;
}

/* How many requests are active after it. */
static size_t step(struct world *w)
{
    size_t active = SIZE_MAX;
    int32_t rc;

    w->fails = 0;
    stepped = w;
    rc = fuzz_status(specbatch_pool_step(w->pool, &active));
    stepped = NULL;
    FUZZ_CHECK(rc == (w->fails ? SPECBATCH_E_CANCELLED : SPECBATCH_OK));
    if (rc != SPECBATCH_OK)
        return n_alive(w);
    FUZZ_CHECK(active <= n_alive(w));
    return active;
}

static void add_text(struct asked *a, const char *text, size_t length)
{
    FUZZ_CHECK(strlen(text) <= length && length <= sizeof a->streamed - a->n_streamed);
    memcpy(a->streamed + a->n_streamed, text, length);
    a->n_streamed += length;
}

static void poll(struct world *w, uint64_t id, size_t capacity)
{
    int32_t ids[MAX_NEW];
    struct asked *a = &w->asked[id <= w->n ? id : 0];
    size_t waiting = 0, n = 0, length;
    const char *text;
    const int32_t rc = fuzz_status(specbatch_pool_poll(w->pool, id, NULL, 0, &waiting));

    if (a->state == ALIVE || a->state == CANCELLED)
        FUZZ_CHECK(rc == SPECBATCH_OK || (rc == SPECBATCH_E_NOT_FOUND && is_held(a)));
    else
        FUZZ_CHECK(rc == SPECBATCH_E_NOT_FOUND);
    FUZZ_CHECK(specbatch_pool_poll(w->pool, id, ids, capacity, &n) == rc);
    if (rc != SPECBATCH_OK)
        return;
    FUZZ_CHECK(n == (waiting < capacity ? waiting : capacity));
    FUZZ_CHECK(a->n_polled + n <= (size_t)a->request.max_new);
    memcpy(a->polled + a->n_polled, ids, n * sizeof *ids);
    a->n_polled += n;
    if (a->stream) {
        FUZZ_CHECK(specbatch_text_stream_push(a->stream, ids, n, &text, &length) == SPECBATCH_OK);
        add_text(a, text, length);
    }
}

static void cancel(struct world *w, uint64_t id)
{
    struct asked *a = &w->asked[id <= w->n ? id : 0];
    const int32_t rc = fuzz_status(specbatch_pool_cancel(w->pool, id));

    FUZZ_CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOT_FOUND);
    FUZZ_CHECK(rc != SPECBATCH_OK || a->state == ALIVE);
    if (rc == SPECBATCH_OK)
        a->state = CANCELLED;
}

static void audit(const struct world *w, const struct asked *a, const specbatch_result *result)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;

    options.n_threads = 1;
    options.max_len = MAX_LEN;
    FUZZ_CHECK(specbatch_audit(w->target, &options, &a->first->request, result, &report) ==
               SPECBATCH_OK);
    FUZZ_CHECK(report.equal == 1);
}

/* The rest of the tokens go to the stream, whose text is the result's then. */
static void check_text(struct asked *a, const specbatch_result *result, const int32_t *tokens,
                       size_t n)
{
    size_t length;
    const char *text = specbatch_result_text(result, &length);

    FUZZ_CHECK((text != NULL) == (a->stream != NULL));
    if (!text)
        return;
    FUZZ_CHECK(specbatch_text_stream_push(a->stream, tokens + a->n_polled, n - a->n_polled, &text,
                                          &length) == SPECBATCH_OK);
    add_text(a, text, length);
    FUZZ_CHECK(specbatch_text_stream_finish(a->stream, &text, &length) == SPECBATCH_OK);
    add_text(a, text, length);
    text = specbatch_result_text(result, &length);
    if (!a->request.stops || specbatch_result_finish(result) == SPECBATCH_FINISH_EOS ||
        specbatch_result_finish(result) == SPECBATCH_FINISH_LENGTH)
        FUZZ_CHECK(a->n_streamed == length && memcmp(a->streamed, text, length) == 0);
    for (size_t i = 0; a->request.stops && i < a->request.stops->n_strings; i++)
        FUZZ_CHECK(a->request.min_new > 0 || !strstr(text, a->request.stops->strings[i]));
    specbatch_text_stream_free(a->stream);
    a->stream = NULL;
}

/* A stop id ends the tokens where it first is, and only there do they end so, or at a stop string.
 */
static void check_stop(const struct asked *a, const int32_t *tokens, size_t n, int32_t finish)
{
    size_t first = 0;

    while (first < n && (a->request.n_stop_ids == 0 || tokens[first] != *a->request.stop_ids))
        first++;
    FUZZ_CHECK(first == n || first + 1 == n);
    FUZZ_CHECK(finish != SPECBATCH_FINISH_STOP || first + 1 == n || a->request.stops);
    FUZZ_CHECK(first == n || finish == SPECBATCH_FINISH_STOP || finish == SPECBATCH_FINISH_EOS);
}

/* Ends that a request has to have asked for. */
static void check_end(const struct asked *a, const specbatch_result *result)
{
    const specbatch_request *r = &a->request;
    const int32_t finish = specbatch_result_finish(result),
                  status = specbatch_result_status(result);

    FUZZ_CHECK((finish == SPECBATCH_FINISH_CANCELLED) == (a->state == CANCELLED));
    FUZZ_CHECK((finish == SPECBATCH_FINISH_ERROR) == (status != SPECBATCH_OK));
    FUZZ_CHECK(status == SPECBATCH_OK || status == SPECBATCH_E_NO_CHOICE);
    FUZZ_CHECK(status == SPECBATCH_OK || r->mask || r->min_new > 0 || r->sampling);
    FUZZ_CHECK(finish != SPECBATCH_FINISH_DEADLINE || r->deadline_ns == 1);
    FUZZ_CHECK(r->deadline_ns != 1 || finish == SPECBATCH_FINISH_DEADLINE ||
               finish == SPECBATCH_FINISH_CANCELLED);
}

/* 0: none was ready. */
static int collect(struct world *w, int with_audit)
{
    specbatch_result *result = NULL;
    const int32_t rc = fuzz_status(specbatch_pool_collect(w->pool, &result));
    const uint64_t id = specbatch_result_id(result);
    struct asked *a = &w->asked[id];
    const int32_t *tokens;
    size_t n;
    int32_t finish;

    FUZZ_CHECK(rc == (result ? SPECBATCH_OK : SPECBATCH_E_EMPTY));
    if (!result)
        return 0;
    FUZZ_CHECK(id >= 1 && id <= w->n && (a->state == ALIVE || a->state == CANCELLED));
    finish = specbatch_result_finish(result);
    check_end(a, result);
    FUZZ_CHECK(specbatch_result_user(result) == a->first && a->retired == a->proposed);
    FUZZ_CHECK(specbatch_result_answer(result) == a - a->first);
    FUZZ_CHECK(++a->first->n_collected <= a->first->answers.n);
    a->state = COLLECTED;
    tokens = specbatch_result_tokens(result, &n);
    FUZZ_CHECK(n <= (size_t)a->request.max_new && a->n_polled <= n);
    FUZZ_CHECK((finish == SPECBATCH_FINISH_LENGTH) <= (n == (size_t)a->request.max_new));
    check_stop(a, tokens, n, finish);
    FUZZ_CHECK(memcmp(tokens, a->polled, a->n_polled * sizeof *tokens) == 0);
    FUZZ_CHECK(specbatch_result_accepted(result) <= specbatch_result_drafted(result));
    FUZZ_CHECK((specbatch_result_logprobs(result, NULL) != NULL) ==
               ((a->request.flags & SPECBATCH_REQUEST_LOGPROBS) != 0));
    FUZZ_CHECK((specbatch_result_top_ids(result, NULL) != NULL) == (a->request.top_logprobs > 0));
    if (with_audit)
        audit(w, a, result);
    check_text(a, result, tokens, n);
    specbatch_result_free(result);
    return 1;
}

static void read_stat(struct world *w, uint32_t index)
{
    const char *name = specbatch_stat_name((int32_t)index);
    uint64_t value = 0;

    if (name)
        FUZZ_CHECK(specbatch_pool_stat(w->pool, name, &value) == SPECBATCH_OK);
    else
        FUZZ_CHECK((int32_t)index >= specbatch_stat_count());
    FUZZ_CHECK(specbatch_pool_stat(w->pool, "no such counter", &value) == SPECBATCH_E_NOT_FOUND);
}

/* ------------------------------------------------------------------------------- world */

/* A pool that a few bytes describe, always one that can be made. */
static void create(struct world *w)
{
    struct fuzz_input *input = &w->input;
    specbatch_pool_options *o = &w->options;
    const uint8_t how = fuzz_byte(input);
    specbatch_draft *draft;

    *o = (specbatch_pool_options)SPECBATCH_POOL_OPTIONS_INIT;
    w->target = open_once(how & 1 ? 2 : 0);
    draft = make_draft(w, how);
    w->has_ops = how >> 7;
    o->policy = (int32_t)fuzz_below(input, (uint32_t)specbatch_policy_count());
    o->batch = 1 + (int32_t)fuzz_below(input, 5);
    o->window = o->batch + (int32_t)fuzz_below(input, 6);
    o->draft_len = 1 + (int32_t)fuzz_below(input, 6);
    o->prefill_chunk = 1 + (int32_t)fuzz_below(input, 20);
    o->max_len = MAX_LEN;
    o->n_threads = how & 4 ? 2 : 1;
    o->flags = how >> 3 & 7;
    o->queue_max = how & 64 ? 3 : 0;
    o->alloc = fuzz_mem.alloc;
    o->free = fuzz_mem.free;
    o->log = fuzz_log;
    FUZZ_CHECK(fuzz_status(specbatch_pool_create(&w->pool, w->target, draft, o)) == SPECBATCH_OK);
    specbatch_draft_release(draft);
}

static void call(struct world *w)
{
    const uint8_t what = fuzz_byte(&w->input);
    const uint64_t id = what >> 3 & 15;

    switch (what & 7) {
    case 0:
    case 1:
        submit(w, 0);
        break;
    case 2:
    case 3:
        step(w);
        break;
    case 4:
        poll(w, id, fuzz_below(&w->input, MAX_NEW + 1));
        break;
    case 5:
        cancel(w, id);
        break;
    case 6:
        collect(w, what & 8);
        break;
    default:
        if (what & 8)
            submit(w, 1);
        else
            read_stat(w, fuzz_byte(&w->input));
    }
}

/* All requests to their ends, or, when the input wants it so, a pool freed in full work. */
static void finish(struct world *w, int run_out)
{
    size_t active = 1;

    for (int steps = 0; run_out && active; steps++) {
        FUZZ_CHECK(steps < STEPS_MAX);
        active = step(w);
    }
    while (collect(w, run_out && w->n < 4))
        continue;
    for (uint64_t id = 1; id <= w->n; id++)
        FUZZ_CHECK(!run_out || w->asked[id].state == COLLECTED || is_held(&w->asked[id]));
    for (uint64_t id = 1; id <= w->n; id++)
        FUZZ_CHECK(!run_out || w->asked[id].first->n_collected == w->asked[id].first->answers.n);
    specbatch_pool_free(w->pool);
    FUZZ_CHECK(w->released == w->has_ops);
    for (uint64_t id = 1; id <= w->n; id++) {
        FUZZ_CHECK(w->asked[id].retired == w->asked[id].proposed);
        specbatch_text_stream_free(w->asked[id].stream);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world w;
    uint8_t run_out;

    memset(&w, 0, sizeof w);
    w.input = (struct fuzz_input){data, size};
    create(&w);
    run_out = fuzz_byte(&w.input);
    while (w.input.n > 0)
        call(&w);
    finish(&w, run_out % 4 != 3);
    fuzz_check_memory(0, MEMORY);
    return 0;
}
