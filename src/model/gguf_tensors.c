/*
 * The tensors of a GGUF file as the set that the loader of weights asks.
 *
 *   transformers                             GGUF
 *   model.layers.3.self_attn.q_proj.weight   blk.3.attn_q.weight
 *   model.embed_tokens.weight                token_embd.weight
 *
 * Names are translated when a tensor is asked for, so that messages quote what is in the file. A
 * norm is translated by its place in the architecture, since one architecture's norm behind
 * attention has the name of another's before the MLP. For the others one table is enough.
 *
 * The experts of a layer are one tensor there, of rank 3, which is as many tensors here:
 *
 *   model.layers.3.mlp.experts.5.up_proj.weight   blk.3.ffn_up_exps.5.weight, which is row 5 of
 *                                                 blk.3.ffn_up_exps.weight
 *
 * In files of Llama, the rows of q and k are in another order. Rotary pairs are (i, i + n / 2) in
 * transformers and (2 i, 2 i + 1) in llama.cpp, whose converter makes neighbours of the two rows
 * that compute a pair. The set brings them back as it reads (tensors.c).
 */
#include <stdio.h>
#include <string.h>

#include "model/gguf_model.h"
#include "status.h"

enum { EXPERT_NAME_BYTES = SB_GGUF_NAME_MAX + 8 }; /* of the name of an expert's tensor */

struct spelling {
    const char *name, *spelled;
};

/* Names without ".weight" and ".bias", outside layers and in them. */
static const struct spelling ends[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {NULL, NULL},
};
static const struct spelling parts[] = {
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {NULL, NULL},
};

/* The spelling of the n bytes at `name`, or NULL. */
static const char *look_up(const struct spelling *list, const char *name, size_t n)
{
    for (; list->name; list++)
        if (strlen(list->name) == n && memcmp(list->name, name, n) == 0)
            return list->spelled;
    return NULL;
}

/* The spelling of a norm of a layer, or NULL. */
static const char *look_up_norm(const struct sb_arch *arch, const char *name)
{
    const struct spelling norms[] = {
        {arch->attn_norm, "attn_norm"},
        {arch->post_attn_norm, "post_attention_norm"},
        {arch->ffn_norm, arch->gguf_ffn_norm ? arch->gguf_ffn_norm : "ffn_norm"},
        {arch->post_ffn_norm, "post_ffw_norm"}};

    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++)
        if (norms[i].name && strcmp(norms[i].name, name) == 0)
            return norms[i].spelled;
    return NULL;
}

/* Writes the spelling of the part of a layer's name that begins with an expert's prefix; returns 0,
 * without writing, if it does not. */
static int spell_expert(char spelled[SB_TENSOR_NAME_BYTES], const struct sb_arch *arch,
                        const char *layer, size_t digits, const char *part)
{
    const size_t prefix = arch->expert ? strlen(arch->expert) : 0;
    const struct spelling maps[] = {{arch->gate_up[0], "ffn_gate_exps"},
                                    {arch->gate_up[1], "ffn_up_exps"},
                                    {arch->down, "ffn_down_exps"},
                                    {NULL, NULL}};
    const char *expert = part + prefix + 1, *map, *kind = strrchr(part, '.'), *found;
    size_t n;

    if (prefix == 0 || strncmp(part, arch->expert, prefix) != 0 || part[prefix] != '.')
        return 0;
    n = strspn(expert, "0123456789");
    map = expert + n + 1;
    found = n > 0 && expert[n] == '.' && kind > map ? look_up(maps, map, (size_t)(kind - map))
                                                    : NULL;
    if (found)
        snprintf(spelled, SB_TENSOR_NAME_BYTES, "blk.%.*s.%s.%.*s%s", (int)digits, layer, found,
                 (int)n, expert, kind);
    return found != NULL;
}

/* A name that is in no table stays as it is: no file has a tensor of that name. */
void sb_gguf_spell(char spelled[SB_TENSOR_NAME_BYTES], const struct sb_arch *arch, const char *name)
{
    static const char layers[] = "model.layers.";
    const char *kind = strrchr(name, '.'), *part = name, *found = NULL;
    size_t digits = 0;

    if (strncmp(name, layers, sizeof layers - 1) == 0) {
        part = name + sizeof layers - 1;
        digits = strspn(part, "0123456789");
        part += digits + (part[digits] == '.');
    }
    if (digits && spell_expert(spelled, arch, name + sizeof layers - 1, digits, part))
        return;
    if (digits && arch->choice_bias && strcmp(part, arch->choice_bias) == 0) {
        found = "exp_probs_b";
        kind = ".bias";
    } else if (digits && arch->sinks && strcmp(part, arch->sinks) == 0) {
        found = "attn_sinks";
        kind = ".weight";
    } else if (digits) {
        found = look_up_norm(arch, part);
    }
    if (!found && kind && kind >= part)
        found = look_up(digits ? parts : ends, part, (size_t)(kind - part));
    if (!found)
        snprintf(spelled, SB_TENSOR_NAME_BYTES, "%s", name);
    else if (digits)
        snprintf(spelled, SB_TENSOR_NAME_BYTES, "blk.%.*s.%s%s", (int)digits,
                 name + sizeof layers - 1, found, kind);
    else
        snprintf(spelled, SB_TENSOR_NAME_BYTES, "%s%s", found, kind);
}

/* They are q and k of each layer, and their biases. */
int32_t sb_gguf_interleave(const struct sb_config *config, const char *name)
{
    if (!config->arch->gguf_interleaved || strncmp(name, "blk.", 4) != 0)
        return 0;
    name += 4 + strspn(name + 4, "0123456789");
    return strcmp(name, ".attn_q.weight") == 0 || strcmp(name, ".attn_k.weight") == 0 ||
                   strcmp(name, ".attn_q.bias") == 0 || strcmp(name, ".attn_k.bias") == 0
               ? config->head_dim
               : 0;
}

static int32_t add_tensor(struct sb_tensors *set, const struct sb_gguf_tensor *info,
                          const struct sb_config *config)
{
    struct sb_tensor *t = &set->list[set->n++];
    const int32_t heads = sb_gguf_interleave(config, info->name);

    *t = (struct sb_tensor){.name = info->name,
                            .rank = info->rank,
                            .offset = info->offset,
                            .bytes = info->bytes,
                            .file = info->file};
    memcpy(t->type, info->type, strlen(info->type) + 1);
    memcpy(t->shape, info->shape, sizeof info->shape);
    if (heads == 0)
        return SPECBATCH_OK;
    if (heads % 2 != 0 || t->rank < 1 || t->shape[0] < 1 || t->shape[0] % heads != 0)
        return sb_fail(SPECBATCH_E_FORMAT, "%.60s: tensor %s has rows that are not heads of %d",
                       sb_tensors_file(set, t), t->name, (int)heads);
    t->interleave = heads;
    return SPECBATCH_OK;
}

/* The shape that the tensor of a layer's experts has to have, and its rank: that of a bias has no
 * columns. Returns 0, without writing, for names of other tensors. */
static int shape_of_experts(int64_t shape[3], const char *name, const struct sb_config *config)
{
    static const char *const of_experts[] = {".ffn_gate_exps.", ".ffn_up_exps.", ".ffn_down_exps."};
    const char *kind;
    size_t i = 0;

    if (config->experts == 0 || strncmp(name, "blk.", 4) != 0)
        return 0;
    name += 4 + strspn(name + 4, "0123456789");
    while (i < 3 && strncmp(name, of_experts[i], strlen(of_experts[i])) != 0)
        i++;
    if (i == 3)
        return 0;
    kind = name + strlen(of_experts[i]);
    if (strcmp(kind, "weight") != 0 && strcmp(kind, "bias") != 0)
        return 0;
    shape[0] = config->experts;
    shape[1] = i < 2 ? config->inter : config->hidden;
    shape[2] = i < 2 ? config->hidden : config->inter;
    return kind[0] == 'w' ? 3 : 2;
}

static int is_of_experts(const struct sb_gguf_tensor *info, const struct sb_config *config)
{
    int64_t shape[3];

    return shape_of_experts(shape, info->name, config);
}

/* It becomes many tensors, so its shape is checked before there is memory for them: a small file
 * must not ask for much. */
static int32_t check_experts(const struct sb_gguf_tensor *info, const struct sb_gguf *gguf,
                             const struct sb_config *config)
{
    const char *file = sb_gguf_file(gguf, info->file)->name;
    const int64_t *got = info->shape;
    int64_t want[3];
    const int rank = shape_of_experts(want, info->name, config);

    if (rank == 0)
        return SPECBATCH_OK;
    if (info->rank != rank)
        return sb_fail(SPECBATCH_E_FORMAT,
                       "%.60s: tensor %s has %d dimensions; one of experts has %d", file,
                       info->name, (int)info->rank, rank);
    if (rank == 2)
        want[2] = got[2];
    if (memcmp(got, want, sizeof want) != 0)
        return sb_fail(SPECBATCH_E_FORMAT,
                       "%.60s: tensor %s has shape [%lld, %lld, %lld], the metadata calls for "
                       "[%lld, %lld, %lld]",
                       file, info->name, (long long)got[0], (long long)got[1], (long long)got[2],
                       (long long)want[0], (long long)want[1], (long long)want[2]);
    return SPECBATCH_OK;
}

/* Adds the tensors of the experts, whose names lie from *names on. */
static void add_experts(struct sb_tensors *set, const struct sb_gguf_tensor *info, char **names)
{
    const char *kind = strrchr(info->name, '.');
    const int64_t n = info->shape[0];

    for (int64_t e = 0; e < n; e++) {
        struct sb_tensor *t = &set->list[set->n++];
        *t = (struct sb_tensor){.name = *names,
                                .rank = info->rank - 1,
                                .shape = {info->shape[1], info->shape[2]},
                                .offset = info->offset + (uint64_t)e * (info->bytes / (uint64_t)n),
                                .bytes = info->bytes / (uint64_t)n,
                                .file = info->file};
        memcpy(t->type, info->type, strlen(info->type) + 1);
        *names += snprintf(*names, EXPERT_NAME_BYTES, "%.*s.%d%s", (int)(kind - info->name),
                           info->name, (int)e, kind) +
                  1;
    }
}

/* Makes room for all tensors, and for the names of those of experts. */
static int32_t make_room(struct sb_tensors *set, char **names, const struct sb_gguf *gguf,
                         const struct sb_config *config)
{
    size_t more = 0;
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < sb_gguf_n_tensors(gguf); i++) {
        const struct sb_gguf_tensor *info = sb_gguf_tensor(gguf, i);
        SB_TRY(check_experts(info, gguf, config));
        if (is_of_experts(info, config))
            more += (size_t)config->experts;
    }
    if (config->experts > 0 && more == 0)
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%.60s: no tensor is of a layer's experts, as blk.0.ffn_up_exps.weight is; older "
                "files have one for each expert: convert the model again",
                sb_gguf_file(gguf, 0)->name);
    SB_TRY(sb_tensors_reserve(set, (size_t)sb_gguf_n_tensors(gguf) + more,
                              sb_gguf_file(gguf, 0)->name));
    if (more > 0)
        SB_NEW(set->expert_names, sb_alloc_raw(&set->mem, more, EXPERT_NAME_BYTES),
               "the names of experts");
    *names = set->expert_names;
done:
    return rc;
}

int32_t sb_gguf_tensors(struct sb_tensors **out, const struct sb_mem *mem,
                        const struct sb_gguf *gguf, const struct sb_config *config)
{
    struct sb_tensor_file *file;
    struct sb_tensors *set = NULL;
    char *names = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_tensors_create(&set, mem));
    set->arch = config->arch;
    set->spell = sb_gguf_spell;
    set->config = "the metadata";
    for (int32_t i = 0; i < sb_gguf_n_files(gguf); i++) {
        SB_TRY(sb_tensors_add_file(&file, set));
        file->file = *sb_gguf_file(gguf, i);
        file->borrowed = 1;
    }
    SB_TRY(make_room(set, &names, gguf, config));
    for (int32_t i = 0; i < sb_gguf_n_tensors(gguf); i++) {
        const struct sb_gguf_tensor *info = sb_gguf_tensor(gguf, i);
        if (is_of_experts(info, config))
            add_experts(set, info, &names);
        else
            SB_TRY(add_tensor(set, info, config));
    }
    SB_TRY(sb_tensors_sort(set));
    *out = set;
    set = NULL;
done:
    sb_tensors_close(set);
    return rc;
}
