/* Options that programs have in common; their groups are those of run_args.h. */
#include "run_args.h"

#include <inttypes.h>

#include "chat_ids.h"
#include "sampling_args.h"
#include "support.h"

void ex_model_options(struct ex_option *rows, size_t *n, struct ex_run_args *args)
{
    const struct ex_option options[] = {
        {"--target", "DIR", EX_STRING, &args->target_dir, 0, 0,
         "checkpoint, or a GGUF file, whose text it is; required"},
        {"--draft", "DIR|ngram|table:FILE", EX_STRINGS, &args->drafts, 0, 0,
         "DIR: a checkpoint; ngram: repetitions in the text; table:FILE: a file made by "
         "ngram_table (installed: specbatch-table); given several times, they are asked in turn "
         "(default: none)"},
        {"--draft-min-percent", "P", EX_INT, &args->draft_min_percent, 0, 100,
         "a checkpoint proposes nothing behind a token less probable than P % (0)"},
        {"--threads", "N", EX_INT, &args->threads, 1, 256, "threads (one for each processor)"},
        {"--device", "cpu|cuda", EX_CHOICE, &args->device, 0, 0, "where the models run (cpu)"},
        {"--compute", "auto|bf16|f32|split|int8", EX_CHOICE, &args->compute, 0, 0,
         "class of the products (auto: f32, or split with a matrix unit; cuda: bf16)"},
        {"--draft-compute", "auto|bf16|f32|split|int8", EX_CHOICE, &args->draft_compute, 0, 0,
         "the same for the draft, whose class changes no token (as --compute)"},
        {"--kv", "auto|f32|bf16|f16", EX_CHOICE, &args->kv, 0, 0,
         "type of the caches, a class of its own (auto: f32, with --compute bf16 and int8 bf16; "
         "cuda: that of the weights)"},
        {"--weights", "auto|q8|q4", EX_CHOICE, &args->weights, 0, 0,
         "quantise the matrices when loading (auto: as they are stored)"},
        {"--draft-weights", "auto|q8|q4", EX_CHOICE, &args->draft_weights, 0, 0,
         "the same for the draft (as --weights)"},
        {"--prefill", "own|cudnn", EX_CHOICE, &args->prefill, 0, 0,
         "cuda: who computes the attention of long prompts, a class of its own (own)"},
        {"--simd", "auto|scalar|avx2|avx512|amx", EX_CHOICE, &args->simd, 0, 0,
         "instruction set (auto)"},
        {"--plan-file", "FILE", EX_STRING, &args->plan_file, 0, 0,
         "cuda: keep the timings of large products in FILE (made anew)"},
    };

    args->draft_compute = args->draft_weights = -1;
    ex_options_add(rows, n, options, sizeof options / sizeof options[0]);
}

void ex_prompt_options(struct ex_option *rows, size_t *n, struct ex_run_args *args)
{
    const struct ex_option options[] = {
        {"--prompts", "FILE", EX_STRING, &args->prompts_file, 0, 0,
         "prompts as JSON lines, see above; -: stdin; required"},
        {"--limit", "N", EX_INT, &args->limit, 1, INT32_MAX, "take the first N prompts only"},
        {"--chat", EX_CHAT_FORMATS, EX_CHOICE, &args->chat, 0, 0,
         "the chat format of texts; auto: that of the target for \"turns\", which are refused if "
         "it has none that is known, and raw for others (auto)"},
        {"--no-think", NULL, EX_SWITCH, &args->no_think, 0, 0,
         "answers of a conversation without reasoning"},
        {"--effort", "default|low|medium|high", EX_CHOICE, &args->effort, 0, 0,
         "how long gpt-oss is to reason (default: medium)"},
        {"--date", "YYYYMMDD", EX_INT, &args->date, 0, 99991231,
         "the day that a chat format says, 20261129 for example (today, for those that ask)"},
    };

    ex_options_add(rows, n, options, sizeof options / sizeof options[0]);
}

void ex_wish_options(struct ex_option *rows, size_t *n, struct ex_run_args *args)
{
    struct ex_wish *wish = &args->wish;
    const struct ex_option options[] = {
        {"--max-new", "N", EX_INT, &wish->max_new, 1, INT32_MAX,
         "tokens to generate for each prompt (128)"},
        {"--n", "N", EX_INT, &wish->n, 1, 1024,
         "answers to each prompt, with the seeds --seed, --seed + 1 and so on (1)"},
        {"--best-of", "N", EX_INT, &wish->best_of, 1, 1024,
         "make so many, and keep the --n most probable ones"},
        {"--min-new", "N", EX_INT, &wish->min_new, 0, INT32_MAX,
         "tokens before which nothing ends an answer (0)"},
        {"--stop", "TEXT", EX_STRINGS, &wish->stops, 0, 0,
         "end answers before this text; may be given 16 times"},
        {"--ignore-eos", NULL, EX_SWITCH, &wish->ignore_eos, 0, 0,
         "go on past the end-of-sequence tokens"},
        {"--logprobs", NULL, EX_SWITCH, &wish->logprobs, 0, 0, "keep each token's log-probability"},
        {"--top-logprobs", "N", EX_INT, &wish->top_logprobs, 1, 32,
         "keep each token's N most probable alternatives"},
        {"--filtered-logprobs", NULL, EX_SWITCH, &wish->filtered_logprobs, 0, 0,
         "both by the probabilities that are sampled from (the model's own)"},
        {"--spare-prompt", NULL, EX_SWITCH, &wish->spare_prompt, 0, 0,
         "--repeat-penalty counts the answer only (the prompt too)"},
    };

    wish->max_new = 128;
    ex_options_add(rows, n, options, sizeof options / sizeof options[0]);
    ex_sampling_options(rows + *n, &wish->sampling);
    *n += EX_SAMPLING_OPTIONS;
}

void ex_cache_options(struct ex_option *rows, size_t *n, struct ex_run_args *args)
{
    const struct ex_option options[] = {
        {"--cache-columns", "N", EX_INT, &args->cache_columns, 1, INT32_MAX,
         "tokens that the caches have room for in all (what B of the longest need)"},
        {"--grow-slots", NULL, EX_SWITCH, &args->grow_slots, 0, 0,
         "room for an answer as it grows, and not for all of --max-new"},
        {"--prefix-bytes", "BYTES", EX_BYTES, &args->prefix_bytes, 0, 0,
         "keep what prompts begin with; 512M, 2G (0)"},
    };

    ex_options_add(rows, n, options, sizeof options / sizeof options[0]);
}

int ex_run_args_check(const struct ex_run_args *args)
{
    const struct ex_wish *wish = &args->wish;

    if (!args->target_dir || !args->prompts_file)
        return ex_complain("%s is required; --help lists all",
                           args->target_dir ? "--prompts" : "--target");
    if (wish->best_of && wish->best_of < wish->n)
        return ex_complain("--best-of: %" PRId32 " is less than --n, %" PRId32, wish->best_of,
                           wish->n);
    return 1;
}

void ex_run_args_pool(specbatch_pool_options *pool, const struct ex_run_args *args)
{
    pool->draft_min_prob = (float)args->draft_min_percent / 100.0f;
    pool->n_threads = args->threads;
    pool->cache_columns = (uint64_t)args->cache_columns;
    pool->prefix_bytes = args->prefix_bytes;
    pool->flags |= args->grow_slots ? SPECBATCH_POOL_GROW_SLOTS : 0u;
}

struct ex_prompt_rules ex_run_args_rules(const struct ex_run_args *args,
                                         const specbatch_model *target, int32_t max_len)
{
    return (struct ex_prompt_rules){.target = target,
                                    .chat = {args->chat,
                                             args->no_think ? SPECBATCH_CHAT_NO_THINK : 0,
                                             args->date, args->effort},
                                    .max_new = args->wish.max_new,
                                    .max_len = max_len ? max_len : specbatch_model_context(target)};
}

int ex_open_models(specbatch_model **target, specbatch_draft **draft,
                   const struct ex_run_args *args)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.device = args->device;
    options.compute = args->compute;
    options.simd = args->simd;
    options.kv = args->kv;
    options.weights = args->weights;
    options.prefill = args->prefill;
    options.plan_file = args->plan_file;
    if (specbatch_model_open(target, args->target_dir, &options) != SPECBATCH_OK)
        return ex_complain("--target: %s", specbatch_last_error());
    options.prefill = SPECBATCH_PREFILL_OWN; /* as drafts are, whatever is asked for */
    if (args->draft_compute >= 0)
        options.compute = args->draft_compute;
    if (args->draft_weights >= 0)
        options.weights = args->draft_weights;
    return args->drafts.n == 0 || ex_open_draft(draft, args->drafts.at, args->drafts.n, &options);
}
