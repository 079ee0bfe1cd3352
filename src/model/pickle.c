/*
 * Reading the list of tensors that torch.save writes; pickle.h says what is understood of it.
 *
 * The instructions and their operands are those of protocol 2, as Python's module pickletools
 * describes them. One that is not in the table below is refused: lists, classes, and so on.
 */
#include "model/pickle.h"

#include <string.h>

#include "little.h"
#include "status.h"

/* ---------------------------------------------------------------------------- values */

enum kind { MARK, NONE, BOOL, INT, TEXT, TUPLE, DICT, GLOBAL, STORAGE, TENSOR };

struct value {
    enum kind kind;
    uint32_t count; /* bytes of a TEXT, items of a TUPLE */
    int64_t n;      /* the number; of a TEXT its place in the pickle; of a TUPLE its first item; of
                       the others their index in their list */
};

/* What may be imported. */
enum call { CALL_DICT, CALL_TENSOR, CALL_PARAMETER, NO_CALL };
static const struct global {
    const char *name; /* as the pickle spells it: a line for the module, one for the name */
    enum call call;
    const char *type; /* of a storage: that of its elements, and their bytes */
    uint32_t size;
} globals[] = {
    {"collections\nOrderedDict\n", CALL_DICT, NULL, 0},
    {"torch._utils\n_rebuild_tensor_v2\n", CALL_TENSOR, NULL, 0},
    {"torch._utils\n_rebuild_parameter\n", CALL_PARAMETER, NULL, 0},
    {"torch\nFloatStorage\n", NO_CALL, "F32", 4},
    {"torch\nHalfStorage\n", NO_CALL, "F16", 2},
    {"torch\nBFloat16Storage\n", NO_CALL, "BF16", 2},
    {"torch\nDoubleStorage\n", NO_CALL, "F64", 8},
    {"torch\nLongStorage\n", NO_CALL, "I64", 8},
    {"torch\nIntStorage\n", NO_CALL, "I32", 4},
    {"torch\nShortStorage\n", NO_CALL, "I16", 2},
    {"torch\nCharStorage\n", NO_CALL, "I8", 1},
    {"torch\nByteStorage\n", NO_CALL, "U8", 1},
    {"torch\nBoolStorage\n", NO_CALL, "BOOL", 1},
};

struct storage {
    const struct global *type;
    struct value key;
    uint64_t elements;
};

struct tensor {
    int64_t storage;
    uint64_t offset;
    struct value shape, stride; /* tuples of as many numbers, SB_TENSOR_RANK_MAX at most */
};

struct entry {
    int64_t dict;
    struct value key, value;
};

/* A list that grows: of values, storages and so on. */
struct list {
    void *at;
    size_t n, capacity;
};

struct reader {
    struct sb_mem mem;
    const char *file;
    unsigned char *bytes;
    size_t n, at;        /* bytes of the pickle, and how many of them are read */
    size_t instruction;  /* where the one that is carried out begins, for messages */
    int64_t dicts;       /* how many there are */
    struct list stack;   /* struct value */
    struct list memo;    /* struct value: what the pickle refers to again, by its number */
    struct list items;   /* struct value, of tuples */
    struct list stores;  /* struct storage */
    struct list tensors; /* struct tensor */
    struct list entries; /* struct entry, of all dictionaries */
};

/* How many values the stack may have. torch sets a thousand items of a dictionary at a time. */
enum { STACK_MAX = 1 << 16 };

/* Fails, naming the file and the instruction. */
static int32_t broken(const struct reader *r, const char *what)
{
    return sb_fail(SPECBATCH_E_FORMAT, "%s: data.pkl: byte %zu: %s", r->file, r->instruction, what);
}

static int32_t append(struct reader *r, struct list *list, const void *element, size_t size)
{
    void *grown = sb_grow(&r->mem, list->at, &list->capacity, list->n + 1, size);

    if (!grown)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for %s", r->file);
    list->at = grown;
    memcpy((char *)grown + list->n++ * size, element, size);
    return SPECBATCH_OK;
}

static struct value *value_at(const struct list *list, size_t index)
{
    return (struct value *)list->at + index;
}

static int32_t push(struct reader *r, enum kind kind, int64_t n, uint32_t count)
{
    const struct value value = {kind, count, n};

    if (r->stack.n == STACK_MAX)
        return broken(r, "its stack is too high");
    return append(r, &r->stack, &value, sizeof value);
}

/* Takes the topmost value, which has to be of this kind. */
static int32_t pop(struct reader *r, struct value *value, enum kind kind)
{
    if (r->stack.n == 0)
        return broken(r, "its stack is empty");
    *value = *value_at(&r->stack, --r->stack.n);
    return value->kind == kind ? SPECBATCH_OK
                               : broken(r, "not what a list of tensors has in this place");
}

/* The values above the topmost mark: the index of the first of them. */
static int32_t find_mark(const struct reader *r, size_t *first)
{
    for (*first = r->stack.n; *first > 0; --*first)
        if (value_at(&r->stack, *first - 1)->kind == MARK)
            return SPECBATCH_OK;
    return broken(r, "its stack has no mark");
}

/* The n bytes that follow, as operands of the instruction. */
static int32_t take(struct reader *r, const unsigned char **operand, size_t n)
{
    if (n > r->n - r->at)
        return broken(r, "the pickle ends in the middle of an instruction");
    *operand = r->bytes + r->at;
    r->at += n;
    return SPECBATCH_OK;
}

/* ---------------------------------------------------- instructions: numbers and strings
 *
 * Each function carries out an instruction. `arg` is from the table of instructions. */

static int32_t check_protocol(struct reader *r, uint32_t arg)
{
    const unsigned char *version = NULL;
    int32_t rc = SPECBATCH_OK;

    (void)arg;
    SB_TRY(take(r, &version, 1));
    if (*version != 2)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: data.pkl: a pickle of protocol %d; torch.save writes 2 if it is not told "
                "otherwise",
                r->file, *version);
done:
    return rc;
}

static int32_t push_constant(struct reader *r, uint32_t arg)
{
    return arg <= 1 ? push(r, BOOL, arg, 0) : push(r, NONE, 0, 0);
}

static int32_t push_mark(struct reader *r, uint32_t arg)
{
    (void)arg;
    return push(r, MARK, 0, 0);
}

/* A number of `arg` bytes: those of one and two have no sign. */
static int32_t push_number(struct reader *r, uint32_t arg)
{
    const unsigned char *operand = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(take(r, &operand, arg));
    rc = push(r, INT, arg == 4 ? (int32_t)sb_little(operand, 4) : (int64_t)sb_little(operand, arg),
              0);
done:
    return rc;
}

/* A number of any length. Those that are needed are sizes: not negative, and below 2^63. */
static int32_t push_long(struct reader *r, uint32_t arg)
{
    const unsigned char *length = NULL, *operand = NULL;
    uint64_t number;
    int32_t rc = SPECBATCH_OK;

    (void)arg;
    SB_TRY(take(r, &length, 1));
    SB_TRY(take(r, &operand, *length));
    if (*length > 9 || (*length == 9 && operand[8] != 0))
        SB_TRY(broken(r, "a number of more than 64 bits"));
    number = sb_little(operand, *length < 8 ? *length : 8);
    if (*length > 0 && operand[*length - 1] & 0x80)
        SB_TRY(broken(r, "a negative number"));
    if (number > INT64_MAX)
        SB_TRY(broken(r, "a number of more than 63 bits"));
    rc = push(r, INT, (int64_t)number, 0);
done:
    return rc;
}

static int32_t push_text(struct reader *r, uint32_t arg)
{
    const unsigned char *length = NULL, *operand = NULL;
    int32_t rc = SPECBATCH_OK;

    (void)arg;
    SB_TRY(take(r, &length, 4));
    SB_TRY(take(r, &operand, (size_t)sb_little(length, 4)));
    rc = push(r, TEXT, operand - r->bytes, (uint32_t)sb_little(length, 4));
done:
    return rc;
}

static int32_t push_global(struct reader *r, uint32_t arg)
{
    const char *at = (const char *)r->bytes + r->at;
    const size_t left = r->n - r->at;
    const char *module_end = memchr(at, '\n', left);
    const char *end = module_end
                          ? memchr(module_end + 1, '\n', left - (size_t)(module_end + 1 - at))
                          : NULL;
    size_t length;

    (void)arg;
    if (!end)
        return broken(r, "the pickle ends in the middle of an instruction");
    length = (size_t)(end + 1 - at);
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (strlen(globals[i].name) == length && memcmp(globals[i].name, at, length) == 0) {
            r->at += length;
            return push(r, GLOBAL, (int64_t)i, 0);
        }
    return sb_fail(SPECBATCH_E_UNSUPPORTED,
                   "%s: data.pkl: byte %zu: it calls for %.*s.%.*s, which no list of tensors needs "
                   "(nothing was executed)",
                   r->file, r->instruction, module_end - at > 60 ? 60 : (int)(module_end - at), at,
                   end - module_end > 61 ? 60 : (int)(end - module_end - 1), module_end + 1);
}

/* ---------------------------------------------------------------- instructions: the memo */

/* Keeps the topmost value under a number of `arg` bytes. They are given in turn. */
static int32_t memo_put(struct reader *r, uint32_t arg)
{
    const unsigned char *operand = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(take(r, &operand, arg));
    if (r->stack.n == 0 || value_at(&r->stack, r->stack.n - 1)->kind == MARK)
        SB_TRY(broken(r, "there is no value to keep"));
    if (sb_little(operand, arg) != r->memo.n)
        SB_TRY(broken(r, "values are not kept in turn"));
    rc = append(r, &r->memo, value_at(&r->stack, r->stack.n - 1), sizeof(struct value));
done:
    return rc;
}

static int32_t memo_get(struct reader *r, uint32_t arg)
{
    const unsigned char *operand = NULL;
    const struct value *value;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(take(r, &operand, arg));
    if (sb_little(operand, arg) >= r->memo.n)
        SB_TRY(broken(r, "it asks for a value that was not kept"));
    value = value_at(&r->memo, (size_t)sb_little(operand, arg));
    rc = push(r, value->kind, value->n, value->count);
done:
    return rc;
}

/* --------------------------------------------------- instructions: tuples, dictionaries */

static int32_t tuple_of(struct reader *r, size_t first)
{
    const size_t count = r->stack.n - first, place = r->items.n;
    int32_t rc = SPECBATCH_OK;

    for (size_t i = first; i < r->stack.n; i++) {
        const struct value value = *value_at(&r->stack, i);
        if (value.kind == MARK)
            SB_TRY(broken(r, "a mark inside a tuple"));
        SB_TRY(append(r, &r->items, &value, sizeof value));
    }
    r->stack.n = first;
    rc = push(r, TUPLE, (int64_t)place, (uint32_t)count);
done:
    return rc;
}

/* The `arg` topmost values become a tuple. */
static int32_t make_tuple(struct reader *r, uint32_t arg)
{
    return arg > r->stack.n ? broken(r, "its stack is empty") : tuple_of(r, r->stack.n - arg);
}

/* All values above the mark become one. The values are moved down over the mark first. */
static int32_t make_long_tuple(struct reader *r, uint32_t arg)
{
    size_t first = 0;
    int32_t rc = SPECBATCH_OK;

    (void)arg;
    SB_TRY(find_mark(r, &first));
    memmove(value_at(&r->stack, first - 1), value_at(&r->stack, first),
            (r->stack.n - first) * sizeof(struct value));
    r->stack.n--;
    rc = tuple_of(r, first - 1);
done:
    return rc;
}

static int32_t make_dict(struct reader *r, uint32_t arg)
{
    (void)arg;
    return push(r, DICT, r->dicts++, 0);
}

/* Puts the pairs from stack[first] on into the dictionary below[-1]. */
static int32_t set_pairs(struct reader *r, size_t first, size_t below)
{
    int32_t rc = SPECBATCH_OK;

    if (below == 0 || value_at(&r->stack, below - 1)->kind != DICT || (r->stack.n - first) % 2 != 0)
        SB_TRY(broken(r, "items without a dictionary to be put into"));
    for (size_t i = first; i < r->stack.n; i += 2) {
        const struct entry entry = {value_at(&r->stack, below - 1)->n, *value_at(&r->stack, i),
                                    *value_at(&r->stack, i + 1)};
        SB_TRY(append(r, &r->entries, &entry, sizeof entry));
    }
    r->stack.n = below;
done:
    return rc;
}

static int32_t set_item(struct reader *r, uint32_t arg)
{
    (void)arg;
    return r->stack.n < 3 ? broken(r, "its stack is empty")
                          : set_pairs(r, r->stack.n - 2, r->stack.n - 2);
}

static int32_t set_items(struct reader *r, uint32_t arg)
{
    size_t first = 0;
    int32_t rc = SPECBATCH_OK;

    (void)arg;
    SB_TRY(find_mark(r, &first));
    rc = set_pairs(r, first, first - 1);
done:
    return rc;
}

/* ----------------------------------------------------- instructions: storages and calls */

static int is_kind(const struct reader *r, const struct value *tuple, uint32_t item, enum kind kind)
{
    return value_at(&r->items, (size_t)tuple->n + item)->kind == kind;
}

static int64_t number_of(const struct reader *r, const struct value *tuple, uint32_t item)
{
    return value_at(&r->items, (size_t)tuple->n + item)->n;
}

/* ("storage", its type, its key, the device it was on, its elements) */
static int32_t push_storage(struct reader *r, uint32_t arg)
{
    struct storage storage;
    struct value id = {NONE, 0, 0};
    int32_t rc = SPECBATCH_OK;

    (void)arg;
    SB_TRY(pop(r, &id, TUPLE));
    if (id.count != 5 || !is_kind(r, &id, 0, TEXT) || !is_kind(r, &id, 1, GLOBAL) ||
        !is_kind(r, &id, 2, TEXT) || !is_kind(r, &id, 3, TEXT) || !is_kind(r, &id, 4, INT))
        SB_TRY(broken(r, "what names a storage is not (\"storage\", type, key, device, elements)"));
    storage.type = &globals[number_of(r, &id, 1)];
    storage.key = *value_at(&r->items, (size_t)id.n + 2);
    storage.elements = (uint64_t)number_of(r, &id, 4);
    if (!storage.type->type || storage.elements > INT64_MAX)
        SB_TRY(broken(r, "a storage without a type, or of a negative size"));
    SB_TRY(append(r, &r->stores, &storage, sizeof storage));
    rc = push(r, STORAGE, (int64_t)r->stores.n - 1, 0);
done:
    return rc;
}

/* Whether a tuple has nothing but numbers from 0 on. */
static int is_sizes(const struct reader *r, const struct value *tuple)
{
    for (uint32_t i = 0; i < tuple->count; i++)
        if (!is_kind(r, tuple, i, INT) || number_of(r, tuple, i) < 0)
            return 0;
    return 1;
}

/* (storage, offset, shape, strides, whether it needs a gradient, hooks) */
static int32_t call_tensor(struct reader *r, const struct value *args)
{
    struct tensor tensor;
    int32_t rc = SPECBATCH_OK;

    if (args->count != 6 || !is_kind(r, args, 0, STORAGE) || !is_kind(r, args, 1, INT) ||
        !is_kind(r, args, 2, TUPLE) || !is_kind(r, args, 3, TUPLE) || !is_kind(r, args, 4, BOOL) ||
        !is_kind(r, args, 5, DICT))
        SB_TRY(broken(r, "the arguments of a tensor are not those of _rebuild_tensor_v2"));
    tensor.storage = number_of(r, args, 0);
    tensor.offset = (uint64_t)number_of(r, args, 1);
    tensor.shape = *value_at(&r->items, (size_t)args->n + 2);
    tensor.stride = *value_at(&r->items, (size_t)args->n + 3);
    if (tensor.shape.count != tensor.stride.count || !is_sizes(r, &tensor.shape) ||
        !is_sizes(r, &tensor.stride))
        SB_TRY(broken(r, "the shape or the strides of a tensor are not sizes"));
    if (tensor.shape.count > SB_TENSOR_RANK_MAX)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: data.pkl: byte %zu: more than %d dimensions", r->file,
                r->instruction, SB_TENSOR_RANK_MAX);
    SB_TRY(append(r, &r->tensors, &tensor, sizeof tensor));
    rc = push(r, TENSOR, (int64_t)r->tensors.n - 1, 0);
done:
    return rc;
}

/* (tensor, whether it needs a gradient, hooks): the tensor */
static int32_t call_parameter(struct reader *r, const struct value *args)
{
    if (args->count != 3 || !is_kind(r, args, 0, TENSOR) || !is_kind(r, args, 1, BOOL) ||
        !is_kind(r, args, 2, DICT))
        return broken(r, "the arguments of a parameter are not those of _rebuild_parameter");
    return push(r, TENSOR, number_of(r, args, 0), 0);
}

static int32_t call(struct reader *r, uint32_t arg)
{
    struct value args = {NONE, 0, 0}, callee = {NONE, 0, 0};
    int32_t rc = SPECBATCH_OK;

    (void)arg;
    SB_TRY(pop(r, &args, TUPLE));
    SB_TRY(pop(r, &callee, GLOBAL));
    switch (globals[callee.n].call) {
    case CALL_DICT:
        return args.count == 0 ? make_dict(r, 0) : broken(r, "OrderedDict with arguments");
    case CALL_TENSOR:
        return call_tensor(r, &args);
    case CALL_PARAMETER:
        return call_parameter(r, &args);
    case NO_CALL:
        rc = broken(r, "it calls the type of a storage");
    }
done:
    return rc;
}

/* Attributes of a dictionary: torch notes versions of modules there. They mean nothing here. */
static int32_t drop_state(struct reader *r, uint32_t arg)
{
    struct value state = {NONE, 0, 0};
    int32_t rc = SPECBATCH_OK;

    (void)arg;
    SB_TRY(pop(r, &state, DICT));
    if (r->stack.n == 0 || value_at(&r->stack, r->stack.n - 1)->kind != DICT)
        rc = broken(r, "attributes of something that is no dictionary");
done:
    return rc;
}

/* ------------------------------------------------------------------------- the program */

enum { STOP = '.' };

/* The instructions by their bytes, and the argument that each hands to its function. */
static const struct {
    int32_t (*run)(struct reader *r, uint32_t arg);
    uint32_t arg;
} instructions[256] = {
    [0x80] = {check_protocol, 0},
    ['('] = {push_mark, 0},
    ['N'] = {push_constant, 2},
    [0x88] = {push_constant, 1},
    [0x89] = {push_constant, 0},
    ['K'] = {push_number, 1},
    ['M'] = {push_number, 2},
    ['J'] = {push_number, 4},
    [0x8a] = {push_long, 0},
    ['X'] = {push_text, 0},
    ['c'] = {push_global, 0},
    ['q'] = {memo_put, 1},
    ['r'] = {memo_put, 4},
    ['h'] = {memo_get, 1},
    ['j'] = {memo_get, 4},
    [')'] = {make_tuple, 0},
    [0x85] = {make_tuple, 1},
    [0x86] = {make_tuple, 2},
    [0x87] = {make_tuple, 3},
    ['t'] = {make_long_tuple, 0},
    ['}'] = {make_dict, 0},
    ['s'] = {set_item, 0},
    ['u'] = {set_items, 0},
    ['Q'] = {push_storage, 0},
    ['R'] = {call, 0},
    ['b'] = {drop_state, 0},
};

static int32_t run(struct reader *r)
{
    int32_t rc = SPECBATCH_OK;

    while (rc == SPECBATCH_OK) {
        unsigned char code;
        r->instruction = r->at;
        if (r->at == r->n)
            return broken(r, "the pickle has no end");
        code = r->bytes[r->at++];
        if (code == STOP)
            return SPECBATCH_OK;
        if (!instructions[code].run)
            return sb_fail(SPECBATCH_E_UNSUPPORTED,
                           "%s: data.pkl: byte %zu: instruction 0x%02x, which no list of tensors "
                           "needs (nothing was executed)",
                           r->file, r->instruction, code);
        rc = instructions[code].run(r, instructions[code].arg);
    }
    return rc;
}

/* ---------------------------------------------------------------------------- the list */

/* A text as a string. The byte behind a text is that of an instruction, which has been carried out,
 * so there may be a NUL now. */
static const char *string_of(const struct reader *r, const struct value *text)
{
    r->bytes[(size_t)text->n + text->count] = '\0';
    return (const char *)r->bytes + text->n;
}

static int32_t list_entry(struct sb_pickled *out, const struct reader *r, const struct entry *entry)
{
    const struct tensor *tensor;
    const struct storage *storage;
    int32_t rc = SPECBATCH_OK;

    if (entry->key.kind != TEXT)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: data.pkl: a name that is not a string", r->file);
    out->name = string_of(r, &entry->key);
    SB_TRY(sb_tensors_check_name(out->name, entry->key.count, r->file));
    if (entry->value.kind != TENSOR)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: %.100s is not a tensor; what is saved has to be a model's state_dict()",
                r->file, out->name);
    tensor = (const struct tensor *)r->tensors.at + entry->value.n;
    storage = (const struct storage *)r->stores.at + tensor->storage;
    out->type = storage->type->type;
    out->element_size = storage->type->size;
    out->key = string_of(r, &storage->key);
    out->storage = storage->elements;
    out->offset = tensor->offset;
    out->rank = (int32_t)tensor->shape.count;
    for (int32_t i = 0; i < out->rank; i++) {
        out->shape[i] = number_of(r, &tensor->shape, (uint32_t)i);
        out->stride[i] = number_of(r, &tensor->stride, (uint32_t)i);
    }
done:
    return rc;
}

/* Lists the entries of the dictionary that the program has left on its stack. */
static int32_t list_tensors(struct sb_pickled **list, size_t *n_list, struct reader *r)
{
    const struct entry *entries = r->entries.at;
    struct sb_pickled *made = NULL;
    struct value root = {NONE, 0, 0};
    size_t n = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(pop(r, &root, DICT));
    if (r->stack.n != 0 || r->at != r->n)
        SB_TRY(broken(r, "something is left over"));
    for (size_t i = 0; i < r->entries.n; i++)
        n += entries[i].dict == root.n;
    if (n > SB_TENSORS_MAX)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: more than %d tensors", r->file, SB_TENSORS_MAX);
    SB_NEW(made, sb_alloc(&r->mem, n, sizeof *made), r->file);
    n = 0;
    for (size_t i = 0; i < r->entries.n; i++)
        if (entries[i].dict == root.n)
            SB_TRY(list_entry(&made[n++], r, &entries[i]));
    *list = made;
    *n_list = n;
    made = NULL;
done:
    sb_free(&r->mem, made);
    return rc;
}

int32_t sb_pickle_read(struct sb_pickled **list, size_t *n_list, const struct sb_mem *mem,
                       unsigned char *bytes, size_t n, const char *file)
{
    struct reader r = {.mem = *mem, .file = file, .bytes = bytes, .n = n};
    const struct list *const lists[] = {&r.stack,  &r.memo,    &r.items,
                                        &r.stores, &r.tensors, &r.entries};
    int32_t rc = run(&r);

    if (rc == SPECBATCH_OK)
        rc = list_tensors(list, n_list, &r);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        sb_free(mem, lists[i]->at);
    return rc;
}
