/*
 * Normalisers: NFC, Prepend and Replace, in the order the file lists them.
 *
 * NFC is made from utf8proc's parts instead of utf8proc_map, for two reasons: utf8proc_map allocates with
 * malloc behind the caller's back, and its canonical ordering is a bubble sort, which a text of nothing
 * but combining marks turns quadratic. Here a run of marks is put in order by counting.
 *
 * The tables are utf8proc's (Unicode 15 in 2.8). Hugging Face's are older: a mark that Unicode got after
 * version 9, behind another mark of a higher class, is moved here and stays there.
 */
#include <string.h>
#include <utf8proc.h>

#include "pipeline.h"
#include "status.h"
#include "utf8.h"

enum { EXPANSION = 8 }; /* code points that one can decompose into, with room to spare */

static const utf8proc_option_t nfc_options = (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

/* Every code point below U+0300 is its own normal form and combines with nothing before it. */
static int is_nfc_for_sure(const char *text, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        if ((unsigned char)text[i] >= 0xCC)
            return 0;
    return 1;
}

static int32_t reserve_points(struct sb_work *work, size_t need)
{
    size_t capacity = work->point_capacity ? work->point_capacity : 256;
    int32_t *grown;

    if (need <= work->point_capacity)
        return SPECBATCH_OK;
    while (capacity < need)
        capacity *= 2;
    grown = sb_realloc(work->mem, work->points, capacity, sizeof *grown);
    if (!grown)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory to normalise text");
    work->points = grown;
    work->point_capacity = capacity;
    return SPECBATCH_OK;
}

static unsigned combining_class(int32_t cp)
{
    return (unsigned)utf8proc_get_property(cp)->combining_class;
}

/* Stable sort of marks by class; `spare` holds n more. */
static void order_marks(int32_t *marks, size_t n, int32_t *spare)
{
    size_t count[256] = { 0 }, i, sum = 0;

    for (i = 0; i < n; i++)
        count[combining_class(marks[i]) & 255]++;
    for (i = 0; i < 256; i++) {
        size_t of_class = count[i];
        count[i] = sum;
        sum += of_class;
    }
    for (i = 0; i < n; i++)
        spare[count[combining_class(marks[i]) & 255]++] = marks[i];
    memcpy(marks, spare, n * sizeof *marks);
}

/* Orders every run of marks. The array has room for twice n. */
static void order_all_marks(int32_t *points, size_t n)
{
    size_t begin = 0, i;

    for (i = 0; i <= n; i++) {
        if (i < n && combining_class(points[i]) != 0)
            continue;
        if (i - begin > 1)
            order_marks(points + begin, i - begin, points + n);
        begin = i + 1;
    }
}

static int32_t nfc(struct sb_work *work, const char *text, size_t n, struct sb_bytes *out)
{
    utf8proc_ssize_t length;
    size_t at = 0, used = 0;
    int32_t rc = SPECBATCH_OK;
    uint32_t cp = 0;
    int step, boundary = 0;

    for (; at < n; at += (size_t)step) {
        SB_TRY(reserve_points(work, used + EXPANSION));
        step = sb_utf8_step(text + at, n - at, &cp);
        length = utf8proc_decompose_char((int32_t)cp, work->points + used, EXPANSION, nfc_options, &boundary);
        if (step <= 0 || length < 0 || length > EXPANSION)
            SB_FAIL(SPECBATCH_E_INTERNAL, "U+%04X cannot be decomposed", cp);
        used += (size_t)length;
    }
    SB_TRY(reserve_points(work, used * 2 + 1));
    order_all_marks(work->points, used);
    length = utf8proc_reencode(work->points, (utf8proc_ssize_t)used, nfc_options);
    if (length < 0)
        SB_FAIL(SPECBATCH_E_INTERNAL, "text cannot be composed");
    SB_TRY(sb_bytes_add(out, (const char *)work->points, (size_t)length));
done:
    return rc;
}

int32_t sb_replace(const struct sb_step *step, const char *text, size_t n, struct sb_bytes *out)
{
    const struct sb_bytes *from = &step->from;
    size_t copied = 0, at = 0;
    int32_t rc = SPECBATCH_OK;

    while (at < n) {
        const char *hit = memchr(text + at, from->data[0], n - at);
        if (!hit)
            break;
        at = (size_t)(hit - text);
        if (n - at < from->n || memcmp(hit, from->data, from->n) != 0) {
            at++;
            continue;
        }
        SB_TRY(sb_bytes_add(out, text + copied, at - copied));
        SB_TRY(sb_bytes_add(out, step->to.data, step->to.n));
        copied = at += from->n;
    }
    SB_TRY(sb_bytes_add(out, text + copied, n - copied));
done:
    return rc;
}

int32_t sb_normalize(const struct sb_steps *steps, struct sb_work *work, const char *text, size_t n,
                     const char **out, size_t *n_out)
{
    int32_t rc = SPECBATCH_OK;
    size_t i;

    for (i = 0; i < steps->n && n > 0; i++) {
        const struct sb_step *step = &steps->at[i];
        struct sb_bytes *into = &work->normal[i % 2];
        if (step->kind == SB_STEP_NFC && is_nfc_for_sure(text, n))
            continue;
        if (into->data && text == into->data)
            into = &work->normal[1 - i % 2];
        into->n = 0;
        if (step->kind == SB_STEP_NFC) {
            SB_TRY(nfc(work, text, n, into));
        } else if (step->kind == SB_STEP_PREPEND) {
            SB_TRY(sb_bytes_add(into, step->to.data, step->to.n));
            SB_TRY(sb_bytes_add(into, text, n));
        } else {
            SB_TRY(sb_replace(step, text, n, into));
        }
        text = into->data;
        n = into->n;
    }
    *out = text;
    *n_out = n;
done:
    return rc;
}

int32_t sb_step_add(struct sb_step **out, struct sb_steps *steps, enum sb_step_kind kind, const char *where)
{
    if (steps->n == SB_STEPS_MAX)
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s: more than %d steps in a row", where, SB_STEPS_MAX);
    *out = &steps->at[steps->n++];
    (*out)->kind = kind;
    return SPECBATCH_OK;
}

int32_t sb_bytes_set(struct sb_bytes *bytes, const char *text, size_t n)
{
    bytes->n = 0;
    return sb_bytes_add(bytes, text, n);
}

void sb_steps_clear(struct sb_steps *steps)
{
    size_t i;

    for (i = 0; i < steps->n; i++) {
        sb_bytes_clear(&steps->at[i].from);
        sb_bytes_clear(&steps->at[i].to);
        sb_pattern_free(steps->at[i].pattern);
    }
    steps->n = 0;
}
