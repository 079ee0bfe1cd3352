/* yajl makes a tree of the line; then each field is looked at in turn, so that one that is unknown
 * or there twice is seen. */
#include "prompt_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_tree.h>

#include "id.h"
#include "support.h"

int ex_prompt_bad(const struct ex_prompt *prompt, const char *file, const char *why)
{
    return ex_complain("%s:%zu: %s", file, prompt->line, why);
}

/* yajl_tree hands out C strings, in which a NUL character ends the text. So a line with one is
 * found here. */
static int has_escaped_nul(const char *json)
{
    const char *p;
    for (p = json; (p = strchr(p, '\\')) != NULL; p += 2) {
        if (strncmp(p + 1, "u0000", 5) == 0)
            return 1;
        if (p[1] == '\0')
            break;
    }
    return 0;
}

/* The functions below take the value of one field. Each returns NULL, or what is wrong with it. */

static const char *take_text(struct ex_prompt *prompt, yajl_val value)
{
    const char *text = YAJL_GET_STRING(value);
    const size_t size = strlen(text) + 1;

    prompt->text = ex_alloc(size, 1);
    memcpy(prompt->text, text, size);
    return NULL;
}

static const char *take_prompt(struct ex_prompt *prompt, yajl_val value)
{
    return YAJL_IS_STRING(value) ? take_text(prompt, value) : "\"prompt\" is not a string";
}

static const char *take_turns(struct ex_prompt *prompt, yajl_val value)
{
    if (!YAJL_IS_ARRAY(value) || value->u.array.len == 0)
        return "\"turns\" is not an array with a first turn";
    value = value->u.array.values[0];
    prompt->is_turn = 1;
    return YAJL_IS_STRING(value) ? take_text(prompt, value) : "the first turn is not a string";
}

static const char *take_ids(struct ex_prompt *prompt, yajl_val value)
{
    size_t i;

    if (!YAJL_IS_ARRAY(value))
        return "\"ids\" is not an array";
    if (value->u.array.len == 0)
        return "\"ids\" is empty";
    prompt->n_ids = value->u.array.len;
    prompt->ids = ex_alloc(prompt->n_ids, sizeof *prompt->ids);
    for (i = 0; i < prompt->n_ids; i++) {
        const yajl_val id = value->u.array.values[i];
        if (!YAJL_IS_INTEGER(id))
            return "\"ids\" holds something that is not an integer";
        if (YAJL_GET_INTEGER(id) < 0 || YAJL_GET_INTEGER(id) > INT32_MAX)
            return "\"ids\" holds a number that is not a token id";
        prompt->ids[i] = (int32_t)YAJL_GET_INTEGER(id);
    }
    return NULL;
}

static const char *take_id(struct ex_prompt *prompt, yajl_val value)
{
    prompt->id = ex_id_read(value);
    return prompt->id ? NULL : "\"id\" is neither a string nor a number";
}

static const struct {
    const char *name;
    const char *(*take)(struct ex_prompt *, yajl_val); /* NULL: of a Spec-Bench record, not used */
} fields[] = {{"prompt", take_prompt}, {"turns", take_turns}, {"ids", take_ids},  {"id", take_id},
              {"question_id", NULL},   {"category", NULL},    {"reference", NULL}};
enum { N_FIELDS = sizeof fields / sizeof fields[0], N_KINDS_OF_PROMPT = 3 };

/* A field that is part of the wish. */
static int take_wish(struct ex_prompt *prompt, const char *file, const char *name, yajl_val value)
{
    char why[EX_WHY];
    const int taken = ex_wish_take(&prompt->own, name, value, why);

    if (taken < 0)
        return ex_complain("%s:%zu: unknown field \"%.60s\"", file, prompt->line, name);
    return taken || ex_prompt_bad(prompt, file, why);
}

static int take_object(struct ex_prompt *prompt, const char *file, yajl_val root)
{
    int seen[N_FIELDS] = {0};
    size_t i, field;

    for (i = 0; i < root->u.object.len; i++) {
        const char *name = root->u.object.keys[i], *why;
        const yajl_val value = root->u.object.values[i];
        for (field = 0; field < N_FIELDS && strcmp(fields[field].name, name) != 0;)
            field++;
        if (field == N_FIELDS) {
            if (!take_wish(prompt, file, name, value))
                return 0;
            continue;
        }
        if (seen[field]++)
            return ex_complain("%s:%zu: \"%s\" is there twice", file, prompt->line, name);
        if (field < N_KINDS_OF_PROMPT && seen[0] + seen[1] + seen[2] > 1)
            return ex_prompt_bad(prompt, file, "two of \"prompt\", \"turns\" and \"ids\"");
        why = fields[field].take ? fields[field].take(prompt, value) : NULL;
        if (why)
            return ex_prompt_bad(prompt, file, why);
    }
    if (seen[0] + seen[1] + seen[2] == 0)
        return ex_prompt_bad(prompt, file,
                             "no prompt: one of \"prompt\", \"turns\" and \"ids\" is needed");
    return 1;
}

int ex_prompt_parse(struct ex_prompt *prompt, const char *file, const char *json, size_t length)
{
    char why[128] = "";
    yajl_val root;
    int ok;

    if (strlen(json) != length || has_escaped_nul(json))
        return ex_prompt_bad(prompt, file, "a NUL character");
    root = yajl_tree_parse(json, why, sizeof why);
    if (!root) {
        why[strcspn(why, "\n")] = '\0';
        return ex_complain("%s:%zu: not JSON%s%s", file, prompt->line, *why ? ": " : "", why);
    }
    ok = YAJL_IS_OBJECT(root) ? take_object(prompt, file, root)
                              : ex_prompt_bad(prompt, file, "not a JSON object");
    yajl_tree_free(root);
    return ok;
}
