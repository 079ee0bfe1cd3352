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
 * In files of Llama, the rows of q and k are in another order. Rotary pairs are (i, i + n / 2) in
 * transformers and (2 i, 2 i + 1) in llama.cpp, whose converter makes neighbours of the two rows
 * that compute a pair. The set brings them back as it reads (tensors.c).
 */
#include <stdio.h>
#include <string.h>

#include "model/gguf_model.h"
#include "status.h"

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
    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},           {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},       {NULL, NULL},
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
    const struct spelling norms[] = {{arch->attn_norm, "attn_norm"},
                                     {arch->post_attn_norm, "post_attention_norm"},
                                     {arch->ffn_norm, "ffn_norm"},
                                     {arch->post_ffn_norm, "post_ffw_norm"}};

    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++)
        if (norms[i].name && strcmp(norms[i].name, name) == 0)
            return norms[i].spelled;
    return NULL;
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
    if (digits)
        found = look_up_norm(arch, part);
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

int32_t sb_gguf_tensors(struct sb_tensors **out, const struct sb_mem *mem,
                        const struct sb_gguf *gguf, const struct sb_config *config)
{
    const int32_t n = sb_gguf_n_tensors(gguf);
    struct sb_tensor_file *file;
    struct sb_tensors *set = NULL;
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
    SB_TRY(sb_tensors_reserve(set, (size_t)n, sb_gguf_file(gguf, 0)->name));
    for (int32_t i = 0; i < n; i++)
        SB_TRY(add_tensor(set, sb_gguf_tensor(gguf, i), config));
    SB_TRY(sb_tensors_sort(set));
    *out = set;
    set = NULL;
done:
    sb_tensors_close(set);
    return rc;
}
