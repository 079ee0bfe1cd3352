/*
 * Sliding windows: which layers attend to the last tokens only, and to how many. config.json says
 * it in one of four ways, which are read as transformers reads them:
 *
 *   layer_types               a list of "sliding_attention" and "full_attention" (Qwen, Gemma)
 *   max_window_layers         layers from this one on have the window (Qwen)
 *   sliding_window_pattern    each layer of this number has none (Gemma)
 *   none of these             all layers have it (Mistral, Phi)
 *
 * A sliding_window that is null is none.
 */
#include "model/config_window.h"

#include <string.h>

#include "status.h"

/* Marks the local layers that layer_types lists. *is_named: whether there are any. */
static int32_t read_layer_types(int *is_named, struct sb_config *config,
                                const struct sb_fields *fields)
{
    const struct sb_json_node *types = sb_json_get(fields->object, "layer_types");
    int32_t i = 0;

    *is_named = 0;
    if (!sb_field_given(fields, "layer_types"))
        return SPECBATCH_OK;
    if (sb_json_kind(types) != SB_JSON_ARRAY || sb_json_count(types) != (size_t)config->layers)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: %slayer_types is not a list of %d names",
                       fields->file, fields->prefix, (int)config->layers);
    for (const struct sb_json_node *t = sb_json_first(types); t; t = sb_json_next(t), i++) {
        const char *name = sb_json_word(t);
        config->is_local[i] = name && strcmp(name, "sliding_attention") == 0;
        if ((!config->is_local[i] || config->arch->window == SB_WINDOW_NEVER) &&
            (!name || strcmp(name, "full_attention") != 0))
            return sb_fail(SPECBATCH_E_UNSUPPORTED,
                           "%s: %slayer_types has \"%.30s\", which is not supported with "
                           "model_type %s",
                           fields->file, fields->prefix, name ? name : "(not a name)",
                           config->arch->model_type);
        *is_named |= config->is_local[i];
    }
    return SPECBATCH_OK;
}

void sb_config_mark_local(struct sb_config *config, int32_t period)
{
    for (int32_t i = 0; i < config->layers; i++)
        config->is_local[i] = (uint8_t)sb_is_local_by(period, i);
}

void sb_config_set_window(struct sb_config *config, int32_t window)
{
    int some = 0;

    for (int32_t i = 0; i < config->layers; i++)
        some |= config->is_local[i];
    config->window = window;
    if (some && window > 0 && (window < config->context || sb_arch_has_local_rope(config->arch)))
        return;
    config->window = 0;
    memset(config->is_local, 0, sizeof config->is_local);
}

/* Where it is for config.json to say whether the window is used. Without layer_types, transformers
 * gives it to the layers from max_window_layers (28 if absent) on. */
static int32_t mark_if_used(int is_named, struct sb_config *config, const struct sb_fields *fields)
{
    int32_t from = 28;
    int used = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_field_bool(fields, "use_sliding_window", &used));
    SB_TRY(sb_field_int(fields, "max_window_layers", 0, INT32_MAX, &from));
    if (is_named && (!used || sb_field_null(fields, "sliding_window")))
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%s: layer_types has \"sliding_attention\", but there is no sliding_window",
                fields->file);
    for (int32_t i = 0; !sb_field_given(fields, "layer_types") && i < config->layers; i++)
        config->is_local[i] = used && i >= from;
done:
    return rc;
}

/* Where layers take turns, unless layer_types says which of them are local. (transformers 5 writes
 * _sliding_window_pattern too, and never reads it.) */
static int32_t mark_by_period(struct sb_config *config, const struct sb_fields *fields)
{
    int32_t period = config->arch->window_period;
    int32_t rc = SPECBATCH_OK;

    if (sb_field_given(fields, "layer_types"))
        goto done;
    SB_TRY(sb_field_int(fields, "sliding_window_pattern", 1, SB_LAYERS_MAX, &period));
    sb_config_mark_local(config, period);
done:
    return rc;
}

int32_t sb_config_window(struct sb_config *config, const struct sb_fields *fields)
{
    const struct sb_arch *arch = config->arch;
    const int is_null = sb_field_null(fields, "sliding_window");
    int32_t window = is_null || arch->window == SB_WINDOW_NEVER ? 0 : arch->default_window;
    int is_named;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_layer_types(&is_named, config, fields));
    if (arch->window == SB_WINDOW_IF_USED)
        SB_TRY(mark_if_used(is_named, config, fields));
    else if (arch->window_period > 0)
        SB_TRY(mark_by_period(config, fields));
    else if (arch->window == SB_WINDOW_ALWAYS)
        sb_config_mark_local(config, 0);
    if (arch->window != SB_WINDOW_NEVER && !is_null)
        SB_TRY(sb_field_int(fields, "sliding_window", 1, INT32_MAX, &window));
    if (sb_arch_has_local_rope(config->arch) && is_null)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %ssliding_window null is not supported", fields->file,
                fields->prefix);
    sb_config_set_window(config, window);
done:
    return rc;
}
