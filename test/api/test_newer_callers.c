/*
 * A program that was compiled with a newer header may ask for what this library does not have. It
 * is then refused, and never given less than it asked for.
 *
 * What takes flags, and what a caller passes as a struct, are tables here, so that something new is
 * a line. test/api/check_structs.sh sees to it that everything of the header is in them.
 */
#include "sbtest.h"

#define MODEL "examples/demo/draft"
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The room for fields that this library does not know. */
enum { TAIL = 16 };

static specbatch_model *model;
static specbatch_pool *pool;

/* ------------------------------------------------------------------------- calls */

static int32_t open_model(const void *options)
{
    specbatch_model *other = NULL;
    const int32_t rc = specbatch_model_open(&other, MODEL, options);

    specbatch_model_close(other);
    return rc;
}

static int32_t count_bytes(const void *options)
{
    uint64_t bytes;

    return specbatch_pool_bytes(&bytes, model, NULL, options);
}

static int32_t create_pool(const void *options)
{
    specbatch_pool *other = NULL;
    const int32_t rc = specbatch_pool_create(&other, model, NULL, options);

    specbatch_pool_free(other);
    return rc;
}

/* And takes the request back. */
static int32_t submit(const void *given)
{
    specbatch_result *result = NULL;
    uint64_t id;
    int32_t rc = specbatch_pool_submit(pool, given, &id);

    if (rc == SPECBATCH_OK && (rc = specbatch_pool_cancel(pool, id)) == SPECBATCH_OK)
        rc = specbatch_pool_collect(pool, &result);
    specbatch_result_free(result);
    return rc;
}

static int32_t write_chat(const void *options)
{
    static const specbatch_message hi = {"user", "Hi!", 3};
    char text[256];
    size_t n;

    return specbatch_chat_text(NULL, options, &hi, sizeof hi, 1, text, sizeof text, &n);
}

static int32_t encode_chat(const void *options)
{
    static const specbatch_message hi = {"user", "Hi!", 3};
    int32_t ids[256];
    size_t n;

    return specbatch_chat_tokens(model, options, &hi, sizeof hi, 1, ids, 256, &n);
}

static int32_t write_message(const void *message)
{
    const specbatch_chat_options raw = {sizeof raw, SPECBATCH_CHAT_RAW, 0, 0, 0};
    char text[64];
    size_t n;

    return specbatch_chat_text(NULL, &raw, message, sizeof(specbatch_message) + TAIL, 1, text, 64,
                               &n);
}

static int32_t draft_of_ngrams(const void *options)
{
    specbatch_draft *draft = NULL;
    const int32_t rc = specbatch_draft_from_ngrams(&draft, options);

    specbatch_draft_release(draft);
    return rc;
}

static int32_t make_table(const void *options)
{
    static const int32_t some[] = {300, 301};
    const int32_t rc = specbatch_table_make("/no/such/folder/table", model, some, 2, options);

    return rc == SPECBATCH_E_IO ? SPECBATCH_OK : rc; /* when everything else was right */
}

static int32_t draft_of_ops(const void *ops)
{
    specbatch_draft *draft = NULL;
    const int32_t rc = specbatch_draft_from_ops(&draft, ops);

    specbatch_draft_release(draft);
    return rc;
}

static int32_t propose_nothing(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user, (void)rows, (void)n_rows;
    return 0;
}

static const specbatch_model_options model_options = SPECBATCH_MODEL_OPTIONS_INIT;
static const specbatch_pool_options pool_options = SPECBATCH_POOL_OPTIONS_INIT;
static const specbatch_chat_options chat_options = {sizeof chat_options, SPECBATCH_CHAT_RAW, 0, 0,
                                                    0};
static const specbatch_message message = {"user", "Hi!", 3};
static const specbatch_ngram_options ngram_options = SPECBATCH_NGRAM_OPTIONS_INIT;
static const specbatch_table_options table_options = SPECBATCH_TABLE_OPTIONS_INIT;
static const specbatch_draft_ops draft_ops = {sizeof draft_ops, propose_nothing, NULL, NULL, NULL};
static specbatch_request request = SPECBATCH_REQUEST_INIT;

static int32_t allow_all(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    (void)user, (void)rows, (void)n_rows;
    return 0;
}

static const specbatch_mask mask = {sizeof mask, allow_all, NULL};

static int32_t submit_mask(const void *given)
{
    specbatch_request masked = request;

    masked.mask = given;
    return submit(&masked);
}

static const specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;

static int32_t submit_sampling(const void *given)
{
    specbatch_request sampled = request;

    sampled.sampling = given;
    return submit(&sampled);
}

static const char *const stop_strings[] = {"the end"};
static const specbatch_stops stops = {sizeof stops, stop_strings, NULL, 1};

static int32_t submit_stops(const void *given)
{
    specbatch_request stopped = request;

    stopped.stops = given;
    return submit(&stopped);
}

static const specbatch_answers answers = SPECBATCH_ANSWERS_INIT;

static int32_t submit_answers(const void *given)
{
    specbatch_request several = request;

    several.answers = given;
    return submit(&several);
}

/* ------------------------------------------------------------------------- flags */

static int32_t tokenize(uint32_t flags)
{
    int32_t ids[16];
    size_t n;

    return specbatch_tokenize(model, "one two", 7, flags, ids, 16, &n);
}

static int32_t detokenize(uint32_t flags)
{
    static const int32_t some[] = {300, 301};
    char text[64];
    size_t n;

    return specbatch_detokenize(model, some, 2, flags, text, sizeof text, &n);
}

static int32_t create_stream(uint32_t flags)
{
    specbatch_text_stream *stream = NULL;
    const int32_t rc = specbatch_text_stream_create(&stream, model, flags);

    specbatch_text_stream_free(stream);
    return rc == SPECBATCH_OK || !stream ? rc : SPECBATCH_E_INTERNAL;
}

static int32_t with_pool_flags(uint32_t flags)
{
    specbatch_pool_options options = pool_options;
    int32_t rc, other;

    options.n_threads = 1;
    options.max_len = 64;
    options.flags = flags;
    rc = create_pool(&options);
    other = count_bytes(&options);
    return other == rc ? rc : SPECBATCH_E_INTERNAL;
}

static int32_t with_pool_reserved(uint32_t bits)
{
    specbatch_pool_options options = pool_options;

    options.reserved = (int32_t)bits;
    return create_pool(&options);
}

static int32_t with_model_reserved(uint32_t bits)
{
    specbatch_model_options options = model_options;

    options.reserved = (int32_t)bits;
    return open_model(&options);
}

static int32_t with_table_reserved(uint32_t bits)
{
    specbatch_table_options options = table_options;

    options.reserved = (int32_t)bits;
    return make_table(&options);
}

static int32_t with_sampling_flags(uint32_t flags)
{
    specbatch_sampling given = sampling;

    given.flags = flags;
    return submit_sampling(&given);
}

static int32_t with_request_flags(uint32_t flags)
{
    specbatch_request given = request;

    given.flags = flags;
    return submit(&given);
}

static int32_t with_text_flags(uint32_t flags)
{
    specbatch_request given = request;

    given.text_flags = flags;
    return submit(&given);
}

static int32_t with_chat_flags(uint32_t flags)
{
    const specbatch_chat_options options = {sizeof options, SPECBATCH_CHAT_CHATML, flags, 0, 0};
    const int32_t rc = write_chat(&options);

    return encode_chat(&options) == rc ? rc : SPECBATCH_E_INTERNAL;
}

/* Flags of a function are refused as an argument, and those in a struct as an option. */
static const struct taker {
    const char *name, *place; /* what has the flags; what the message says of it */
    int32_t (*call)(uint32_t flags);
    uint32_t known;
    int32_t code;
} takers[] = {
    {"specbatch_tokenize", "tokenize: flags", tokenize,
     SPECBATCH_TEXT_NO_BOS | SPECBATCH_TEXT_PLAIN_SPECIAL, SPECBATCH_E_INVALID},
    {"specbatch_detokenize", "detokenize: flags", detokenize, SPECBATCH_TEXT_KEEP_SPECIAL,
     SPECBATCH_E_INVALID},
    {"specbatch_text_stream_create", "flags", create_stream, SPECBATCH_TEXT_KEEP_SPECIAL,
     SPECBATCH_E_INVALID},
    {"specbatch_chat_options.flags", "flags", with_chat_flags,
     SPECBATCH_CHAT_NO_THINK | SPECBATCH_CHAT_NO_ANSWER_PROMPT | SPECBATCH_CHAT_PARSE_SPECIAL,
     SPECBATCH_E_OPTIONS},
    {"specbatch_model_options.reserved", "reserved", with_model_reserved, 0, SPECBATCH_E_OPTIONS},
    {"specbatch_pool_options.flags", "flags", with_pool_flags,
     SPECBATCH_POOL_SORT_BY_LENGTH | SPECBATCH_POOL_EQSPEC_REPLACE | SPECBATCH_POOL_FIXED_K |
         SPECBATCH_POOL_GROW_SLOTS,
     SPECBATCH_E_OPTIONS},
    {"specbatch_pool_options.reserved", "reserved", with_pool_reserved, 0, SPECBATCH_E_OPTIONS},
    {"specbatch_table_options.reserved", "reserved", with_table_reserved, 0, SPECBATCH_E_OPTIONS},
    {"specbatch_sampling.flags", "flags", with_sampling_flags, SPECBATCH_SAMPLING_SPARE_PROMPT,
     SPECBATCH_E_OPTIONS},
    {"specbatch_request.flags", "flags", with_request_flags,
     SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS | SPECBATCH_REQUEST_PROMPT_LOGPROBS |
         SPECBATCH_REQUEST_FILTERED_LOGPROBS,
     SPECBATCH_E_OPTIONS},
    {"specbatch_request.text_flags", "text_flags", with_text_flags,
     SPECBATCH_TEXT_NO_BOS | SPECBATCH_TEXT_PLAIN_SPECIAL, SPECBATCH_E_OPTIONS},
};

static void test_flags_that_mean_nothing_are_refused(void)
{
    for (size_t i = 0; i < COUNT(takers); i++) {
        const struct taker *t = &takers[i];
        for (int bit = 0; bit <= 32; bit++) {
            const uint32_t flags = bit == 32 ? ~t->known : UINT32_C(1) << bit;
            char bits[16];
            snprintf(bits, sizeof bits, "0x%lx", (unsigned long)flags);
            if (flags & t->known) {
                CHECK_OK(t->call(flags));
                continue;
            }
            CHECK_ERROR(t->call(flags), t->code, t->place);
            CHECK_ERROR(t->call(flags | t->known), t->code, bits);
        }
    }
}

/* ----------------------------------------------------------------------- structs */

/* What a caller fills and passes. */
static const struct given {
    const char *name;
    const void *defaults;
    size_t size;
    int32_t (*call)(const void *given);
} givens[] = {
    {"specbatch_model_options", &model_options, sizeof model_options, open_model},
    {"specbatch_pool_options", &pool_options, sizeof pool_options, count_bytes},
    {"specbatch_pool_options", &pool_options, sizeof pool_options, create_pool},
    {"specbatch_request", &request, sizeof request, submit},
    {"specbatch_sampling", &sampling, sizeof sampling, submit_sampling},
    {"specbatch_stops", &stops, sizeof stops, submit_stops},
    {"specbatch_answers", &answers, sizeof answers, submit_answers},
    {"specbatch_mask", &mask, sizeof mask, submit_mask},
    {"specbatch_chat_options", &chat_options, sizeof chat_options, write_chat},
    {"specbatch_chat_options", &chat_options, sizeof chat_options, encode_chat},
    {"specbatch_message", &message, sizeof message, write_message},
    {"specbatch_ngram_options", &ngram_options, sizeof ngram_options, draft_of_ngrams},
    {"specbatch_table_options", &table_options, sizeof table_options, make_table},
    {"specbatch_draft_ops", &draft_ops, sizeof draft_ops, draft_of_ops},
};

/* Zero in a field that this library does not know is its default; anything else is refused, at the
 * byte where it is. A message has no size in it: the function was told that it is longer. */
static void test_fields_that_are_not_known_are_refused(void)
{
    for (size_t i = 0; i < COUNT(givens); i++) {
        const struct given *g = &givens[i];
        const size_t newer = g->size + TAIL;
        union {
            uint64_t aligned[32];
            unsigned char bytes[256];
        } at = {{0}};
        char place[48];
        CHECK(newer <= sizeof at);
        memcpy(at.bytes, g->defaults, g->size);
        if (g->defaults != &message)
            memcpy(at.bytes, &newer, sizeof newer);
        CHECK_OK(g->call(at.bytes));
        for (size_t byte = g->size; byte < newer; byte++) {
            snprintf(place, sizeof place, "the field at byte %zu ", byte);
            at.bytes[byte] = 1;
            CHECK_ERROR(g->call(at.bytes), SPECBATCH_E_OPTIONS, place);
            at.bytes[byte] = 0;
        }
    }
}

static int32_t next_event(void *event)
{
    return specbatch_pool_next_event(pool, event);
}

static int32_t state_of_last(void *state)
{
    uint64_t id = 0;
    const int32_t rc = specbatch_pool_submit(pool, &request, &id);

    return rc ? rc : specbatch_pool_state(pool, id, state);
}

static int32_t audit(void *report)
{
    specbatch_result *result = NULL;
    int32_t rc = specbatch_pool_run(pool);

    rc = rc ? rc : specbatch_pool_collect(pool, &result);
    rc = rc ? rc : specbatch_audit(model, NULL, &request, result, report);
    specbatch_result_free(result);
    return rc;
}

/* What the library fills. */
static const struct filled {
    const char *name;
    size_t size;
    int32_t (*call)(void *filled);
} filleds[] = {
    {"specbatch_request_state", sizeof(specbatch_request_state), state_of_last},
    {"specbatch_event", sizeof(specbatch_event), next_event},
    {"specbatch_audit_report", sizeof(specbatch_audit_report), audit},
};

/* Fields that the library does not know become zero, and are the last that it writes; of an older,
 * shorter struct it writes no byte behind the end. */
static void test_what_the_library_fills(void)
{
    for (size_t i = 0; i < COUNT(filleds); i++) {
        const struct filled *f = &filleds[i];
        for (size_t size = sizeof(size_t); size <= f->size + TAIL; size += sizeof(uint64_t)) {
            union {
                uint64_t aligned[32];
                unsigned char bytes[256];
            } at;
            CHECK(size < sizeof at);
            memset(&at, 0x5a, sizeof at);
            memcpy(at.bytes, &size, sizeof size);
            CHECK_OK(specbatch_pool_submit(pool, &request, NULL)); /* so that there is news */
            CHECK_OK(specbatch_pool_run(pool));
            CHECK_OK(f->call(at.bytes));
            CHECK_MEM(at.bytes, &size, sizeof size);
            for (size_t byte = f->size; byte < size; byte++)
                CHECK_INT(at.bytes[byte], 0);
            for (size_t byte = size; byte < sizeof at; byte++)
                CHECK_INT(at.bytes[byte], 0x5a);
        }
    }
}

TEST_BEGIN
specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
options.n_threads = 1;
options.max_len = 64;
request.text = "one two";
request.max_new = 2;
if (specbatch_model_open(&model, MODEL, NULL) != SPECBATCH_OK ||
    specbatch_pool_create(&pool, model, NULL, &options) != SPECBATCH_OK) {
    printf("FAIL newer callers: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_flags_that_mean_nothing_are_refused);
RUN(test_fields_that_are_not_known_are_refused);
RUN(test_what_the_library_fills);
specbatch_pool_free(pool);
specbatch_model_close(model);
TEST_END
