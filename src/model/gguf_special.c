/*
 * The special tokens of a configuration, from the metadata of a GGUF file: which one begins a text,
 * and which ones end it.
 *
 * generation_config.json may name several ids that end a text, where a file has one to three. A
 * list here says which token of a family is an end where another is.
 */
#include "model/gguf_model.h"
#include "status.h"

/* Tokens by their spelling, of which one may be an end where another is. */
enum {
    IM_END,
    ENDOFTEXT,
    EOT_ID,
    END_OF_TEXT,
    EOM_ID,
    USER,
    OBSERVATION,
    END,
    EOS,
    END_OF_TURN,
    RETURN,
    CALL,
    SPELLINGS
};
static const char *const spellings[SPELLINGS] = {
    "<|im_end|>",      "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<|user|>",
    "<|observation|>", "<|end|>",       "<eos>",      "<end_of_turn>",   "<|return|>", "<|call|>"};
/* Where the first is an end, so is the second: Qwen, Llama 3, GLM-4, Phi-3, Gemma and gpt-oss. */
static const int ends_too[][2] = {{IM_END, ENDOFTEXT}, {EOT_ID, END_OF_TEXT}, {EOT_ID, EOM_ID},
                                  {USER, OBSERVATION}, {ENDOFTEXT, END},      {EOS, END_OF_TURN},
                                  {END_OF_TURN, EOS},  {RETURN, CALL},        {RETURN, ENDOFTEXT}};

static void add_eos(struct sb_config *config, int32_t id)
{
    for (int32_t i = 0; i < config->n_eos; i++)
        if (config->eos[i] == id)
            return;
    if (id >= 0 && config->n_eos < SB_EOS_MAX)
        config->eos[config->n_eos++] = id;
}

static void find_spellings(int32_t ids[SPELLINGS], const struct sb_gguf *gguf)
{
    struct sb_gguf_value tokens, token;

    for (int i = 0; i < SPELLINGS; i++)
        ids[i] = -1;
    if (!sb_gguf_get(gguf, "tokenizer.ggml.tokens", &tokens))
        return;
    for (int32_t id = 0; sb_gguf_take(&tokens, &token); id++)
        for (int i = 0; i < SPELLINGS; i++)
            if (sb_gguf_is(&token, spellings[i]))
                ids[i] = id;
}

/* Reads the id of a special token, -1 where the file has none. */
static int32_t read_id(int32_t *id, const struct sb_config *config, const struct sb_gguf *gguf,
                       const char *key)
{
    struct sb_gguf_value value;
    int64_t number;

    *id = -1;
    if (!sb_gguf_get(gguf, key, &value))
        return SPECBATCH_OK;
    if (!sb_gguf_int(&value, &number) || number < 0 || number >= config->vocab)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: %s is not a token id (the vocabulary has %d)",
                       sb_gguf_file(gguf, 0)->name, key, (int)config->vocab);
    *id = (int32_t)number;
    return SPECBATCH_OK;
}

int32_t sb_gguf_special(struct sb_config *config, const struct sb_gguf *gguf)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int32_t ids[SPELLINGS], id;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_id(&config->bos, config, gguf, "tokenizer.ggml.bos_token_id"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        SB_TRY(read_id(&id, config, gguf, keys[i]));
        add_eos(config, id);
    }
    find_spellings(ids, gguf);
    for (size_t i = 0; i < sizeof ends_too / sizeof *ends_too; i++)
        for (int32_t e = 0; e < config->n_eos; e++)
            if (config->eos[e] == ids[ends_too[i][0]]) {
                add_eos(config, ids[ends_too[i][1]]);
                break;
            }
done:
    return rc;
}
