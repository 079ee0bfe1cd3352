/*
 * Reads a Hugging Face tokenizer.json into the tables of a tokenizer.
 *
 * The file is a tree of components, each with a type: normalizer, pre_tokenizer, model,
 * post_processor, decoder and added_tokens, most of which can be a Sequence of others. Each
 * component becomes steps or tables of the pipeline, or is refused by name: to skip one would
 * silently give other ids. Only `truncation` and `padding` are ignored on purpose, as a prompt is
 * never cut. Messages begin with the file and name the member.
 */
#include <string.h>

#include "hf_fields.h"
#include "status.h"

enum { TEMPLATE_MAX = 64 }; /* ids on either side of a text; real templates have one or two */

/* Reads the pattern and content of a Replace into a step. The pattern must be a plain string. */
static int32_t read_replace(struct sb_hf *l, const struct sb_json_node *node, struct sb_step *step,
                            const char *where)
{
    const struct sb_json_node *pattern = sb_json_get(node, "pattern");
    int32_t rc = SPECBATCH_OK;

    if (sb_json_get(pattern, "Regex"))
        return sb_hf_unsupported(l, where, "Replace of a Regex", "Replace of a String");
    SB_TRY(sb_hf_text(l, pattern, "String", &step->from));
    SB_TRY(sb_hf_text(l, node, "content", &step->to));
    if (step->from.n == 0)
        SB_TRY(sb_hf_malformed(l, where, "Replace of an empty string"));
    SB_TRY(sb_hf_check_searched(l, where, &step->from));
done:
    return rc;
}

/* -------------------------------------------------------------------- normalizers */

/* Whether a component is one of the normal forms, and which. Those of the reference implementation
 * are as of Unicode 9. */
static int is_normal_form(const struct sb_json_node *node, unsigned *form)
{
    static const char *const names[] = {
        [SB_NFD] = "NFD", [SB_NFC] = "NFC", [SB_NFKD] = "NFKD", [SB_NFKC] = "NFKC"};
    unsigned i;

    for (i = 0; i < sizeof names / sizeof *names; i++)
        if (sb_hf_is(node, names[i])) {
            *form = i | SB_AS_OF_9;
            return 1;
        }
    return 0;
}

static int32_t add_normalizer(struct sb_hf *l, const struct sb_json_node *node)
{
    struct sb_steps *steps = &l->t->normalizers;
    unsigned form;
    struct sb_step *step;
    int32_t rc = SPECBATCH_OK;

    if (sb_json_kind(node) == SB_JSON_NULL)
        return SPECBATCH_OK;
    if (sb_hf_is(node, "Sequence"))
        return sb_hf_each(l, node, "normalizers", add_normalizer);
    if (is_normal_form(node, &form)) {
        SB_TRY(sb_step_add(&step, steps, SB_STEP_NORMAL, l->path));
        step->form = form;
    } else if (sb_hf_is(node, "Prepend")) {
        SB_TRY(sb_step_add(&step, steps, SB_STEP_PREPEND, l->path));
        SB_TRY(sb_hf_text(l, node, "prepend", &step->to));
    } else if (sb_hf_is(node, "Replace")) {
        SB_TRY(sb_step_add(&step, steps, SB_STEP_REPLACE, l->path));
        SB_TRY(read_replace(l, node, step, "normalizer"));
    } else {
        SB_TRY(sb_hf_unsupported(l, "normalizer", sb_hf_type(node),
                                 "Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace"));
    }
done:
    return rc;
}

/* ------------------------------------------------------------------ pre-tokenizers */

/* The member `behavior` of a step that splits; that of `missing` where it is not there. */
static int32_t read_behavior(struct sb_hf *l, const struct sb_json_node *node, const char *missing,
                             enum sb_split_behavior *behavior)
{
    static const char *const names[] = {
        [SB_SPLIT_ISOLATED] = "Isolated",        [SB_SPLIT_REMOVED] = "Removed",
        [SB_SPLIT_CONTIGUOUS] = "Contiguous",    [SB_SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
        [SB_SPLIT_WITH_NEXT] = "MergedWithNext",
    };
    const struct sb_json_node *given = sb_json_get(node, "behavior");
    const char *name = given ? sb_json_word(given) : missing;

    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) {
            *behavior = (enum sb_split_behavior)i;
            return SPECBATCH_OK;
        }
    return sb_hf_unsupported(l, "pre_tokenizer with behavior", name ? name : "(none)",
                             "Isolated, Removed, Contiguous, MergedWithPrevious, MergedWithNext");
}

/* A Split at a regular expression or at a string. */
static int32_t add_split(struct sb_hf *l, const struct sb_json_node *node)
{
    const struct sb_json_node *pattern = sb_json_get(node, "pattern");
    struct sb_step *step;
    int32_t rc = SPECBATCH_OK;
    size_t n = 0;

    SB_TRY(sb_step_add(&step, &l->t->splitters, SB_STEP_SPLIT_TEXT, l->path));
    SB_TRY(sb_hf_flag(l, node, "invert", 0, &step->inverted));
    SB_TRY(read_behavior(l, node, NULL, &step->behavior));
    const char *regex = sb_json_string(sb_json_get(pattern, "Regex"), &n);
    if (regex) {
        SB_TRY(sb_split_compile(step, &l->properties, regex, n, l->path));
    } else {
        SB_TRY(sb_hf_text(l, pattern, "String", &step->from));
        if (step->from.n == 0)
            SB_TRY(sb_hf_malformed(l, "pre_tokenizer", "Split at an empty string"));
        SB_TRY(sb_hf_check_searched(l, "pre_tokenizer", &step->from));
    }
done:
    return rc;
}

/* Punctuation: a Split at each character of ASCII's punctuation and of the general category P.
 * These are is_ascii_punctuation of Rust, and is_punctuation of the crate unicode_categories, whose
 * tables are of Unicode 8 (is_punc of tokenizers/src/pre_tokenizers/punctuation.rs in
 * https://github.com/huggingface/tokenizers). So the pattern leaves out what came later, as ranges
 * that have no other punctuation, and has two characters that were of this category then. */
static int32_t add_punctuation(struct sb_hf *l, const struct sb_json_node *node)
{
    static const char pattern[] =
        "[[!-/:-@\\[-`{-~\\p{P}\\x{166D}\\x{111C9}]&&[^\\x{61D}\\x{9FD}-\\x{A76}\\x{C77}-\\x{C84}"
        "\\x{1B4E}-\\x{1B4F}\\x{1B7D}-\\x{1B7F}\\x{2E43}-\\x{2E5D}\\x{10D6E}-\\x{10F89}"
        "\\x{113D4}-\\x{1145D}\\x{11660}-\\x{116B9}\\x{1183B}-\\x{11FFF}\\x{12FF1}-\\x{12FF2}"
        "\\x{16D6D}-\\x{16FE2}\\x{1E5FF}-\\x{1E95F}]]";
    struct sb_step *step;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_step_add(&step, &l->t->splitters, SB_STEP_SPLIT_PATTERN, l->path));
    SB_TRY(read_behavior(l, node, "Isolated", &step->behavior));
    SB_TRY(sb_split_compile(step, &l->properties, pattern, sizeof pattern - 1, l->path));
done:
    return rc;
}

/* Digits: every character that Rust calls numeric, or every run of them, is a word. Those are the
 * general categories Nd, Nl and No (char::is_numeric), which is \p{N}. */
static int32_t add_digits(struct sb_hf *l, const struct sb_json_node *node)
{
    struct sb_step *step;
    int32_t rc = SPECBATCH_OK;
    int single;

    SB_TRY(sb_hf_flag(l, node, "individual_digits", 0, &single));
    SB_TRY(sb_step_add(&step, &l->t->splitters, SB_STEP_SPLIT_PATTERN, l->path));
    const char *pattern = single ? "\\p{N}" : "\\p{N}+";
    SB_TRY(sb_split_compile(step, &l->properties, pattern, strlen(pattern), l->path));
done:
    return rc;
}

static int32_t add_byte_level(struct sb_hf *l, const struct sb_json_node *node)
{
    struct sb_steps *steps = &l->t->splitters;
    struct sb_step *step;
    int32_t rc = SPECBATCH_OK;
    int prefix, regex;

    SB_TRY(sb_hf_flag(l, node, "add_prefix_space", 1, &prefix));
    SB_TRY(sb_hf_flag(l, node, "use_regex", 1, &regex));
    if (prefix)
        SB_TRY(sb_step_add(&step, steps, SB_STEP_PREFIX_SPACE, l->path));
    if (regex)
        SB_TRY(sb_step_add(&step, steps, SB_STEP_SPLIT_GPT2, l->path));
    SB_TRY(sb_step_add(&step, steps, SB_STEP_BYTES, l->path));
done:
    return rc;
}

/* Reads the fields that a Metaspace has both as a pre-tokenizer and as a decoder. */
static int32_t read_metaspace(struct sb_hf *l, const struct sb_json_node *node,
                              struct sb_bytes *mark, int *prepend)
{
    const struct sb_json_node *given = sb_json_get(node, "prepend_scheme");
    const char *scheme = sb_json_word(given);
    int32_t rc = SPECBATCH_OK;
    int legacy;

    if (!scheme && sb_json_kind(given) != SB_JSON_NULL)
        SB_TRY(sb_hf_malformed(l, "Metaspace", "prepend_scheme is not a word"));
    SB_TRY(sb_hf_text(l, node, "replacement", mark));
    SB_TRY(sb_hf_flag(l, node, "add_prefix_space", 1, &legacy));
    if (mark->n == 0)
        SB_TRY(sb_hf_malformed(l, "Metaspace", "empty replacement"));
    if (!scheme)
        scheme = legacy ? "always" : "never";
    *prepend = strcmp(scheme, "always") == 0  ? SB_PREPEND_ALWAYS
               : strcmp(scheme, "first") == 0 ? SB_PREPEND_FIRST
                                              : SB_PREPEND_NEVER;
    if (*prepend == SB_PREPEND_NEVER && strcmp(scheme, "never") != 0)
        SB_TRY(
            sb_hf_unsupported(l, "Metaspace with prepend_scheme", scheme, "always, first, never"));
done:
    return rc;
}

static int32_t add_metaspace(struct sb_hf *l, const struct sb_json_node *node)
{
    struct sb_steps *steps = &l->t->splitters;
    struct sb_step *step, *mark;
    int32_t rc = SPECBATCH_OK;
    int split;

    SB_TRY(sb_hf_flag(l, node, "split", 1, &split));
    SB_TRY(sb_step_add(&mark, steps, SB_STEP_METASPACE, l->path));
    SB_TRY(sb_bytes_set(&mark->from, " ", 1));
    SB_TRY(read_metaspace(l, node, &mark->to, &mark->prepend));
    if (split) {
        SB_TRY(sb_step_add(&step, steps, SB_STEP_SPLIT_TEXT, l->path));
        step->behavior = SB_SPLIT_WITH_NEXT;
        SB_TRY(sb_bytes_set(&step->from, mark->to.data, mark->to.n));
    }
done:
    return rc;
}

static int32_t add_pre_tokenizer(struct sb_hf *l, const struct sb_json_node *node)
{
    if (sb_json_kind(node) == SB_JSON_NULL)
        return SPECBATCH_OK;
    if (sb_hf_is(node, "Sequence"))
        return sb_hf_each(l, node, "pretokenizers", add_pre_tokenizer);
    if (sb_hf_is(node, "Split"))
        return add_split(l, node);
    if (sb_hf_is(node, "ByteLevel"))
        return add_byte_level(l, node);
    if (sb_hf_is(node, "Metaspace"))
        return add_metaspace(l, node);
    if (sb_hf_is(node, "Digits"))
        return add_digits(l, node);
    if (sb_hf_is(node, "Punctuation"))
        return add_punctuation(l, node);
    return sb_hf_unsupported(l, "pre_tokenizer", sb_hf_type(node),
                             "Sequence, Split, ByteLevel, Digits, Metaspace, Punctuation");
}

/* ------------------------------------------------------------------------- template */

static int32_t long_template(const struct sb_hf *l)
{
    return sb_fail(SPECBATCH_E_UNSUPPORTED,
                   "%s: post_processor: a template of more than %d tokens on one side", l->path,
                   TEMPLATE_MAX);
}

/* Appends the ids of a template's special token, whose name is looked up among those defined. */
static int32_t add_template_ids(struct sb_hf *l, const struct sb_json_node *specials,
                                const char *name, struct sb_ids *ids)
{
    const struct sb_json_node *list = sb_json_get(sb_json_get(specials, name), "ids"), *node;
    int32_t rc = SPECBATCH_OK;
    int64_t id;

    if (sb_json_kind(list) != SB_JSON_ARRAY)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: post_processor: no ids for \"%.60s\"", l->path,
                       name);
    if (sb_json_count(list) > TEMPLATE_MAX - ids->n)
        return long_template(l);
    for (node = sb_json_first(list); node; node = sb_json_next(node)) {
        if (!sb_json_int(node, &id) || id < 0 || id >= SB_ID_LIMIT)
            SB_TRY(sb_hf_malformed(l, "post_processor", "not a token id"));
        SB_TRY(sb_ids_add(ids, (int32_t)id));
    }
done:
    return rc;
}

/* A template is a list of special tokens around one $A, the text. Of several in a Sequence the
 * first counts, as in tokenizers 0.21 and 0.23. */
static int32_t add_template(struct sb_hf *l, const struct sb_json_node *node)
{
    const struct sb_json_node *specials = sb_json_get(node, "special_tokens");
    const struct sb_json_node *single = sb_json_get(node, "single");
    const char *name;
    int32_t rc = SPECBATCH_OK, seen = 0;

    if (l->has_template++)
        return SPECBATCH_OK;
    if (sb_json_kind(single) != SB_JSON_ARRAY)
        SB_TRY(sb_hf_malformed(l, "post_processor", "TemplateProcessing without a list `single`"));
    if (sb_json_count(single) > TEMPLATE_MAX)
        SB_TRY(long_template(l));
    for (node = sb_json_first(single); node; node = sb_json_next(node)) {
        if ((name = sb_json_word(sb_json_get(sb_json_get(node, "SpecialToken"), "id"))) != NULL) {
            SB_TRY(add_template_ids(l, specials, name, seen ? &l->t->suffix : &l->t->prefix));
            continue;
        }
        name = sb_json_word(sb_json_get(sb_json_get(node, "Sequence"), "id"));
        if (!name || strcmp(name, "A") != 0 || seen++)
            SB_TRY(
                sb_hf_unsupported(l, "post_processor", "template", "special tokens around one $A"));
    }
    if (!seen)
        SB_TRY(sb_hf_unsupported(l, "post_processor", "template without $A",
                                 "special tokens around one $A"));
done:
    return rc;
}

static int32_t add_post_processor(struct sb_hf *l, const struct sb_json_node *node)
{
    if (sb_json_kind(node) == SB_JSON_NULL || sb_hf_is(node, "ByteLevel"))
        return SPECBATCH_OK; /* ByteLevel changes offsets only */
    if (sb_hf_is(node, "Sequence"))
        return sb_hf_each(l, node, "processors", add_post_processor);
    if (sb_hf_is(node, "TemplateProcessing"))
        return add_template(l, node);
    return sb_hf_unsupported(l, "post_processor", sb_hf_type(node),
                             "Sequence, ByteLevel, TemplateProcessing");
}

/* ------------------------------------------------------------------------- decoder */

static int32_t read_strip(struct sb_hf *l, const struct sb_json_node *node,
                          struct sb_bytes *content, int64_t *start, int64_t *stop)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_hf_text(l, node, "content", content));
    if (content->n == 0 || !sb_json_int(sb_json_get(node, "start"), start) || *start < 0 ||
        !sb_json_int(sb_json_get(node, "stop"), stop) || *stop < 0)
        SB_TRY(sb_hf_malformed(l, "decoder Strip", "needs content, start and stop"));
done:
    return rc;
}

/* A decoder that works on single tokens. It comes before or after bytes are put together. */
static int32_t add_token_step(struct sb_hf *l, const struct sb_json_node *node)
{
    struct sb_decoder *d = &l->t->decoder;
    struct sb_steps *steps = d->bytes == SB_BYTES_RUN ? &d->after : &d->before;
    int64_t start = 0, stop = 0;
    struct sb_step *step;
    int32_t rc = SPECBATCH_OK;

    if (sb_hf_is(node, "Replace")) {
        SB_TRY(sb_step_add(&step, steps, SB_STEP_REPLACE, l->path));
        SB_TRY(read_replace(l, node, step, "decoder"));
    } else if (sb_hf_is(node, "Metaspace")) {
        SB_TRY(sb_step_add(&step, steps, SB_STEP_METASPACE, l->path));
        SB_TRY(read_metaspace(l, node, &step->from, &step->prepend));
        SB_TRY(sb_bytes_set(&step->to, " ", 1));
    } else if (sb_hf_is(node, "Strip")) {
        SB_TRY(sb_step_add(&step, steps, SB_STEP_STRIP, l->path));
        SB_TRY(read_strip(l, node, &step->from, &start, &stop));
        step->start = (size_t)start;
        step->stop = (size_t)stop;
    } else {
        SB_TRY(sb_hf_unsupported(
            l, "decoder", sb_hf_type(node),
            "Sequence, Replace, ByteFallback, Fuse, Strip, ByteLevel, Metaspace"));
    }
done:
    return rc;
}

/* A decoder that works on the whole text, since it stands behind Fuse or ByteLevel. A stream has to
 * do its work while text still arrives, so only a Strip at the beginning is possible. */
static int32_t add_text_step(struct sb_hf *l, const struct sb_json_node *node)
{
    struct sb_decoder *d = &l->t->decoder;
    int64_t start = 0, stop = 0;
    int32_t rc = SPECBATCH_OK;

    if (sb_hf_is(node, "Fuse"))
        return SPECBATCH_OK;
    if (!sb_hf_is(node, "Strip") || d->strip_count)
        return sb_hf_unsupported(l, "decoder behind Fuse or ByteLevel:", sb_hf_type(node),
                                 "Fuse, one Strip at the beginning");
    SB_TRY(read_strip(l, node, &d->strip, &start, &stop));
    if (stop > 0)
        SB_TRY(sb_hf_unsupported(l, "decoder Strip", "at the end of the text",
                                 "Strip at the beginning"));
    d->strip_count = (size_t)start;
done:
    return rc;
}

static int32_t add_decoder(struct sb_hf *l, const struct sb_json_node *node)
{
    struct sb_decoder *d = &l->t->decoder;

    if (sb_hf_is(node, "Sequence"))
        return sb_hf_each(l, node, "decoders", add_decoder);
    if (d->fused)
        return add_text_step(l, node);
    if (sb_hf_is(node, "Fuse") || sb_hf_is(node, "ByteLevel")) {
        d->fused = 1;
        d->byte_level = sb_hf_is(node, "ByteLevel");
        if (d->byte_level && d->bytes == SB_BYTES_RUN)
            return sb_hf_unsupported(l, "decoder", "ByteLevel behind ByteFallback",
                                     "one of the two");
        return SPECBATCH_OK;
    }
    if (sb_hf_is(node, "ByteFallback")) {
        if (d->bytes == SB_BYTES_RUN)
            return sb_hf_unsupported(l, "decoder", "with two ByteFallback", "one");
        d->bytes = SB_BYTES_RUN;
        return SPECBATCH_OK;
    }
    return add_token_step(l, node);
}

/* Refuses a template that has an id of no token. A template is read before the added tokens are,
 * and its ids are often theirs. */
static int32_t check_template(const struct sb_hf *l, const struct sb_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        if (!sb_vocab_piece(&l->t->vocab, ids->data[i]))
            return sb_fail(SPECBATCH_E_FORMAT, "%s: post_processor: %d is not the id of a token",
                           l->path, (int)ids->data[i]);
    return SPECBATCH_OK;
}

/* Refuses a Metaspace that looks for the beginning of the text (prepend_scheme first) if a step
 * before it may have removed that. The reference implementation then takes no word for the first,
 * as it asks where a word was in the text as it came. */
static int32_t check_first(const struct sb_hf *l)
{
    const struct sb_steps *normal = &l->t->normalizers, *split = &l->t->splitters;
    int removed = 0;

    for (size_t i = 0; i < normal->n; i++)
        removed |= normal->at[i].kind == SB_STEP_REPLACE && normal->at[i].to.n == 0;
    for (size_t i = 0; i < split->n; i++) {
        if (removed && split->at[i].prepend == SB_PREPEND_FIRST)
            return sb_hf_unsupported(l, "Metaspace", "first, behind a step that removes text,",
                                     "prepend_scheme always, never");
        removed |= split->at[i].behavior == SB_SPLIT_REMOVED;
    }
    return SPECBATCH_OK;
}

int32_t sb_tokenizer_read_hf(struct sb_tokenizer *t, const char *text, size_t length,
                             const char *path)
{
    struct sb_hf l = {
        .t = t, .path = path, .properties = {.mem = &t->mem}, .places = {.mem = &t->mem}};
    const struct sb_json_node *decoder;
    struct sb_json *doc = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_json_parse(&doc, &t->mem, text, length, path));
    const struct sb_json_node *root = sb_json_root(doc);
    SB_TRY(sb_hf_read_model(&l, sb_json_get(root, "model")));
    SB_TRY(add_normalizer(&l, sb_json_get(root, "normalizer")));
    SB_TRY(sb_steps_check_growth(&t->normalizers, NULL, path, "normalizer"));
    SB_TRY(add_pre_tokenizer(&l, sb_json_get(root, "pre_tokenizer")));
    SB_TRY(check_first(&l));
    SB_TRY(sb_steps_check_growth(&t->splitters, NULL, path, "pre_tokenizer"));
    SB_TRY(add_post_processor(&l, sb_json_get(root, "post_processor")));
    decoder = sb_json_get(root, "decoder");
    t->decoder.spaced = sb_json_kind(decoder) == SB_JSON_NULL;
    if (!t->decoder.spaced)
        SB_TRY(add_decoder(&l, decoder));
    SB_TRY(sb_steps_check_growth(&t->decoder.before, &t->decoder.after, path, "decoder"));
    SB_TRY(sb_hf_read_added_tokens(&l, root));
    SB_TRY(check_template(&l, &t->prefix));
    SB_TRY(check_template(&l, &t->suffix));
done:
    sb_properties_clear(&l.properties);
    sb_ids_clear(&l.places);
    sb_json_free(doc);
    return rc;
}
