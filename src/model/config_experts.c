/*
 * Mixtures of experts: how many there are, how many are chosen for a token, and what becomes of
 * their weights.
 *
 * Layers without a mixture can only be the first ones. transformers can leave any of Qwen's layers
 * with one MLP (mlp_only_layers, decoder_sparse_step), which no published model does.
 */
#include "model/config_experts.h"

#include "status.h"

/* Refuses layers that have no mixture, and windows, which Qwen gives to other layers here than
 * where it has no experts. */
static int32_t refuse_others(const struct sb_arch *arch, const struct sb_fields *fields)
{
    static const char only[] = "mlp_only_layers";
    const struct sb_json_node *layers = sb_json_get(fields->object, only);
    int32_t step = 1;
    int windows = 0;
    int32_t rc = SPECBATCH_OK;

    if (sb_field_given(fields, only) &&
        (sb_json_kind(layers) != SB_JSON_ARRAY || sb_json_count(layers) > 0))
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %s%s: layers without experts are not supported",
                fields->file, fields->prefix, only);
    SB_TRY(sb_field_int(fields, "decoder_sparse_step", 1, INT32_MAX, &step));
    if (step != 1)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: %sdecoder_sparse_step %d: layers without experts are not supported",
                fields->file, fields->prefix, (int)step);
    SB_TRY(sb_field_bool(fields, "use_sliding_window", &windows));
    if (windows)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: %suse_sliding_window is not supported with model_type %s", fields->file,
                fields->prefix, arch->model_type);
done:
    return rc;
}

/* Reads how many there are. Either key has been written for any model. */
static int32_t read_number(struct sb_config *config, const struct sb_fields *fields)
{
    const char *const own = config->arch->experts_key;
    const char *const keys[2] = {own ? own : "num_experts", "num_local_experts"};
    int32_t n[2] = {0, 0};
    int32_t rc = SPECBATCH_OK;

    for (int i = 0; i < 2; i++)
        SB_TRY(sb_field_int(fields, keys[i], 1, SB_EXPERTS_MAX, &n[i]));
    if (n[0] > 0 && n[1] > 0 && n[0] != n[1])
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %s%s %d and %s %d differ; keep one", fields->file,
                fields->prefix, keys[0], (int)n[0], keys[1], (int)n[1]);
    config->experts = n[0] > 0 ? n[0] : n[1] > 0 ? n[1] : config->arch->default_experts;
done:
    return rc;
}

/* Groups of experts, of which some are left out, would be another choice. */
static int32_t refuse_groups(const struct sb_fields *fields)
{
    int32_t groups = 1;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_field_int(fields, "n_group", 1, SB_EXPERTS_MAX, &groups));
    if (groups != 1)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %sn_group %d: groups of experts are not supported",
                fields->file, fields->prefix, (int)groups);
done:
    return rc;
}

/* Reads what there is beside the experts that are chosen: one for every token, and layers that have
 * no mixture. */
static int32_t read_others(struct sb_config *config, const struct sb_fields *fields)
{
    const struct sb_arch *arch = config->arch;
    int32_t rc = SPECBATCH_OK;

    config->has_shared = arch->default_shared;
    config->dense_layers = arch->default_dense;
    config->expert_scale = 1.0;
    if (arch->shared_expert) {
        SB_TRY(refuse_groups(fields));
        SB_TRY(sb_field_int(fields, "n_shared_experts", 0, SB_EXPERTS_MAX, &config->has_shared));
        SB_TRY(sb_field_double(fields, "routed_scaling_factor", 1e-6, 1e6, &config->expert_scale));
    }
    if (config->has_shared > 1)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %sn_shared_experts %d: at most 1 is supported",
                fields->file, fields->prefix, (int)config->has_shared);
    if (!arch->dense)
        goto done;
    SB_TRY(sb_field_int(fields, "first_k_dense_replace", 0, SB_LAYERS_MAX, &config->dense_layers));
    if (config->dense_layers > config->layers)
        config->dense_layers = config->layers;
    if (config->dense_layers > 0)
        SB_TRY(sb_field_need(fields, "intermediate_size"));
    SB_TRY(sb_field_int(fields, "intermediate_size", 1, SB_INTER_MAX, &config->dense_inter));
done:
    return rc;
}

int32_t sb_config_experts(struct sb_config *config, const struct sb_fields *fields)
{
    const struct sb_arch *arch = config->arch;
    int32_t rc = SPECBATCH_OK;

    if (!arch->router)
        return SPECBATCH_OK;
    SB_TRY(refuse_others(arch, fields));
    SB_TRY(read_number(config, fields));
    config->chosen = arch->default_chosen;
    SB_TRY(sb_field_int(fields, "num_experts_per_tok", 1, SB_EXPERTS_MAX, &config->chosen));
    if (config->chosen > config->experts)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %snum_experts_per_tok %d is more than the %d experts",
                fields->file, fields->prefix, (int)config->chosen, (int)config->experts);
    config->renormalises = arch->renormalises;
    if (arch->norm_topk_key)
        SB_TRY(sb_field_bool(fields, arch->norm_topk_key, &config->renormalises));
    SB_TRY(read_others(config, fields));
done:
    return rc;
}
