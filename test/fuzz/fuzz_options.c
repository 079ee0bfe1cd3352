/*
 * The structs that callers fill, of any size and content, through the public API. The first byte
 * says which; then come two bytes of struct_size, a byte that chooses pointers, and the content,
 * with zeros where the input ends. A struct lies in a block of exactly its size, so that a read
 * beyond it is seen. Pointers are NULL or valid: a wild one is not something a library can refuse.
 * So a struct that gets another pointer needs a line for it below.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/support/fuzz.h"

#define MODEL "test/data/models/long_qwen3_hd128_bf16"

enum { MEMORY = 32 << 20, THREADS_MAX = 2, N_IDS = 12, STOP_IDS_MAX = 64 };

static specbatch_model *model;
static specbatch_draft *of_model;

/* ---------------------------------------------------------------------------- structs */

struct hostile {
    unsigned char *bytes; /* to be freed */
    size_t size;
    uint8_t choice; /* a bit for each pointer */
    struct fuzz_input rest;
};

static struct hostile make_struct(struct fuzz_input input)
{
    struct hostile h = {.size = (size_t)fuzz_number(&input, 2), .choice = fuzz_byte(&input)};
    const size_t n = h.size > sizeof h.size ? h.size : sizeof h.size;

    h.bytes = calloc(n, 1);
    FUZZ_CHECK(h.bytes != NULL);
    for (size_t i = sizeof h.size; i < n; i++)
        h.bytes[i] = fuzz_byte(&input);
    memcpy(h.bytes, &h.size, sizeof h.size);
    h.rest = input;
    return h;
}

/* Whether the struct has the `n` bytes at `offset`; what it has of them becomes `value`'s. */
static int put(struct hostile *h, size_t offset, const void *value, size_t n)
{
    const size_t there = h->size <= offset ? 0 : h->size - offset < n ? h->size - offset : n;

    if (there == n)
        memcpy(h->bytes + offset, value, n);
    else if (there > 0)
        memset(h->bytes + offset, 0, there);
    return there == n;
}

/* A pointer when bit `bit` is chosen, else NULL. */
static int put_pointer(struct hostile *h, size_t offset, int bit, const void *pointer)
{
    const void *none = NULL;

    return put(h, offset, h->choice >> bit & 1 ? &pointer : &none, sizeof none);
}

static int64_t get_i32(const struct hostile *h, size_t offset)
{
    int32_t value = 0;

    if (h->size >= offset + sizeof value)
        memcpy(&value, h->bytes + offset, sizeof value);
    return value;
}

/* The hooks of a struct; their bits may make one of the two NULL, which is to be refused. Function
 * pointers cannot be made from data pointers, hence the union. */
union hook {
    specbatch_alloc_fn alloc;
    specbatch_free_fn free;
    specbatch_log_fn log;
    int32_t (*propose)(void *user, specbatch_draft_row *const *rows, size_t n_rows);
    void (*retire)(void *user, uint64_t request_id, void *request_user);
    void (*release)(void *user);
    const void *pointer;
    specbatch_progress_fn progress;
};

static void put_hooks(struct hostile *h, size_t alloc, size_t release, size_t log)
{
    union hook hook = {.alloc = fuzz_mem.alloc};

    put_pointer(h, alloc, 0, hook.pointer);
    hook.free = fuzz_mem.free;
    put_pointer(h, release, 1, hook.pointer);
    hook.log = fuzz_log;
    put_pointer(h, log, 2, hook.pointer);
}

/* ------------------------------------------------------------------------------ calls */

static void try_init(const struct hostile *h)
{
    void *options = malloc(h->size ? h->size : 1);
    int32_t rc[4];

    FUZZ_CHECK(options != NULL);
    rc[0] = fuzz_status(specbatch_model_options_init(options, h->size));
    rc[1] = fuzz_status(specbatch_pool_options_init(options, h->size));
    rc[2] = fuzz_status(specbatch_request_init(options, h->size));
    rc[3] = fuzz_status(specbatch_ngram_options_init(options, h->size));
    for (int i = 0; i < 4; i++)
        FUZZ_CHECK(rc[i] == (h->size < sizeof(size_t) || h->size > 4096 ? SPECBATCH_E_INVALID
                                                                        : SPECBATCH_OK));
    free(options);
}

static int32_t note_progress(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    FUZZ_CHECK(done <= total);
    return 0;
}

static void try_model(struct hostile *h)
{
    union hook hook;
    specbatch_model *opened = NULL;
    int32_t rc;

    put_hooks(h, offsetof(specbatch_model_options, alloc), offsetof(specbatch_model_options, free),
              offsetof(specbatch_model_options, log));
    put_pointer(h, offsetof(specbatch_model_options, cuda_module), 3, "/nowhere/module.so");
    hook.progress = note_progress;
    put_pointer(h, offsetof(specbatch_model_options, progress), 4, hook.pointer);
    put_pointer(h, offsetof(specbatch_model_options, plan_file), 5, "/nowhere/plans");
    rc = fuzz_status(specbatch_model_open(&opened, MODEL, (specbatch_model_options *)h->bytes));
    FUZZ_CHECK((rc == SPECBATCH_OK) == (opened != NULL));
    FUZZ_CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_INVALID || rc == SPECBATCH_E_OPTIONS ||
               rc == SPECBATCH_E_UNSUPPORTED || rc == SPECBATCH_E_NO_DEVICE);
    specbatch_model_close(opened);
}

static void run_one(specbatch_pool *pool)
{
    const int32_t ids[] = {7, 8, 9};
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_result *result = NULL;
    size_t active = 0;

    request.ids = ids;
    request.n_ids = 3;
    request.max_new = 2;
    if (fuzz_status(specbatch_pool_submit(pool, &request, NULL)) == SPECBATCH_OK)
        active = 1;
    for (int steps = 0; active; steps++)
        FUZZ_CHECK(steps < 64 && specbatch_pool_step(pool, &active) == SPECBATCH_OK);
    if (specbatch_pool_collect(pool, &result) == SPECBATCH_OK)
        FUZZ_CHECK(specbatch_result_status(result) == SPECBATCH_OK);
    specbatch_result_free(result);
}

/* A pool that would be too large to be made here has to be refused by its budget. */
static void try_pool(struct hostile *h)
{
    const uint64_t budget = MEMORY;
    const size_t at = offsetof(specbatch_pool_options, n_threads);
    const int32_t n_threads = THREADS_MAX;
    specbatch_pool_options *options = (specbatch_pool_options *)h->bytes;
    specbatch_draft *draft = h->choice & 128 ? of_model : NULL;
    specbatch_pool *pool = NULL;
    uint64_t bytes = 0;
    int32_t asked, rc;
    int limited;

    put_hooks(h, offsetof(specbatch_pool_options, alloc), offsetof(specbatch_pool_options, free),
              offsetof(specbatch_pool_options, log));
    asked = fuzz_status(specbatch_pool_bytes(&bytes, model, draft, options));
    if (asked == SPECBATCH_OK && get_i32(h, at) > THREADS_MAX)
        put(h, at, &n_threads, sizeof n_threads);
    limited = put(h, offsetof(specbatch_pool_options, budget_bytes), &budget, sizeof budget);
    if (asked == SPECBATCH_OK && bytes > budget && !limited)
        return;
    rc = fuzz_status(specbatch_pool_create(&pool, model, draft, options));
    FUZZ_CHECK((rc == SPECBATCH_OK) == (pool != NULL));
    FUZZ_CHECK(rc == asked || (asked == SPECBATCH_OK && rc == SPECBATCH_E_BUDGET));
    if (pool)
        run_one(pool);
    specbatch_pool_free(pool);
}

/* A pool of its own runs a request with a draft that could be made. */
static void try_draft(struct hostile *h, int32_t rc, specbatch_draft *draft)
{
    specbatch_pool_options small = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;

    FUZZ_CHECK((rc == SPECBATCH_OK) == (draft != NULL));
    FUZZ_CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_INVALID || rc == SPECBATCH_E_OPTIONS);
    FUZZ_CHECK((h->size >= sizeof h->size && h->size <= 4096) || rc == SPECBATCH_E_INVALID);
    if (!draft)
        return;
    small.n_threads = small.batch = 1;
    small.max_len = 64;
    FUZZ_CHECK(specbatch_pool_create(&pool, model, draft, &small) == SPECBATCH_OK);
    specbatch_draft_release(draft);
    run_one(pool);
    specbatch_pool_free(pool);
}

static void try_ngrams(struct hostile *h)
{
    specbatch_draft *draft = NULL;
    const int32_t rc = fuzz_status(
        specbatch_draft_from_ngrams(&draft, (specbatch_ngram_options *)h->bytes));

    try_draft(h, rc, draft);
}

static int32_t propose_zeros(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t i = 0; i < n_rows; i++) {
        FUZZ_CHECK(rows[i]->request_id > 0 && rows[i]->n_tokens > 0 && rows[i]->k > 0);
        memset(rows[i]->out, 0, (size_t)rows[i]->k * sizeof *rows[i]->out);
        rows[i]->n_out = rows[i]->k;
    }
    return 0;
}

static void retire_one(void *user, uint64_t request_id, void *request_user)
{
    (void)user;
    FUZZ_CHECK(request_id == 1 && request_user == NULL);
}

static void release_draft(void *user)
{
    (void)user;
}

/* Draft functions: bit 0 propose, bit 1 retire, bit 2 release. */
static void try_ops(struct hostile *h)
{
    union hook hook = {.propose = propose_zeros};
    specbatch_draft *draft = NULL;

    put_pointer(h, offsetof(specbatch_draft_ops, propose), 0, hook.pointer);
    hook.retire = retire_one;
    put_pointer(h, offsetof(specbatch_draft_ops, retire), 1, hook.pointer);
    hook.release = release_draft;
    put_pointer(h, offsetof(specbatch_draft_ops, release), 2, hook.pointer);
    const int32_t rc = fuzz_status(
        specbatch_draft_from_ops(&draft, (specbatch_draft_ops *)h->bytes));
    FUZZ_CHECK(rc != SPECBATCH_OK || h->choice & 1);
    try_draft(h, rc, draft);
}

/* Every second id, and every third behind an id that is no multiple of two. */
static int32_t allow_some(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++) {
        const int32_t step = rows[b]->tokens[rows[b]->n_tokens - 1] % 2 ? 3 : 2;
        for (int32_t id = 0; id < 32 * (int32_t)rows[b]->n_words; id++)
            if (id % step != 0)
                rows[b]->allowed[id / 32] &= ~(UINT32_C(1) << id % 32);
    }
    return 0;
}

/* The structs that a request points to are good ones. Bit 3 sampling, bit 4 stops, bit 5 mask,
 * bit 6 answers. */
static void put_parts(struct hostile *h)
{
    static const char *const strings[] = {"ab", "."};
    static specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;
    static specbatch_stops stops = SPECBATCH_STOPS_INIT;
    static const specbatch_mask mask = {sizeof mask, allow_some, NULL};
    static const specbatch_answers answers = SPECBATCH_ANSWERS_INIT;

    sampling.temperature = 0.8f;
    sampling.top_k = 9;
    stops.strings = strings;
    stops.n_strings = 2;
    put_pointer(h, offsetof(specbatch_request, sampling), 3, &sampling);
    put_pointer(h, offsetof(specbatch_request, stops), 4, &stops);
    put_pointer(h, offsetof(specbatch_request, mask), 5, &mask);
    put_pointer(h, offsetof(specbatch_request, answers), 6, &answers);
}

/* Request pointers: bit 0 ids, bit 1 text, bit 2 stop_ids, and those of put_parts. The counts say
 * no more than there is, where something is. */
static void put_request(struct hostile *h, int32_t ids[N_IDS], const char *text,
                        const int32_t stops[STOP_IDS_MAX])
{
    size_t n = 0;

    for (int i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)fuzz_byte(&h->rest) * (i % 4 == 3 ? 3 : 1) - (i % 4 == 2);
    put_pointer(h, offsetof(specbatch_request, ids), 0, ids);
    put_pointer(h, offsetof(specbatch_request, text), 1, text);
    put_pointer(h, offsetof(specbatch_request, stop_ids), 2, stops);
    put_parts(h);
    if (h->size >= offsetof(specbatch_request, n_ids) + sizeof n && h->choice & 1) {
        memcpy(&n, h->bytes + offsetof(specbatch_request, n_ids), sizeof n);
        n %= N_IDS + 1;
        put(h, offsetof(specbatch_request, n_ids), &n, sizeof n);
    }
}

static void try_request(struct hostile *h)
{
    static const int32_t stops[STOP_IDS_MAX] = {1, 2, 3, -1};
    specbatch_pool_options small = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result = NULL;
    int32_t ids[N_IDS], rc;
    uint64_t id = 0;

    small.n_threads = small.batch = 1;
    small.max_len = 64;
    put_request(h, ids, "a text", stops);
    FUZZ_CHECK(specbatch_pool_create(&pool, model, NULL, &small) == SPECBATCH_OK);
    rc = fuzz_status(specbatch_pool_submit(pool, (specbatch_request *)h->bytes, &id));
    FUZZ_CHECK(id == (rc == SPECBATCH_OK ? 1 : 0));
    for (int steps = 0; rc == SPECBATCH_OK && steps < 3; steps++)
        FUZZ_CHECK(specbatch_pool_step(pool, NULL) == SPECBATCH_OK);
    if (rc == SPECBATCH_OK && specbatch_pool_collect(pool, &result) != SPECBATCH_OK) {
        FUZZ_CHECK(specbatch_pool_cancel(pool, id) == SPECBATCH_OK);
        FUZZ_CHECK(specbatch_pool_collect(pool, &result) == SPECBATCH_OK);
    }
    if (result) {
        FUZZ_CHECK(specbatch_audit(model, &small, (specbatch_request *)h->bytes, result, &report) ==
                   SPECBATCH_OK);
        FUZZ_CHECK(report.equal == 1);
    }
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

static specbatch_result *some_result(const specbatch_request *request)
{
    specbatch_pool_options small = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result = NULL;

    small.n_threads = small.batch = 1;
    small.max_len = 64;
    FUZZ_CHECK(specbatch_pool_create(&pool, model, NULL, &small) == SPECBATCH_OK);
    FUZZ_CHECK(specbatch_pool_submit(pool, request, NULL) == SPECBATCH_OK);
    while (specbatch_pool_collect(pool, &result) == SPECBATCH_E_EMPTY)
        FUZZ_CHECK(specbatch_pool_step(pool, NULL) == SPECBATCH_OK);
    specbatch_pool_free(pool);
    return result;
}

static void try_report(struct hostile *h)
{
    static specbatch_result *result;
    static const int32_t ids[] = {7, 8, 9};
    specbatch_pool_options small = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    const size_t head = sizeof h->size, known = sizeof(specbatch_audit_report);
    int32_t rc;

    small.n_threads = 1;
    small.max_len = 64;
    request.ids = ids;
    request.n_ids = 3;
    request.max_new = 2;
    if (!result)
        result = some_result(&request);
    rc = fuzz_status(
        specbatch_audit(model, &small, &request, result, (specbatch_audit_report *)h->bytes));
    FUZZ_CHECK(rc == (h->size < head || h->size > 4096 ? SPECBATCH_E_INVALID : SPECBATCH_OK));
    for (size_t i = known; rc == SPECBATCH_OK && i < h->size; i++)
        FUZZ_CHECK(h->bytes[i] == 0);
    FUZZ_CHECK(memcmp(h->bytes, &h->size, head) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    static void (*const tries[])(struct hostile *) = {try_model,  try_pool,   try_request,
                                                      try_report, try_ngrams, try_ops};
    const uint32_t which = fuzz_below(&input, sizeof tries / sizeof *tries);
    struct hostile h;

    if (!model)
        FUZZ_CHECK(specbatch_model_open(&model, MODEL, NULL) == SPECBATCH_OK);
    if (!of_model)
        FUZZ_CHECK(specbatch_draft_from_model(&of_model, model) == SPECBATCH_OK);
    h = make_struct(input);
    try_init(&h);
    tries[which](&h);
    free(h.bytes);
    fuzz_check_memory(0, 2 * MEMORY);
    return 0;
}
