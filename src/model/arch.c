/* The list of architectures, and finding one by the names that config.json gives it. */
#include "model/arch.h"

#include <stdio.h>
#include <string.h>

/* Every architecture that the library knows. To add one, write a file arch_NAME.c that defines
 * sb_arch_NAME, and add X(NAME) here. */
#define ARCHITECTURES(X) \
    X(llama)             \
    X(qwen2)             \
    X(qwen3)             \
    X(qwen3_moe)         \
    X(glm4) X(glm4_moe) X(mistral) X(mixtral) X(phi3) X(gemma2) X(gemma3) X(gpt_oss) X(smollm3)

#define DECLARE(name) extern const struct sb_arch sb_arch_##name;
#define POINTER(name) &sb_arch_##name,
ARCHITECTURES(DECLARE)
static const struct sb_arch *const archs[] = {ARCHITECTURES(POINTER)};
enum { N_ARCHS = sizeof archs / sizeof archs[0] };

int sb_arch_has_bias(enum sb_bias rule, int by_config)
{
    return rule == SB_BIAS_ALWAYS || (rule == SB_BIAS_BY_CONFIG && by_config);
}

int sb_arch_has_head_norms(const struct sb_arch *arch, int by_config)
{
    return arch->q_norm && (by_config || !arch->head_norm_key);
}

const struct sb_arch *sb_arch_by_type(const char *model_type)
{
    for (size_t i = 0; i < N_ARCHS; i++)
        if (strcmp(model_type, archs[i]->model_type) == 0 ||
            (archs[i]->whole_type && strcmp(model_type, archs[i]->whole_type) == 0))
            return archs[i];
    return NULL;
}

const struct sb_arch *sb_arch_by_class(const char *class_name)
{
    for (size_t i = 0; i < N_ARCHS; i++)
        if (strcmp(class_name, archs[i]->class_name) == 0 ||
            (archs[i]->whole_class && strcmp(class_name, archs[i]->whole_class) == 0))
            return archs[i];
    return NULL;
}

int sb_arch_has_local_rope(const struct sb_arch *arch)
{
    return arch->default_local_theta > 0.0;
}

int sb_arch_has_two_ropes(const struct sb_arch *arch)
{
    return sb_arch_has_local_rope(arch) || arch->unrotated_period > 0;
}

const char *sb_arch_gguf_name(const struct sb_arch *arch)
{
    return arch->gguf_name ? arch->gguf_name : arch->model_type;
}

const struct sb_arch *sb_arch_by_gguf_name(const char *name, int has_window, int has_experts)
{
    const struct sb_arch *first = NULL;

    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strcmp(name, sb_arch_gguf_name(archs[i])) != 0 || !archs[i]->router != !has_experts)
            continue;
        if (!has_window || archs[i]->window != SB_WINDOW_NEVER)
            return archs[i];
        first = first ? first : archs[i];
    }
    return first;
}

void sb_arch_list(char *text, size_t size)
{
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < N_ARCHS && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", archs[i]->model_type);
}
