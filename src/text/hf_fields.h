/*
 * What the readers of tokenizer.json and of the files beside it share (hf.c, hf_model.c,
 * hf_beside.c): the members of a component, and the two ways to refuse it. Messages begin with the
 * file and name the member.
 */
#ifndef SB_HF_FIELDS_H
#define SB_HF_FIELDS_H

#include "json.h"
#include "pipeline.h"

/* A file that is being read. */
struct sb_hf {
    struct sb_tokenizer *t;
    const char *path;
    struct sb_properties properties; /* the named sets of characters of the file's patterns */
    int has_template;                /* a TemplateProcessing has been read */
    struct sb_ids places;            /* by id: which of the added tokens it is, -1 for none */
};

/* The type of a component, for messages too; and whether it is the given one. */
const char *sb_hf_type(const struct sb_json_node *node);
int sb_hf_is(const struct sb_json_node *node, const char *type);

/* Fail with E_UNSUPPORTED, saying what would be supported, and with E_FORMAT. */
int32_t sb_hf_unsupported(const struct sb_hf *l, const char *where, const char *what,
                          const char *known);
int32_t sb_hf_malformed(const struct sb_hf *l, const char *where, const char *reason);

/* A flag, which has the value `missing` where it is missing or null. */
int32_t sb_hf_flag(const struct sb_hf *l, const struct sb_json_node *node, const char *name,
                   int missing, int *value);
/* A string that must be there. */
int32_t sb_hf_text(const struct sb_hf *l, const struct sb_json_node *node, const char *name,
                   struct sb_bytes *into);
/* Refuses a string that is too long to be looked for in texts. */
int32_t sb_hf_check_searched(const struct sb_hf *l, const char *where,
                             const struct sb_bytes *string);
/* Calls a function with each element of the list `name`, such as that of a Sequence. */
typedef int32_t (*sb_hf_fn)(struct sb_hf *l, const struct sb_json_node *node);
int32_t sb_hf_each(struct sb_hf *l, const struct sb_json_node *node, const char *name,
                   sb_hf_fn function);

/* hf_model.c: the vocabulary and merges; and, once the normalizer is known, the added tokens. */
int32_t sb_hf_read_model(struct sb_hf *l, const struct sb_json_node *model);
int32_t sb_hf_read_added_tokens(struct sb_hf *l, const struct sb_json_node *root);
/* Fills `places` for the added tokens that a tokenizer has. */
int32_t sb_hf_note_places(struct sb_hf *l);
/* Reads an added token's content and flags, of which those that are missing are false. */
int32_t sb_hf_read_token(struct sb_hf *l, const struct sb_json_node *node, int64_t id,
                         struct sb_added_token *token);
/* Whether there is such an added token, with these flags. */
int sb_hf_has_token(const struct sb_hf *l, const struct sb_added_token *token);
/* Makes the added token of an id a special one; 0 when there is none. */
int sb_hf_make_special(struct sb_hf *l, int32_t id);
/* Adds a token, or changes the flags of one that is there. What is left of its content is the
 * caller's to free. sb_added_sort has to follow. */
int32_t sb_hf_add_token(struct sb_hf *l, struct sb_added_token *token);

#endif
