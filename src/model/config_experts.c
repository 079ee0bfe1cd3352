/*
 * Mixtures of experts: how many there are, how many are chosen for a token, and what becomes of
 * their weights.
 *
 * Every layer must have a mixture. transformers can leave some of Qwen's layers with one MLP
 * (mlp_only_layers, decoder_sparse_step), which no published model does.
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

/* Reads how many there are. Either key has been written for either model. */
static int32_t read_number(struct sb_config *config, const struct sb_fields *fields)
{
    static const char *const keys[2] = {"num_experts", "num_local_experts"};
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
    if (!arch->renormalises)
        SB_TRY(sb_field_bool(fields, "norm_topk_prob", &config->renormalises));
done:
    return rc;
}
