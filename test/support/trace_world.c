/*
 * The world of random traces: models in every class, the prompts, and what the oracle answers.
 *
 * Prompts are made so that many begin alike. Each is described by how many tokens it takes from an
 * earlier one; the rest is random:
 *
 *   400 ==================================      300 and 200 go along with it to the border of a
 *   300 ================--------------          block or one token further, and then part from it
 *   200 =========---------
 *   63, 64, 65; 127 to 130                      continue each other across the border of a block
 *   two of 7, 16, 33 and 90                     are strangers of one length
 *
 * A turn of a conversation is an earlier text, some tokens of the oracle's answer to it, and a few
 * random ones. It depends on the model, and is made when it is first asked for.
 */
#include "support/trace_run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model/model.h"
#include "support/emulated_tiles.h"
#include "support/model_files.h"
#include "support/place.h"
#include "support/random_models.h"

/* The models, what their weights and their draft's are quantised to, and the draft's class where it
 * is not the target's. Those with a draft lie beside it. A name with a dot is a file that is made
 * in the world's own folder. */
static const struct {
    const char *name;
    int32_t weights, draft_weights, draft_compute;
} models[TRACE_MODELS] = {
    {.name = "qwen3_untied_f32_sharded"},
    {.name = "llama_untied_f32_sharded",
     .draft_weights = SPECBATCH_WEIGHTS_Q4,
     .draft_compute = SPECBATCH_COMPUTE_INT8},
    {.name = "glm4_unbiased_bf16"},
    {.name = "llama3_scaled_biased_tied_bf16"},
    {.name = "qwen2_tied_f32"},
    {.name = "windowed.gguf"},
    {.name = "qwen3_untied_f32_sharded",
     .weights = SPECBATCH_WEIGHTS_Q8,
     .draft_weights = SPECBATCH_WEIGHTS_Q4,
     .draft_compute = SPECBATCH_COMPUTE_BF16},
    {.name = "llama_untied_f32_sharded", .weights = SPECBATCH_WEIGHTS_Q4},
    {.name = "llama3_scaled_biased_tied_bf16", .weights = SPECBATCH_WEIGHTS_Q4},
    {.name = "quantised.gguf"},
    {.name = "mixture.gguf"},
    {.name = "capped.gguf"},
};

/* n tokens, of which the first `shared` are those of prompt `like`. The longer are the last. */
static const struct recipe {
    int32_t n, like, shared;
} recipes[TRACE_PROMPTS] = {
    {1, 0, 0},    {1, 0, 0},      {2, 0, 1},      {3, 0, 0},     {7, 0, 0},      {7, 0, 0},
    {7, 5, 6},    {7, 5, 7},      {16, 0, 0},     {16, 0, 0},    {33, 9, 16},    {33, 0, 0},
    {63, 11, 33}, {64, 12, 63},   {65, 13, 64},   {90, 14, 65},  {90, 0, 0},     {127, 15, 79},
    {128, 0, 0},  {129, 18, 128}, {130, 19, 129}, {200, 18, 97}, {300, 21, 128}, {400, 22, 257},
};

/* The first `answered` tokens of the answer to text `to`, after that text, and `more` of its own.
 */
static const struct turn {
    int32_t to, answered, more;
} turns[TRACE_TURNS] = {
    {4, 24, 5},   {TRACE_PROMPTS, 24, 7},     {TRACE_PROMPTS + 1, 30, 3},
    {14, 40, 23}, {TRACE_PROMPTS + 3, 64, 8}, {TRACE_PROMPTS + 4, 57, 1},
};

enum { SPECIAL = 3 /* ids below are not drawn */ };

/* ------------------------------------------------------------------ models */

/* Opens a model at a level. *out stays NULL where this machine lacks it. */
static int32_t open_level(specbatch_model **out, const char *path, specbatch_model_options options,
                          int level)
{
    int32_t rc;

    if (place_is_cuda())
        return level == SPECBATCH_SIMD_AUTO ? specbatch_model_open(out, path, &options)
                                            : SPECBATCH_OK;
    options.simd = level;
    rc = level == TRACE_EMULATED ? open_with_emulated_tiles(out, path, &options)
                                 : specbatch_model_open(out, path, &options);
    return rc == SPECBATCH_E_UNSUPPORTED && level >= SPECBATCH_SIMD_AVX2 ? SPECBATCH_OK : rc;
}

static int open_levels(specbatch_model *out[TRACE_LEVELS], const struct trace_model *model,
                       const specbatch_model_options *options, const char *suffix)
{
    char path[620];

    snprintf(path, sizeof path, "%s%s", model->path, suffix);
    for (int level = 0; level < TRACE_LEVELS; level++)
        if (open_level(&out[level], path, *options, level) != SPECBATCH_OK)
            return -1;
    return 0;
}

static int has_draft(const struct trace_model *model)
{
    char path[620];

    snprintf(path, sizeof path, "%s.draft", model->path);
    return access(path, F_OK) == 0;
}

/* Opens the model that decodes plainly. It is the target itself; on a device in the numerics class
 * whose bits are the CPU's, it is the same checkpoint on the CPU. */
static int open_oracle(struct trace_model *model)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.compute = model->compute;
    options.kv = model->kv;
    options.weights = model->weights;
    if (place_is_cuda() && place_is_reference())
        return specbatch_model_open(&model->oracle, model->path, &options);
    model->oracle = model->target[0];
    specbatch_model_retain(model->oracle);
    return 0;
}

/* Opens model m of the world in a class. */
static int open_model(struct trace_model *model, const struct trace_world *world, const char *dir,
                      int m)
{
    if (m == world->given) {
        snprintf(model->path, sizeof model->path, "%s", place_checkpoint());
    } else {
        snprintf(model->path, sizeof model->path, "%s/%s",
                 strchr(models[m].name, '.') ? world->folder : dir, models[m].name);
        model->weights = models[m].weights;
        model->draft_weights = models[m].draft_weights;
        model->draft_compute = models[m].draft_compute;
    }
    specbatch_model_options options = place_options();
    options.weights = model->weights;
    if (!place_is_cuda()) {
        options.compute = model->compute;
        options.kv = model->kv;
    }
    if (open_levels(model->target, model, &options, "") || open_oracle(model))
        return -1;
    options.weights = model->draft_weights;
    if (!place_is_cuda() && model->draft_compute != SPECBATCH_COMPUTE_AUTO) {
        options.compute = model->draft_compute;
        options.kv = SPECBATCH_KV_AUTO;
    }
    return has_draft(model) ? open_levels(model->draft, model, &options, ".draft") : 0;
}

static int open_models(struct trace_world *world, const char *dir)
{
    static const struct {
        int32_t compute, kv;
    } classes[TRACE_CLASSES] = {{SPECBATCH_COMPUTE_F32, SPECBATCH_KV_F32},
                                [TRACE_BF16] = {SPECBATCH_COMPUTE_BF16, SPECBATCH_KV_BF16},
                                {SPECBATCH_COMPUTE_SPLIT, SPECBATCH_KV_F32},
                                {SPECBATCH_COMPUTE_F32, SPECBATCH_KV_BF16},
                                {SPECBATCH_COMPUTE_BF16, SPECBATCH_KV_F16},
                                [TRACE_INT8] = {SPECBATCH_COMPUTE_INT8, SPECBATCH_KV_AUTO},
                                {SPECBATCH_COMPUTE_SPLIT, SPECBATCH_KV_BF16}};

    world->n_models = TRACE_MODELS;
    world->given = place_checkpoint() ? world->n_models++ : -1;
    world->n_classes = place_is_cuda() ? 1 : TRACE_CLASSES;
    for (int c = 0; c < world->n_classes; c++)
        for (int m = 0; m < world->n_models; m++) {
            struct trace_model *model = &world->models[c][m];
            model->compute = place_is_cuda() ? place_options().compute : classes[c].compute;
            model->kv = place_is_cuda() ? SPECBATCH_KV_AUTO : classes[c].kv;
            if (open_model(model, world, dir, m))
                return -1;
        }
    return 0;
}

/* Writes windowed.gguf: a checkpoint whose later layers attend to a window now, which texts leave
 * by less than a tile of keys and by several. */
static int write_windowed(const struct test_dir *folder, const char *dir)
{
    static const char config[] =
        "{\"model_type\":\"qwen2\",\"vocab_size\":517,\"hidden_size\":72,\"intermediate_size\":136,"
        "\"num_hidden_layers\":3,\"num_attention_heads\":6,\"num_key_value_heads\":2,"
        "\"max_position_embeddings\":512,\"tie_word_embeddings\":true,\"bos_token_id\":1,"
        "\"eos_token_id\":2,\"use_sliding_window\":true,\"sliding_window\":40,"
        "\"max_window_layers\":1}";
    const struct test_dir edited = test_dir_make();
    char from[240], to[100];
    int32_t rc;

    snprintf(from, sizeof from, "%s/qwen2_tied_f32", dir);
    snprintf(to, sizeof to, "%s/windowed.gguf", folder->path);
    test_copy(&edited, from, "config.json");
    test_write_text(&edited, "config.json", config);
    rc = specbatch_convert(to, edited.path, NULL);
    test_dir_remove(&edited);
    return rc == SPECBATCH_OK ? 0 : -1;
}

/* Adds the types of a matrix. */
static void add_types(unsigned *types, int *mixed, const struct sb_weight *weight)
{
    *mixed |= weight->next != NULL;
    for (; weight; weight = weight->next)
        *types |= 1u << weight->dtype;
}

static void add_mlp_types(unsigned *types, int *mixed, const struct sb_mlp *mlp)
{
    add_types(types, mixed, &mlp->gate_up);
    add_types(types, mixed, &mlp->down);
}

unsigned trace_types(const specbatch_model *model, int *mixed)
{
    unsigned types = 0;

    *mixed = 0;
    add_types(&types, mixed, &model->embed);
    add_types(&types, mixed, &model->head);
    for (int32_t i = 0; i < model->config.layers; i++) {
        add_types(&types, mixed, &model->layers[i].qkv);
        add_types(&types, mixed, &model->layers[i].o);
        for (int32_t e = 0; e < model->config.experts; e++)
            add_mlp_types(&types, mixed, &model->layers[i].experts[e]);
        if (model->config.experts == 0)
            add_mlp_types(&types, mixed, &model->layers[i].mlp);
    }
    return types;
}

static void close_model(struct trace_model *model)
{
    specbatch_model_close(model->oracle);
    for (int level = 0; level < TRACE_LEVELS; level++) {
        specbatch_model_close(model->target[level]);
        specbatch_model_close(model->draft[level]);
    }
}

/* ------------------------------------------------------------------ texts */

static void add_random(struct trace_prompt *prompt, uint64_t *state, int32_t n)
{
    while (n-- > 0)
        prompt->ids[prompt->n++] = SPECIAL +
                                   (int32_t)(trace_random(state) % (TRACE_VOCAB - SPECIAL));
}

static void make_prompts(struct trace_world *world)
{
    uint64_t state = 42;

    for (int p = 0; p < TRACE_PROMPTS; p++) {
        const struct recipe *recipe = &recipes[p];
        struct trace_prompt *prompt = &world->prompts[p];
        memcpy(prompt->ids, world->prompts[recipe->like].ids,
               (size_t)recipe->shared * sizeof prompt->ids[0]);
        prompt->n = recipe->shared;
        add_random(prompt, &state, recipe->n - recipe->shared);
    }
}

const struct trace_prompt *trace_text(const struct trace_world *world,
                                      const struct trace_model *model, int p)
{
    return p < TRACE_PROMPTS ? &world->prompts[p] : &model->turns[p - TRACE_PROMPTS];
}

int32_t trace_turn_to(int p)
{
    return p < TRACE_PROMPTS ? -1 : turns[p - TRACE_PROMPTS].to;
}

/* Makes a turn, if text p is one: after that which it answers. */
static int make_turn(const struct trace_world *world, struct trace_model *model, int p)
{
    uint64_t state = (uint64_t)p;
    struct trace_prompt *made;
    const struct turn *turn;

    if (p < TRACE_PROMPTS)
        return 0;
    turn = &turns[p - TRACE_PROMPTS];
    made = &model->turns[p - TRACE_PROMPTS];
    if (trace_ask(world, model, turn->to))
        return -1;
    *made = *trace_text(world, model, turn->to);
    memcpy(made->ids + made->n, model->tokens[turn->to],
           (size_t)turn->answered * sizeof made->ids[0]);
    made->n += turn->answered;
    add_random(made, &state, turn->more);
    return 0;
}

int trace_ask(const struct trace_world *world, struct trace_model *model, int p)
{
    const struct trace_prompt *prompt = trace_text(world, model, p);
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result = NULL;
    const size_t n_new = (size_t)world->n_new;
    size_t n = 0;
    int rc = -1;

    if (model->asked[p])
        return 0;
    if (make_turn(world, model, p))
        return -1;
    options.policy = SPECBATCH_POLICY_PLAIN;
    options.batch = options.n_threads = 1;
    request.ids = prompt->ids;
    request.n_ids = (size_t)prompt->n;
    request.max_new = world->n_new;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS;
    if (specbatch_pool_create(&pool, model->oracle, NULL, &options) ||
        specbatch_pool_submit(pool, &request, NULL) || specbatch_pool_run(pool) ||
        specbatch_pool_collect(pool, &result))
        goto done;
    memcpy(model->tokens[p], specbatch_result_tokens(result, &n),
           n_new * sizeof model->tokens[p][0]);
    memcpy(model->logprobs[p], specbatch_result_logprobs(result, NULL),
           n_new * sizeof model->logprobs[p][0]);
    model->asked[p] = n == n_new;
    rc = model->asked[p] ? 0 : -1;
done:
    specbatch_result_free(result);
    specbatch_pool_free(pool);
    return rc;
}

/* ------------------------------------------------------------------ the world */

int trace_world_open(struct trace_world *world, const char *dir)
{
    const struct test_dir folder = test_dir_make();
    const int small = place_is_small();

    memset(world, 0, sizeof *world);
    world->n_prompts = small ? 16 : TRACE_PROMPTS;
    world->n_turns = small ? 3 : TRACE_TURNS;
    world->max_requests = small ? 6 : TRACE_REQUESTS;
    world->n_new = small ? TRACE_ORACLE / 2 : TRACE_ORACLE;
    make_prompts(world);
    snprintf(world->folder, sizeof world->folder, "%s", folder.path);
    random_models_write(&folder);
    return write_windowed(&folder, dir) ? -1 : open_models(world, dir);
}

int trace_world_ask(struct trace_world *world, int class)
{
    for (int m = 0; m < world->n_models; m++)
        for (int p = 0; p < TRACE_PROMPTS + world->n_turns; p++)
            if ((p < world->n_prompts || p >= TRACE_PROMPTS) &&
                trace_ask(world, &world->models[class][m], p))
                return -1;
    return 0;
}

void trace_world_close(struct trace_world *world)
{
    struct test_dir folder;

    for (int c = 0; c < world->n_classes; c++)
        for (int m = 0; m < world->n_models; m++)
            close_model(&world->models[c][m]);
    memcpy(folder.path, world->folder, sizeof folder.path);
    test_dir_remove(&folder);
}
