/*
 * Reads what the files beside a tokenizer.json or a tokenizer.model say of it, as transformers
 * 4.53 and 5 do (from_pretrained and the classes of fast tokenizers):
 *
 *   tokenizer_config.json    added_tokens_decoder: added tokens, or other flags of known ones
 *                            bos_token, eos_token and so on: special tokens
 *                            add_bos_token, add_eos_token: whether they go around a text
 *                            legacy, add_prefix_space: where a tokenizer.model puts blanks
 *   added_tokens.json        added tokens, where there is no added_tokens_decoder
 *   special_tokens_map.json  special tokens, where there is no added_tokens_decoder
 *
 * A new token must have the next free id: where ids have gaps, transformers gives a token the
 * number that the file says or the next one, as the class is a slow or a fast one.
 */
#include <stdio.h>

#include "file.h"
#include "gguf.h"
#include "hf_fields.h"
#include "spm.h"
#include "status.h"

enum { BESIDE_MAX = 1 << 26 /* bytes of a file */ };

struct beside {
    struct sb_hf l;
    const char *dir; /* where the files are; NULL: in a GGUF file */
    const struct sb_gguf *gguf;
    int json;                            /* the tokenizer is a tokenizer.json */
    struct sb_json *config, *names;      /* tokenizer_config.json, special_tokens_map.json */
    const struct sb_json_node *roots[2]; /* theirs; NULL: not there */
};

enum beside_file { CONFIG, SPECIAL, ADDED, FILES };

static const char *const file_names[FILES] = {
    [CONFIG] = "tokenizer_config.json",
    [SPECIAL] = "special_tokens_map.json",
    [ADDED] = "added_tokens.json",
};

const char *sb_tokenizer_beside(size_t index)
{
    return index < FILES ? file_names[index] : NULL;
}

/* Parses a file of the folder, or the one that is in the GGUF file; *doc stays NULL where there is
 * none. */
static int32_t load(struct sb_json **doc, struct beside *b, enum beside_file file)
{
    const struct sb_mem *mem = &b->l.t->mem;
    const char *name = file_names[file];
    struct sb_gguf_value value;
    char path[1024];
    int32_t rc = SPECBATCH_OK;

    b->l.path = name;
    if (!b->dir) {
        snprintf(path, sizeof path, SB_GGUF_HUGGING_FACE "%s", name);
        if (sb_gguf_get(b->gguf, path, &value) && sb_gguf_string(&value))
            rc = sb_json_parse(doc, mem, sb_gguf_string(&value), (size_t)value.count, name);
        return rc;
    }
    SB_TRY(sb_file_join(path, b->dir, name));
    rc = sb_json_load(doc, mem, path, BESIDE_MAX);
    if (rc == SPECBATCH_E_NOT_FOUND)
        rc = SPECBATCH_OK;
done:
    return rc;
}

/* ------------------------------------------------------------------- special tokens by name */

/* Calls a function with each special token that the files name: a string, or an object with a
 * content. Several are in a list, or in an object under names of their own. It ends the walk by an
 * answer other than 0, which is then that of the walk. */
typedef int32_t (*named_fn)(struct beside *b, const struct sb_json_node *node, void *context);

static int32_t each_named(struct beside *b, named_fn function, void *context)
{
    static const char *const members[] = {
        "bos_token",           "eos_token", "unk_token",  "sep_token",
        "pad_token",           "cls_token", "mask_token", "additional_special_tokens",
        "extra_special_tokens"};
    int32_t answer = 0;

    for (size_t i = 0; i < 2 * sizeof members / sizeof *members && answer == 0; i++) {
        const struct sb_json_node *node = sb_json_get(b->roots[i % 2], members[i / 2]);
        const int is_token = sb_json_get(node, "content") != NULL;
        if (sb_json_kind(node) != SB_JSON_ARRAY &&
            (sb_json_kind(node) != SB_JSON_OBJECT || is_token)) {
            answer = function(b, node, context);
            continue;
        }
        for (node = sb_json_first(node); node && answer == 0; node = sb_json_next(node))
            answer = function(b, node, context);
    }
    return answer;
}

/* The spelling of a named token, NULL when it is none. */
static const char *spelling(const struct sb_json_node *node, size_t *n)
{
    const struct sb_json_node *content = sb_json_get(node, "content");

    return sb_json_string(content ? content : node, n);
}

/* Adds the spelling of a named token to those of a struct sb_vocab. To walk through the files for
 * each token of added_tokens.json would take the product of what both have. */
static int32_t note_named(struct beside *b, const struct sb_json_node *node, void *context)
{
    struct sb_vocab *named = context;
    size_t n = 0;
    const char *text = spelling(node, &n);

    if (!text || sb_vocab_find(named, text, n) >= 0)
        return SPECBATCH_OK;
    return sb_vocab_add(named, b->l.path, text, n, (int64_t)named->n, SB_PIECE_SPECIAL);
}

/* Makes a piece that the files name a special token. One that the vocabulary does not have has no
 * embedding either, and is left out. */
static int32_t add_named(struct beside *b, const struct sb_json_node *node, void *context)
{
    struct sb_added_token token = {.content = {.mem = &b->l.t->mem}};
    size_t n = 0;
    const char *text = spelling(node, &n);
    const int32_t id = text && n > 0 ? sb_vocab_find(&b->l.t->vocab, text, n) : -1;
    int32_t rc = SPECBATCH_OK;

    (void)context;
    if (id < 0)
        return SPECBATCH_OK;
    if (sb_hf_make_special(&b->l, id))
        return SPECBATCH_OK;
    if (sb_json_kind(node) == SB_JSON_OBJECT)
        SB_TRY(sb_hf_read_token(&b->l, node, id, &token));
    else
        SB_TRY(sb_bytes_set(&token.content, text, n));
    token.id = id;
    token.special = 1;
    token.normalized &= b->json;
    SB_TRY(sb_hf_add_token(&b->l, &token));
done:
    sb_bytes_clear(&token.content);
    return rc;
}

/* -------------------------------------------------------------------------- added tokens */

/* Adds a token unless it is there already. Pieces of a tokenizer.model are looked for in the text
 * as it came whatever `normalized` says, which is what the slow tokenizers of transformers do. */
static int32_t add_token(struct beside *b, struct sb_added_token *token)
{
    token->normalized &= b->json;
    return sb_hf_has_token(&b->l, token) ? SPECBATCH_OK : sb_hf_add_token(&b->l, token);
}

/* The number that the name of a member is; -1 when it is none. */
static int64_t id_of_name(const struct sb_json_node *node)
{
    size_t n = 0;
    const char *name = sb_json_name(node, &n);
    int64_t id = n > 0 && n < 10 ? 0 : -1;

    for (size_t i = 0; i < n && id >= 0; i++)
        id = name[i] >= '0' && name[i] <= '9' ? id * 10 + (name[i] - '0') : -1;
    return id;
}

static int32_t add_decoder(struct beside *b, const struct sb_json_node *list)
{
    struct sb_added_token token = {.content = {.mem = &b->l.t->mem}};
    int32_t rc = SPECBATCH_OK;

    for (const struct sb_json_node *node = sb_json_first(list); node; node = sb_json_next(node)) {
        SB_TRY(sb_hf_read_token(&b->l, node, id_of_name(node), &token));
        SB_TRY(add_token(b, &token));
    }
done:
    sb_bytes_clear(&token.content);
    return rc;
}

/* added_tokens.json: ids by spelling. A token that is known keeps its flags. */
static int32_t add_spelled(struct beside *b, const struct sb_json_node *list)
{
    struct sb_added_token token = {.content = {.mem = &b->l.t->mem}};
    struct sb_vocab named = {.text = {.mem = &b->l.t->mem}, .key = sb_hash_draw(b)};
    int32_t rc = SPECBATCH_OK;
    int64_t id = 0;
    size_t n;

    if (sb_json_first(list))
        SB_TRY(each_named(b, note_named, &named));
    for (const struct sb_json_node *node = sb_json_first(list); node; node = sb_json_next(node)) {
        const char *text = sb_json_name(node, &n);
        if (!text || !sb_json_int(node, &id) || id < 0 || id >= SB_ID_LIMIT)
            SB_TRY(sb_hf_malformed(&b->l, text ? text : "tokens", "not an id"));
        if ((size_t)id < b->l.places.n && b->l.places.data[id] >= 0 &&
            sb_vocab_find(&b->l.t->vocab, text, n) == id)
            continue;
        SB_TRY(sb_bytes_set(&token.content, text, n));
        token.id = (int32_t)id;
        token.special = sb_vocab_find(&named, text, n) >= 0;
        token.normalized = !token.special;
        SB_TRY(add_token(b, &token));
    }
done:
    sb_vocab_clear(&named);
    sb_bytes_clear(&token.content);
    return rc;
}

/* Refuses new tokens that leave ids without a token. */
static int32_t check_gaps(const struct beside *b, size_t before)
{
    for (size_t id = before; id < b->l.t->vocab.n; id++)
        if (!sb_vocab_piece(&b->l.t->vocab, (int32_t)id))
            return sb_fail(SPECBATCH_E_UNSUPPORTED,
                           "%s: an added token has id %zu, but none has %zu, and versions of "
                           "transformers disagree on its id",
                           b->l.path, b->l.t->vocab.n - 1, id);
    return SPECBATCH_OK;
}

static int32_t add_tokens(struct beside *b)
{
    const struct sb_json_node *list = sb_json_get(b->roots[0], "added_tokens_decoder");
    const size_t before = b->l.t->vocab.n;
    struct sb_json *spelled = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_hf_note_places(&b->l));
    if (list) {
        SB_TRY(add_decoder(b, list));
    } else {
        SB_TRY(load(&b->names, b, SPECIAL));
        b->roots[1] = sb_json_root(b->names);
        SB_TRY(load(&spelled, b, ADDED));
        SB_TRY(add_spelled(b, sb_json_root(spelled)));
    }
    SB_TRY(check_gaps(b, before));
    SB_TRY(each_named(b, add_named, NULL));
    sb_added_sort(&b->l.t->added);
done:
    sb_json_free(spelled);
    return rc;
}

/* ------------------------------------------------------------------------- the template */

/* Puts the token that `member` names into one side of the template, if `flag` asks for it. */
static int32_t put_token(struct beside *b, const char *flag, int missing, const char *member,
                         const char *otherwise, struct sb_ids *side)
{
    const struct sb_json_node *node = sb_json_get(b->roots[0], member);
    size_t n = node ? 0 : strlen(otherwise);
    const char *text = node ? spelling(node, &n) : otherwise;
    int32_t id, wanted = 0, rc = SPECBATCH_OK;

    side->n = 0;
    SB_TRY(sb_hf_flag(&b->l, b->roots[0], flag, missing, &wanted));
    if (!wanted || (node && sb_json_kind(node) == SB_JSON_NULL))
        goto done;
    if (!text || (id = sb_vocab_find(&b->l.t->vocab, text, n)) < 0)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %s, but %s \"%.60s\" is not a token", b->l.path, flag,
                member, text ? text : "(not a string)");
    SB_TRY(sb_ids_add(side, id));
done:
    return rc;
}

/*
 * add_bos_token and add_eos_token. Only the classes below make a template of them; all other
 * classes keep that of the tokenizer.json. transformers 5 never makes one where there is a
 * tokenizer.json. It does not write these members either, so a file that has them was written for
 * transformers 4, whose users get what they say. Where neither is there, 4 takes them for true and
 * false and 5 keeps the template, which is what is done here: nearly always it says the same.
 */
static int32_t make_template(struct beside *b)
{
    static const char *const classes[] = {"LlamaTokenizer",     "LlamaTokenizerFast",
                                          "CodeLlamaTokenizer", "CodeLlamaTokenizerFast",
                                          "GemmaTokenizer",     "GemmaTokenizerFast"};
    const struct sb_json_node *root = b->roots[0];
    const char *name = sb_json_word(sb_json_get(root, "tokenizer_class"));
    int32_t rc = SPECBATCH_OK;
    int known = !b->json;

    if (!sb_json_get(root, "add_bos_token") && !sb_json_get(root, "add_eos_token"))
        return SPECBATCH_OK;
    for (size_t i = 0; name && i < sizeof classes / sizeof *classes; i++)
        known |= strcmp(name, classes[i]) == 0;
    if (!known)
        return SPECBATCH_OK;
    b->l.path = file_names[CONFIG];
    SB_TRY(put_token(b, "add_bos_token", 1, "bos_token", "<s>", &b->l.t->prefix));
    SB_TRY(put_token(b, "add_eos_token", 0, "eos_token", "</s>", &b->l.t->suffix));
done:
    return rc;
}

/* ---------------------------------------------------------------------------- blanks */

/*
 * legacy and add_prefix_space of a LlamaTokenizer, which count where it is a tokenizer.model: they
 * choose what transformers makes of that. A tokenizer.json has been made already. What is meant is
 * the fast tokenizer, which is the one that AutoTokenizer gives; the slow one puts a blank before
 * blanks too.
 */
static int32_t set_prefix(struct beside *b)
{
    const struct sb_json_node *root = b->roots[0];
    const char *name = sb_json_word(sb_json_get(root, "tokenizer_class"));
    int legacy, prefix;
    int32_t rc = SPECBATCH_OK;

    if (b->json ||
        (name && strcmp(name, "LlamaTokenizer") != 0 && strcmp(name, "LlamaTokenizerFast") != 0))
        return SPECBATCH_OK;
    b->l.path = file_names[CONFIG];
    SB_TRY(sb_hf_flag(&b->l, root, "legacy", 1, &legacy));
    SB_TRY(sb_hf_flag(&b->l, root, "add_prefix_space", 1, &prefix));
    if (!legacy || !prefix)
        SB_TRY(sb_spm_set_prefix(b->l.t, prefix, b->l.path));
done:
    return rc;
}

int32_t sb_tokenizer_read_beside(struct sb_tokenizer *t, const char *dir,
                                 const struct sb_gguf *gguf, int json)
{
    struct beside b = {
        .l = {.t = t, .places = {.mem = &t->mem}}, .dir = dir, .gguf = gguf, .json = json};
    int32_t rc = SPECBATCH_OK;

    SB_TRY(load(&b.config, &b, CONFIG));
    b.roots[0] = sb_json_root(b.config);
    SB_TRY(add_tokens(&b));
    SB_TRY(make_template(&b));
    SB_TRY(set_prefix(&b));
done:
    sb_ids_clear(&b.l.places);
    sb_json_free(b.config);
    sb_json_free(b.names);
    return rc;
}
