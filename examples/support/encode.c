/* A text may become a user's message of a conversation before it becomes ids. */
#include "encode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "prompt_line.h"
#include "support.h"

/* NULL, or what is wrong. */
static const char *encode_text(struct ex_prompt *prompt, const struct ex_prompt_rules *rules)
{
    if (!specbatch_model_has_tokenizer(rules->target))
        return "a text, but the target has no tokenizer; give \"ids\"";
    if (prompt->is_turn && rules->chat.format == SPECBATCH_CHAT_AUTO &&
        specbatch_model_chat_format(rules->target) < 0)
        return "\"turns\", but the target has no chat template that is known; name its format with "
               "--chat, or take --chat raw";
    prompt->ids = ex_text_ids(rules->target, &rules->chat, prompt->is_turn, prompt->text,
                              &prompt->n_ids);
    if (!prompt->ids)
        return specbatch_last_error();
    free(prompt->text);
    prompt->text = NULL;
    return prompt->n_ids ? NULL : "the prompt is empty";
}

/* `of`: what has the ids. */
static int are_tokens(const struct ex_prompt *prompt, const char *file, const char *of,
                      const int32_t *ids, size_t n, int32_t vocab)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= vocab)
            return ex_complain("%s:%zu: %s id %" PRId32 " is outside the vocabulary, 0..%" PRId32,
                               file, prompt->line, of, ids[i], vocab - 1);
    return 1;
}

static int check_ids(const struct ex_prompt *prompt, const char *file,
                     const struct ex_prompt_rules *rules)
{
    const int32_t vocab = specbatch_model_vocab_size(rules->target);
    const struct ex_wish *wish = &prompt->own.wish;
    const int32_t max_new = wish->max_new ? wish->max_new : rules->max_new;

    if (!are_tokens(prompt, file, "token", prompt->ids, prompt->n_ids, vocab) ||
        !are_tokens(prompt, file, "bias", wish->sampling.bias_ids, wish->sampling.n_bias, vocab) ||
        !are_tokens(prompt, file, "stop", wish->stop_ids.at, wish->stop_ids.n, vocab))
        return 0;
    if (prompt->n_ids + (size_t)max_new > (size_t)rules->max_len)
        return ex_complain("%s:%zu: too long: %zu tokens and %" PRId32 " new ones, where %" PRId32
                           " fit",
                           file, prompt->line, prompt->n_ids, max_new, rules->max_len);
    return 1;
}

int ex_prompts_encode(struct ex_prompts *prompts, const char *file,
                      const struct ex_prompt_rules *rules)
{
    size_t i;

    file = ex_prompts_name(file);
    for (i = 0; i < prompts->n; i++) {
        struct ex_prompt *prompt = &prompts->at[i];
        const char *why = prompt->text ? encode_text(prompt, rules) : NULL;
        if (why)
            return ex_prompt_bad(prompt, file, why);
        if (!check_ids(prompt, file, rules))
            return 0;
        if (prompt->n_ids > prompts->longest)
            prompts->longest = prompt->n_ids;
    }
    return 1;
}

int ex_prompts_load(struct ex_prompts *out, const char *file, const struct ex_prompt_rules *rules)
{
    return ex_prompts_read(out, file, rules->limit) && ex_prompts_encode(out, file, rules);
}
