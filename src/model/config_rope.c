/*
 * The rotary position embedding that config.json describes, in either of two spellings:
 *
 *   transformers 4   "rope_theta": ..., "partial_rotary_factor": ...,
 *                    "rope_scaling": null or {"rope_type" or "type": ..., its numbers}
 *   transformers 5   "rope_parameters": {"rope_type": ..., "rope_theta": ...,
 *                                        "partial_rotary_factor": ..., its numbers}
 *
 * In this file "scaling" is the inner object of either. Rules and defaults are those of
 * transformers (modeling_rope_utils.py). What its versions 4 and 5 read differently is refused,
 * unless a comment says which of them is followed.
 *
 * Frequencies do not depend on the length of the sequence here. Where they do, keys that are in the
 * cache already would have to be rotated again as a sequence grows. So "dynamic" is refused, and
 * "longrope", which has other frequencies beyond its original context, is followed up to there.
 */
#include "model/config_rope.h"

#include <math.h>
#include <string.h>

#include "status.h"

#define THETA_MIN 1.01
#define THETA_MAX 1e15
#define FACTOR_MAX 1e6
#define CONTEXT_MAX 1e9
/* A factor is written in decimal digits, so it need not be the exact quotient of two integers. */
#define RATIO_TOLERANCE 1e-6

/* Where local layers have a rotation of their own, rope_parameters has an object for either kind of
 * layers, of which one may be missing. */
static int32_t split_scaling(struct sb_fields *scaling, struct sb_fields *local,
                             const struct sb_config *config)
{
    const struct sb_json_node *full = sb_json_get(scaling->object, "full_attention");
    const struct sb_json_node *sliding = sb_json_get(scaling->object, "sliding_attention");
    const int is_split = full || sliding;

    if (is_split && !sb_arch_has_local_rope(config->arch))
        return sb_fail(SPECBATCH_E_UNSUPPORTED,
                       "%s: rope_parameters differ by layer type, which is not supported with "
                       "model_type %s",
                       scaling->file, config->arch->model_type);
    if (!sb_arch_has_local_rope(config->arch))
        return SPECBATCH_OK;
    if (!is_split || (full && sb_json_kind(full) != SB_JSON_OBJECT) ||
        (sliding && sb_json_kind(sliding) != SB_JSON_OBJECT))
        return sb_fail(SPECBATCH_E_FORMAT,
                       "%s: rope_parameters has no objects full_attention and sliding_attention",
                       scaling->file);
    *scaling = (struct sb_fields){scaling->file, "rope_parameters.full_attention.", full};
    local->object = sliding;
    return SPECBATCH_OK;
}

/* Finds the scaling's object, or none. Where both spellings have one, nobody can say which is
 * meant. *local: the object of local layers, where these have a rotation of their own. */
static int32_t find_scaling(struct sb_fields *scaling, struct sb_fields *local,
                            const struct sb_config *config, const struct sb_fields *fields)
{
    const int new_style = sb_field_given(fields, "rope_parameters");
    const int old_style = sb_field_given(fields, "rope_scaling");

    *scaling = (struct sb_fields){fields->file, "rope_scaling.", NULL};
    *local = (struct sb_fields){fields->file, "rope_parameters.sliding_attention.", NULL};
    if (new_style && old_style)
        return sb_fail(SPECBATCH_E_UNSUPPORTED,
                       "%s: has both rope_parameters and rope_scaling; keep one", fields->file);
    if (new_style)
        scaling->prefix = "rope_parameters.";
    if (new_style || old_style)
        scaling->object = sb_json_get(fields->object,
                                      new_style ? "rope_parameters" : "rope_scaling");
    if (scaling->object && sb_json_kind(scaling->object) != SB_JSON_OBJECT)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: %.*s is not an object", fields->file,
                       (int)strlen(scaling->prefix) - 1, scaling->prefix);
    return new_style ? split_scaling(scaling, local, config) : SPECBATCH_OK;
}

static int32_t find_kind(struct sb_rope_config *rope, const struct sb_fields *scaling)
{
    static const char *const names[] = {"default", "linear", "llama3", "yarn", "longrope"};
    const char *type = "default";
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_field_string(scaling, sb_field_given(scaling, "rope_type") ? "rope_type" : "type",
                           &type));
    if (strcmp(type, "su") == 0) /* as longrope was called first */
        type = "longrope";
    for (int kind = SB_ROPE_DEFAULT; kind <= SB_ROPE_LONGROPE; kind++)
        if (strcmp(type, names[kind]) == 0) {
            rope->kind = (enum sb_rope_kind)kind;
            goto done;
        }
    SB_FAIL(SPECBATCH_E_UNSUPPORTED,
            "%s: %srope_type \"%.30s\" is not supported; supported: default, linear, llama3, yarn, "
            "longrope",
            scaling->file, scaling->prefix, type);
done:
    return rc;
}

/* Reads the share of a head that is rotated from one of the two places. In architectures that
 * rotate whole heads, transformers 5 ignores partial_rotary_factor, and 4 obeys it or breaks. */
static int32_t read_share(double *share, const struct sb_config *config,
                          const struct sb_fields *fields)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_field_double(fields, "partial_rotary_factor", 0.0, 1.0, share));
    if (!config->arch->has_partial_rotary && *share != config->arch->default_partial_rotary)
        SB_FAIL(
            SPECBATCH_E_UNSUPPORTED,
            "%s: %spartial_rotary_factor %g is not supported with model_type %s, where versions of "
            "transformers disagree about it; remove it if the heads are rotated whole",
            fields->file, fields->prefix, *share, config->arch->model_type);
done:
    return rc;
}

/* Reads the share of a head that is rotated, and theta. As in transformers 5, the scaling's object
 * has precedence over the top level. */
static int32_t read_base(struct sb_config *config, const struct sb_fields *fields,
                         const struct sb_fields *scaling)
{
    struct sb_rope_config *rope = &config->rope;
    double share = config->arch->default_partial_rotary;
    int32_t rc = SPECBATCH_OK;

    rope->theta = config->arch->default_theta > 0.0 ? config->arch->default_theta : 10000.0;
    SB_TRY(sb_field_double(fields, "rope_theta", THETA_MIN, THETA_MAX, &rope->theta));
    SB_TRY(sb_field_double(scaling, "rope_theta", THETA_MIN, THETA_MAX, &rope->theta));
    SB_TRY(read_share(&share, config, fields));
    SB_TRY(read_share(&share, config, scaling));
    rope->rot_dim = (int32_t)(config->head_dim * share);
    if (rope->rot_dim < 2 || rope->rot_dim % 2 != 0)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: partial_rotary_factor %g rotates %d of head_dim %d; an even number is needed",
                fields->file, share, (int)rope->rot_dim, (int)config->head_dim);
done:
    return rc;
}

/* Reads the context before scaling, from the scaling's object or from the top level. If both have
 * it, they must agree: transformers 5 obeys the top level, and 4 the object. If neither has it, the
 * value stays as it is. */
static int32_t read_original(struct sb_rope_config *rope, const struct sb_fields *fields,
                             const struct sb_fields *scaling)
{
    static const char key[] = "original_max_position_embeddings";
    double top = 0.0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_field_double(scaling, key, 1.0, CONTEXT_MAX, &rope->original_context));
    SB_TRY(sb_field_double(fields, key, 1.0, CONTEXT_MAX, &top));
    if (!sb_field_given(fields, key))
        goto done;
    if (sb_field_given(scaling, key) && top != rope->original_context)
        SB_FAIL(
            SPECBATCH_E_UNSUPPORTED,
            "%s: %s%s is %.9g and %s at the top level is %.9g: versions of transformers disagree "
            "which one counts; keep one",
            scaling->file, scaling->prefix, key, rope->original_context, key, top);
    rope->original_context = top;
done:
    return rc;
}

static int32_t read_llama3(struct sb_rope_config *rope, const struct sb_fields *fields,
                           const struct sb_fields *scaling)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_field_need(scaling, "low_freq_factor"));
    SB_TRY(sb_field_need(scaling, "high_freq_factor"));
    if (!sb_field_given(fields, "original_max_position_embeddings"))
        SB_TRY(sb_field_need(scaling, "original_max_position_embeddings"));
    SB_TRY(sb_field_double(scaling, "low_freq_factor", 1e-6, FACTOR_MAX, &rope->low_freq));
    SB_TRY(sb_field_double(scaling, "high_freq_factor", 1e-6, FACTOR_MAX, &rope->high_freq));
    SB_TRY(read_original(rope, fields, scaling));
    if (rope->high_freq <= rope->low_freq)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %shigh_freq_factor is not above low_freq_factor",
                scaling->file, scaling->prefix);
done:
    return rc;
}

void sb_rope_yarn_defaults(struct sb_config *config)
{
    struct sb_rope_config *rope = &config->rope;

    rope->original_context = config->context;
    rope->beta_fast = 32.0;
    rope->beta_slow = 1.0;
    rope->truncate = 1;
}

double sb_rope_yarn_mscale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static int32_t read_yarn(struct sb_config *config, const struct sb_fields *fields,
                         const struct sb_fields *scaling)
{
    struct sb_rope_config *rope = &config->rope;
    double mscale = 0.0, mscale_all = 0.0;
    int32_t rc = SPECBATCH_OK;

    sb_rope_yarn_defaults(config);
    SB_TRY(read_original(rope, fields, scaling));
    SB_TRY(sb_field_double(scaling, "beta_fast", 1e-6, FACTOR_MAX, &rope->beta_fast));
    SB_TRY(sb_field_double(scaling, "beta_slow", 1e-6, FACTOR_MAX, &rope->beta_slow));
    if (sb_field_null(scaling, "truncate"))
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: %struncate is null, which versions of transformers read differently; "
                "write true or false",
                scaling->file, scaling->prefix);
    SB_TRY(sb_field_bool(scaling, "truncate", &rope->truncate));
    SB_TRY(sb_field_double(scaling, "mscale", 0.0, FACTOR_MAX, &mscale));
    SB_TRY(sb_field_double(scaling, "mscale_all_dim", 0.0, FACTOR_MAX, &mscale_all));
    if (rope->beta_fast < rope->beta_slow)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %sbeta_fast is below beta_slow", scaling->file,
                scaling->prefix);
    /* If rope_scaling has the original context, transformers 4 ignores the factor and takes context
     * / original, while 5 obeys the factor. In rope_parameters, which only 5 knows, the factor
     * counts. */
    if (sb_field_given(fields, "rope_scaling") &&
        sb_field_given(scaling, "original_max_position_embeddings") &&
        fabs(config->context / rope->original_context - rope->factor) >
            RATIO_TOLERANCE * rope->factor)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: rope_scaling.factor %.9g is not max_position_embeddings / "
                "original_max_position_embeddings (%d / %.9g): transformers 4 and 5 disagree; set "
                "max_position_embeddings to factor * original = %.0f, or write rope_parameters",
                fields->file, rope->factor, (int)config->context, rope->original_context,
                rope->factor * rope->original_context);
    rope->attention_factor = sb_rope_yarn_mscale(rope->factor, 1.0);
    if (mscale > 0.0 && mscale_all > 0.0)
        rope->attention_factor = sb_rope_yarn_mscale(rope->factor, mscale) /
                                 sb_rope_yarn_mscale(rope->factor, mscale_all);
    SB_TRY(sb_field_double(scaling, "attention_factor", 1e-6, FACTOR_MAX, &rope->attention_factor));
done:
    return rc;
}

/* The divisors for sequences of the original context, which are those that ever count here. Without
 * a factor, it is how many times as long the context has become. */
static int32_t read_longrope(struct sb_config *config, const struct sb_fields *fields,
                             const struct sb_fields *scaling)
{
    struct sb_rope_config *rope = &config->rope;
    const struct sb_json_node *list = sb_json_get(scaling->object, "short_factor");
    const int32_t n = rope->rot_dim / 2;
    double factor;
    int32_t i = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_field_need(scaling, "short_factor"));
    if (n > SB_ROPE_DIVISORS)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %sshort_factor has more than %d numbers",
                scaling->file, scaling->prefix, SB_ROPE_DIVISORS);
    for (const struct sb_json_node *it = sb_json_first(list); it; it = sb_json_next(it), i++) {
        double number;
        if (i == n || !sb_json_double(it, &number) || !(number >= 1e-6 && number <= FACTOR_MAX))
            break;
        rope->divisors[i] = (float)number;
    }
    if (sb_json_kind(list) != SB_JSON_ARRAY || i != n || sb_json_count(list) != (size_t)n)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %sshort_factor is not a list of %d numbers up to %g",
                scaling->file, scaling->prefix, (int)n, FACTOR_MAX);
    rope->original_context = config->context;
    SB_TRY(read_original(rope, fields, scaling));
    factor = config->context / rope->original_context;
    SB_TRY(sb_field_double(scaling, "factor", 1e-6, FACTOR_MAX, &factor));
    if (factor > 1.0)
        rope->attention_factor = sqrt(1.0 + log(factor) / log(rope->original_context));
    SB_TRY(sb_field_double(scaling, "attention_factor", 1e-6, FACTOR_MAX, &rope->attention_factor));
    if (!(rope->attention_factor <= FACTOR_MAX)) /* of an original context of one token */
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %sattention_factor would be infinite", scaling->file,
                scaling->prefix);
    /* As it is used, and as a GGUF file says it. */
    rope->attention_factor = (float)rope->attention_factor;
done:
    return rc;
}

/* Vicuna's and LongChat's long checkpoints have positions that are divided by the factor, and keep
 * the number from before as max_position_embeddings: what they were trained for is in
 * max_sequence_length. transformers, which limits no text, asks for neither. */
static int32_t read_longest(struct sb_config *config, const struct sb_fields *fields)
{
    int32_t longest = config->context;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_field_int(fields, "max_sequence_length", 1, SB_CONTEXT_MAX, &longest));
    if (longest > config->context && longest <= config->context * config->rope.factor)
        config->context = longest;
done:
    return rc;
}

/* Reads a rotation into config->rope. */
static int32_t read_rope(struct sb_config *config, const struct sb_fields *fields,
                         const struct sb_fields *scaling)
{
    struct sb_rope_config *rope = &config->rope;
    int32_t rc = SPECBATCH_OK;

    *rope = (struct sb_rope_config){.factor = 1.0, .attention_factor = 1.0};
    SB_TRY(find_kind(rope, scaling));
    SB_TRY(read_base(config, fields, scaling));
    if (rope->kind == SB_ROPE_LONGROPE) {
        SB_TRY(read_longrope(config, fields, scaling));
    } else if (rope->kind != SB_ROPE_DEFAULT) {
        SB_TRY(sb_field_need(scaling, "factor"));
        SB_TRY(sb_field_double(scaling, "factor", 1.0, FACTOR_MAX, &rope->factor));
    }
    if (rope->kind == SB_ROPE_LINEAR)
        SB_TRY(read_longest(config, fields));
    if (rope->kind == SB_ROPE_LLAMA3)
        SB_TRY(read_llama3(rope, fields, scaling));
    if (rope->kind == SB_ROPE_YARN)
        SB_TRY(read_yarn(config, fields, scaling));
done:
    return rc;
}

/* Reads the rotation of local layers, of which the top level says nothing but the base. Only the
 * kinds that have no context of their own are supported. */
static int32_t read_local(struct sb_config *config, const struct sb_fields *fields,
                          const struct sb_fields *local)
{
    const struct sb_fields nothing = {fields->file, fields->prefix, NULL};
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_rope(config, &nothing, local));
    if (config->rope.kind > SB_ROPE_LINEAR)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: %srope_type is not supported; supported: default, "
                "linear",
                local->file, local->prefix);
    config->other_rope = config->rope;
    if (sb_field_given(local, "rope_theta"))
        goto done;
    config->other_rope.theta = config->arch->default_local_theta;
    SB_TRY(sb_field_double(fields, "rope_local_base_freq", THETA_MIN, THETA_MAX,
                           &config->other_rope.theta));
done:
    return rc;
}

void sb_config_mark_unrotated(struct sb_config *config, int32_t period)
{
    config->other_rope = (struct sb_rope_config){.kind = SB_ROPE_NONE,
                                                 .rot_dim = config->rope.rot_dim,
                                                 .theta = config->rope.theta,
                                                 .factor = 1.0,
                                                 .attention_factor = 1.0};
    for (int32_t i = 0; i < config->layers; i++)
        config->is_unrotated[i] = (i + 1) % period == 0;
}

/* Which layers rotate nothing: no_rope_layers has a 0 for each of these and a 1 for the others.
 * With use_sliding_window, transformers gives these layers a window, which is refused here. */
static int32_t read_unrotated(struct sb_config *config, const struct sb_fields *fields)
{
    const struct sb_json_node *list = sb_json_get(fields->object, "no_rope_layers");
    int32_t period = config->arch->unrotated_period, i = 0;
    int uses_window = 0;
    int64_t rotates;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_field_bool(fields, "use_sliding_window", &uses_window));
    if (uses_window)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: %suse_sliding_window is not supported with model_type %s", fields->file,
                fields->prefix, config->arch->model_type);
    SB_TRY(sb_field_int(fields, "no_rope_layer_interval", 1, SB_LAYERS_MAX, &period));
    sb_config_mark_unrotated(config, period);
    if (!sb_field_given(fields, "no_rope_layers"))
        goto done;
    if (sb_json_kind(list) == SB_JSON_ARRAY)
        for (const struct sb_json_node *n = sb_json_first(list);
             n && i < config->layers && sb_json_int(n, &rotates) && (rotates == 0 || rotates == 1);
             n = sb_json_next(n))
            config->is_unrotated[i++] = rotates == 0;
    if (i < config->layers)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %sno_rope_layers is not a list of 0 or 1 for %d layers",
                fields->file, fields->prefix, (int)config->layers);
done:
    return rc;
}

int32_t sb_config_rope(struct sb_config *config, const struct sb_fields *fields)
{
    struct sb_fields scaling, local;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(find_scaling(&scaling, &local, config, fields));
    if (sb_arch_has_local_rope(config->arch))
        SB_TRY(read_local(config, fields, &local));
    SB_TRY(read_rope(config, fields, &scaling));
    if (config->arch->unrotated_period > 0)
        SB_TRY(read_unrotated(config, fields));
done:
    return rc;
}
