/*
 * The pieces of a tokenizer.json: the vocabulary and the merges of its model, which must be BPE,
 * and its added tokens.
 */
#include <stdio.h>
#include <string.h>

#include "hf_fields.h"
#include "status.h"

/* ---------------------------------------------------------------------------- model */

/* Refuses models other than BPE, and parts of BPE that are not supported. */
static int32_t check_model(struct sb_hf *l, const struct sb_json_node *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const struct sb_json_node *node;
    double dropout = 0;
    size_t i, n = 0;

    if (sb_json_kind(model) != SB_JSON_OBJECT)
        return sb_hf_malformed(l, "model", "missing");
    if (sb_json_get(model, "type") ? !sb_hf_is(model, "BPE") : !sb_json_get(model, "merges"))
        return sb_hf_unsupported(l, "model", sb_hf_type(model), "BPE");
    node = sb_json_get(model, "dropout");
    if (sb_json_kind(node) != SB_JSON_NULL && (!sb_json_double(node, &dropout) || dropout != 0))
        return sb_hf_unsupported(l, "model", "with dropout", "null");
    for (i = 0; i < 2; i++) {
        node = sb_json_get(model, affixes[i]);
        if (sb_json_kind(node) != SB_JSON_NULL && (!sb_json_string(node, &n) || n > 0))
            return sb_hf_unsupported(l, "model with", affixes[i], "null");
    }
    return SPECBATCH_OK;
}

static int32_t load_vocab(struct sb_hf *l, const struct sb_json_node *vocab)
{
    const struct sb_json_node *node;
    int32_t rc = SPECBATCH_OK;

    if (sb_json_kind(vocab) != SB_JSON_OBJECT)
        SB_TRY(sb_hf_malformed(l, "model.vocab", "not an object"));
    SB_TRY(sb_vocab_reserve(&l->t->vocab, sb_json_count(vocab)));
    for (node = sb_json_first(vocab); node; node = sb_json_next(node)) {
        size_t n;
        const char *text = sb_json_name(node, &n);
        int64_t id;
        if (!sb_json_int(node, &id))
            SB_FAIL(SPECBATCH_E_FORMAT, "%s: model.vocab: id of \"%.60s\" is not an integer",
                    l->path, text);
        SB_TRY(sb_vocab_add(&l->t->vocab, l->path, text, n, id, SB_PIECE_BASE));
    }
done:
    return rc;
}

/* The two halves of a merge, which is written ["a", "b"], or "a b" with exactly one space. */
static int read_merge(const struct sb_json_node *node, struct sb_half half[2])
{
    const char *text;
    size_t n = 0;

    if (sb_json_kind(node) == SB_JSON_ARRAY) {
        const struct sb_json_node *first = sb_json_first(node), *second = sb_json_next(first);
        half[0].at = sb_json_string(first, &half[0].n);
        half[1].at = sb_json_string(second, &half[1].n);
        return sb_json_count(node) == 2 && half[0].at && half[1].at;
    }
    text = sb_json_string(node, &n);
    return text && sb_merge_cut(half, text, n);
}

static int32_t add_merge(struct sb_hf *l, const struct sb_json_node *node, size_t index,
                         struct sb_bytes *joined)
{
    struct sb_half half[2];
    char where[40];

    snprintf(where, sizeof where, "model.merges[%zu]", index);
    if (!read_merge(node, half))
        return sb_fail(SPECBATCH_E_FORMAT, "%s: %s: \"%.80s\" is not two pieces", l->path, where,
                       sb_json_string(node, NULL) ? sb_json_string(node, NULL) : "(not a string)");
    return sb_merge_add(l->t, half, index, joined, l->path, where);
}

static int32_t load_merges(struct sb_hf *l, const struct sb_json_node *merges)
{
    struct sb_bytes joined = {.mem = &l->t->mem};
    const struct sb_json_node *node;
    int32_t rc = SPECBATCH_OK;
    size_t index = 0;

    /* Some converters write an empty list as {}. */
    if (sb_json_kind(merges) != SB_JSON_ARRAY &&
        (sb_json_kind(merges) != SB_JSON_OBJECT || sb_json_count(merges) > 0))
        SB_TRY(sb_hf_malformed(l, "model.merges", "not an array"));
    SB_TRY(sb_bpe_reserve(&l->t->bpe, &l->t->mem, sb_json_count(merges)));
    for (node = sb_json_first(merges); node; node = sb_json_next(node))
        SB_TRY(add_merge(l, node, index++, &joined));
done:
    sb_bytes_clear(&joined);
    return rc;
}

int32_t sb_hf_read_model(struct sb_hf *l, const struct sb_json_node *model)
{
    struct sb_bpe *bpe = &l->t->bpe;
    int32_t rc = SPECBATCH_OK;
    size_t n = 0;

    SB_TRY(check_model(l, model));
    SB_TRY(sb_hf_flag(l, model, "fuse_unk", 0, &bpe->fuse_unk));
    SB_TRY(sb_hf_flag(l, model, "byte_fallback", 0, &bpe->byte_fallback));
    SB_TRY(sb_hf_flag(l, model, "ignore_merges", 0, &bpe->ignore_merges));
    SB_TRY(load_vocab(l, sb_json_get(model, "vocab")));
    SB_TRY(load_merges(l, sb_json_get(model, "merges")));
    const char *unk = sb_json_string(sb_json_get(model, "unk_token"), &n);
    if (unk && n > 0 && (bpe->unk = sb_vocab_find_base(&l->t->vocab, unk, n)) < 0)
        bpe->unk = -2; /* it becomes an error only when a text has an unknown character */
    SB_TRY(sb_bpe_index(bpe, &l->t->mem, &l->t->vocab));
done:
    return rc;
}

/* --------------------------------------------------------------------- added tokens */

/* A token that is looked for in normalised text is normalised itself. */
static int32_t normalize_content(struct sb_hf *l, struct sb_added_token *token)
{
    struct sb_work work;
    const char *text;
    size_t n;
    int32_t rc = SPECBATCH_OK;

    sb_work_init(&work, &l->t->mem);
    SB_TRY(
        sb_normalize(&l->t->normalizers, &work, token->content.data, token->content.n, &text, &n));
    if (text != token->content.data)
        SB_TRY(sb_bytes_set(&token->content, text, n));
done:
    sb_work_clear(&work);
    return rc;
}

/* Remembers that the added token of an id is the n-th of the table. */
static int32_t note_place(struct sb_hf *l, int32_t id, size_t n)
{
    int32_t rc = SPECBATCH_OK;

    while (l->places.n <= (size_t)id)
        SB_TRY(sb_ids_add(&l->places, -1));
    l->places.data[id] = (int32_t)n;
done:
    return rc;
}

int32_t sb_hf_note_places(struct sb_hf *l)
{
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < l->t->added.n; i++)
        SB_TRY(note_place(l, l->t->added.tokens[i].id, i));
done:
    return rc;
}

/* The added token of an id, or NULL. */
static struct sb_added_token *token_of(const struct sb_hf *l, int32_t id)
{
    return id >= 0 && (size_t)id < l->places.n && l->places.data[id] >= 0
               ? &l->t->added.tokens[l->places.data[id]]
               : NULL;
}

int sb_hf_has_token(const struct sb_hf *l, const struct sb_added_token *token)
{
    const int32_t id = sb_vocab_find(&l->t->vocab, token->content.data, token->content.n);
    const struct sb_added_token *known = token_of(l, id);

    return known && id == token->id && known->single_word == token->single_word &&
           known->lstrip == token->lstrip && known->rstrip == token->rstrip &&
           known->normalized == token->normalized && known->special == token->special;
}

int sb_hf_make_special(struct sb_hf *l, int32_t id)
{
    struct sb_added_token *known = token_of(l, id);

    if (!known)
        return 0;
    known->special = 1;
    l->t->vocab.pieces[id].flags |= SB_PIECE_SPECIAL;
    return 1;
}

/*
 * Gives a token the flags with which it is added again. The reference implementation keeps a token
 * in its list each time that it is added, unless it was special before, and takes the flags of the
 * last (AddedVocabulary::add_tokens of tokenizers). So the token is looked for in the text as it
 * came if any of these in the list says so, and a special one stays special.
 */
static int32_t change_token(struct sb_added_token *known, const struct sb_added_token *token)
{
    int32_t rc = SPECBATCH_OK;

    known->single_word = token->single_word;
    known->lstrip = token->lstrip;
    known->rstrip = token->rstrip;
    if (!known->special && known->normalized && !token->normalized) {
        SB_TRY(sb_bytes_set(&known->content, token->content.data, token->content.n));
        known->normalized = 0;
    }
    known->special |= token->special;
done:
    return rc;
}

/* Gives an added token its place in the vocabulary: a new one, or that of the piece that is spelled
 * so already and must have the same id. */
static int32_t register_token(struct sb_hf *l, const struct sb_added_token *token)
{
    struct sb_vocab *vocab = &l->t->vocab;
    uint32_t flags = SB_PIECE_ADDED | (token->special ? SB_PIECE_SPECIAL : 0);
    int32_t known = sb_vocab_find(vocab, token->content.data, token->content.n);

    if (known < 0)
        return sb_vocab_add(vocab, l->path, token->content.data, token->content.n, token->id,
                            flags);
    if (known != token->id)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: added token \"%.60s\" has id %d, and %d before",
                       l->path, token->content.data, (int)token->id, (int)known);
    vocab->pieces[known].flags |= flags;
    return SPECBATCH_OK;
}

int32_t sb_hf_add_token(struct sb_hf *l, struct sb_added_token *token)
{
    struct sb_added_token *known;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(register_token(l, token));
    if ((known = token_of(l, token->id)) != NULL) {
        rc = change_token(known, token);
        goto done;
    }
    if (token->normalized)
        SB_TRY(normalize_content(l, token));
    if (token->content.n == 0)
        SB_TRY(sb_hf_malformed(l, "added_tokens", "an empty token"));
    SB_TRY(sb_hf_check_searched(l, "added_tokens", &token->content));
    SB_TRY(note_place(l, token->id, l->t->added.n));
    SB_TRY(sb_added_add(&l->t->added, &l->t->mem, token));
    token->content = (struct sb_bytes){.mem = &l->t->mem}; /* the table has it now */
done:
    return rc;
}

int32_t sb_hf_read_token(struct sb_hf *l, const struct sb_json_node *node, int64_t id,
                         struct sb_added_token *token)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_hf_text(l, node, "content", &token->content));
    if (id < 0 || id >= SB_ID_LIMIT)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: id %lld of added token \"%.60s\" is out of range", l->path,
                (long long)id, token->content.data);
    SB_TRY(sb_hf_flag(l, node, "single_word", 0, &token->single_word));
    SB_TRY(sb_hf_flag(l, node, "lstrip", 0, &token->lstrip));
    SB_TRY(sb_hf_flag(l, node, "rstrip", 0, &token->rstrip));
    SB_TRY(sb_hf_flag(l, node, "special", 0, &token->special));
    SB_TRY(sb_hf_flag(l, node, "normalized", !token->special, &token->normalized));
    token->id = (int32_t)id;
done:
    return rc;
}

static int32_t add_listed(struct sb_hf *l, const struct sb_json_node *node)
{
    struct sb_added_token token = {.content = {.mem = &l->t->mem}};
    int32_t rc = SPECBATCH_OK;
    int64_t id = 0;

    if (!sb_json_int(sb_json_get(node, "id"), &id) && sb_json_word(sb_json_get(node, "content")))
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: added_tokens: \"%.60s\" has no id", l->path,
                sb_json_word(sb_json_get(node, "content")));
    SB_TRY(sb_hf_read_token(l, node, id, &token));
    SB_TRY(sb_hf_add_token(l, &token));
done:
    sb_bytes_clear(&token.content);
    return rc;
}

int32_t sb_hf_read_added_tokens(struct sb_hf *l, const struct sb_json_node *root)
{
    int32_t rc = SPECBATCH_OK;

    if (sb_json_kind(sb_json_get(root, "added_tokens")) != SB_JSON_NULL)
        SB_TRY(sb_hf_each(l, root, "added_tokens", add_listed));
    sb_added_sort(&l->t->added);
done:
    return rc;
}
