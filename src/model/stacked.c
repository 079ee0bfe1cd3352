/* One tensor of all experts taken apart; stacked.h shows it. All of them are found and their shapes
 * checked before there is memory for the many that they become, so that a small file cannot ask for
 * much. */
#include "model/stacked.h"

#include <stdio.h>
#include <string.h>

#include "model/tensor_specs.h"
#include "status.h"

enum { NAME_BYTES = SB_PREFIX_BYTES + 24, MX_ELEMENTS = 32, MX_BYTES = 16 };

/* The tensors of a map of all experts of a layer; without a name: it is not there. */
struct stack {
    int32_t rows, n_in; /* of an expert */
    struct sb_tensor blocks, scales, floats, bias;
};

/* A map of an expert: each `of`-th row of the stack's, from row `first` on. */
struct map {
    const char *name;
    int32_t first, of;
};

/* What is being done. New tensors lie behind those of the set, which do not count them yet: they
 * are sorted, as finding one needs it. */
struct unstacking {
    struct sb_tensors *set;
    const struct sb_config *config;
    char *names; /* where the next name goes; NULL: tensors are only counted */
    int32_t n;   /* new tensors */
};

/* Finds a tensor of a layer's stack. */
static int32_t find(struct sb_tensor *out, const struct unstacking *u, int32_t layer,
                    const char *map, const char *suffix, int32_t rank, const int64_t *shape)
{
    char name[SB_TENSOR_NAME_BYTES];
    const struct sb_tensor *t;

    snprintf(name, sizeof name, "model.layers.%d.%s.%s%s", (int)layer, u->config->arch->expert, map,
             suffix);
    memset(out, 0, sizeof *out);
    t = sb_tensors_find(u->set, name);
    if (!t)
        return SPECBATCH_OK;
    *out = *t;
    return sb_tensors_check_shape(u->set, t, rank, shape);
}

static int32_t find_stack(struct stack *stack, const struct unstacking *u, int32_t layer,
                          const char *map, int32_t rows, int32_t n_in)
{
    const int64_t blocks[4] = {u->config->experts, rows, n_in / MX_ELEMENTS, MX_BYTES};
    const int64_t floats[3] = {u->config->experts, n_in, rows};
    enum sb_dtype dtype;
    int32_t rc = SPECBATCH_OK;

    stack->rows = rows;
    stack->n_in = n_in;
    SB_TRY(find(&stack->blocks, u, layer, map, "_blocks", 4, blocks));
    SB_TRY(find(&stack->scales, u, layer, map, "_scales", 3, blocks));
    SB_TRY(find(&stack->floats, u, layer, map, "", 3, floats));
    SB_TRY(find(&stack->bias, u, layer, map, "_bias", 2, blocks));
    if (!stack->blocks.name != !stack->scales.name ||
        (stack->blocks.name && (n_in % MX_ELEMENTS != 0 || strcmp(stack->blocks.type, "U8") != 0 ||
                                strcmp(stack->scales.type, "U8") != 0)))
        SB_FAIL(SPECBATCH_E_FORMAT,
                "model.layers.%d.%s.%s: blocks and scales are not those of MXFP4", (int)layer,
                u->config->arch->expert, map);
    if (stack->floats.name)
        SB_TRY(sb_tensors_check_type(&dtype, u->set, &stack->floats));
    if (stack->bias.name)
        SB_TRY(sb_tensors_check_type(&dtype, u->set, &stack->bias));
done:
    return rc;
}

/* Adds a tensor of expert e to the set. */
static void add(struct unstacking *u, struct sb_tensor tensor, int32_t layer, int32_t e,
                const struct map *map, const char *suffix)
{
    char prefix[SB_PREFIX_BYTES];

    u->n++;
    if (!u->names)
        return;
    tensor.name = u->names;
    u->set->list[u->set->n + u->n - 1] = tensor;
    sb_mlp_prefix(prefix, u->config, layer, e);
    u->names += snprintf(u->names, NAME_BYTES, "%s%s%s", prefix, map->name, suffix) + 1;
}

/* The map of expert e in MXFP4. Its first row is `row` of all. */
static struct sb_tensor of_blocks(const struct stack *stack, const struct map *map, uint64_t row)
{
    const uint64_t blocks = (uint64_t)stack->n_in / MX_ELEMENTS, of = (uint64_t)map->of;
    struct sb_tensor t = stack->blocks;

    memcpy(t.type, "MXFP4", sizeof "MXFP4");
    t.rank = 2;
    t.shape[0] = stack->rows / map->of;
    t.shape[1] = stack->n_in;
    t.bytes = (uint64_t)t.shape[0] * blocks * (1 + MX_BYTES);
    t.offset += row * blocks * MX_BYTES;
    t.row_step = of * blocks * MX_BYTES;
    t.scale_file = stack->scales.file;
    t.scale_offset = stack->scales.offset + row * blocks;
    t.scale_step = of * blocks;
    return t;
}

/* Bytes of an element of floats, whose type has been checked. */
static uint64_t element_bytes(const struct sb_tensor *t)
{
    enum sb_dtype dtype = SB_F32;

    sb_tensor_dtype(&dtype, t);
    return sb_dtype_size(dtype);
}

/* The same in floats, of which expert e has n_in rows of the stack's. */
static struct sb_tensor of_floats(const struct stack *stack, const struct map *map, uint64_t e)
{
    const uint64_t size = element_bytes(&stack->floats), rows = (uint64_t)stack->rows;
    struct sb_tensor t = stack->floats;

    t.rank = 2;
    t.shape[0] = stack->rows / map->of;
    t.shape[1] = stack->n_in;
    t.bytes = (uint64_t)t.shape[0] * (uint64_t)stack->n_in * size;
    t.offset += (e * (uint64_t)stack->n_in * rows + (uint64_t)map->first) * size;
    t.row_step = (uint64_t)map->of * size;
    t.column_step = rows * size;
    return t;
}

static struct sb_tensor of_bias(const struct stack *stack, const struct map *map, uint64_t row)
{
    const uint64_t size = element_bytes(&stack->bias);
    struct sb_tensor t = stack->bias;

    t.rank = 1;
    t.shape[0] = stack->rows / map->of;
    t.bytes = (uint64_t)t.shape[0] * size;
    t.offset += row * size;
    t.row_step = (uint64_t)map->of * size;
    return t;
}

/* Adds those of all experts that a stack has. */
static void add_map(struct unstacking *u, const struct stack *stack, int32_t layer,
                    const struct map *map)
{
    for (int32_t e = 0; e < u->config->experts; e++) {
        const uint64_t row = (uint64_t)e * (uint64_t)stack->rows + (uint64_t)map->first;
        if (stack->blocks.name)
            add(u, of_blocks(stack, map, row), layer, e, map, ".weight");
        if (stack->floats.name)
            add(u, of_floats(stack, map, (uint64_t)e), layer, e, map, ".weight");
        if (stack->bias.name)
            add(u, of_bias(stack, map, row), layer, e, map, ".bias");
    }
}

/* Those of all layers. */
static int32_t add_all(struct unstacking *u)
{
    const struct sb_config *c = u->config;
    const struct map gate = {c->arch->gate_up[0], 0, 2}, up = {c->arch->gate_up[1], 1, 2};
    const struct map down = {c->arch->down, 0, 1};
    struct stack stack;
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < c->layers; i++) {
        SB_TRY(find_stack(&stack, u, i, c->arch->stacked_gate_up, 2 * c->inter, c->hidden));
        add_map(u, &stack, i, &gate);
        add_map(u, &stack, i, &up);
        SB_TRY(find_stack(&stack, u, i, c->arch->down, c->hidden, c->inter));
        add_map(u, &stack, i, &down);
    }
done:
    return rc;
}

/* Whether a tensor is one of all experts, which has been taken apart. */
static int is_stacked(const struct sb_tensors *set, const struct sb_tensor *t)
{
    const char *const maps[] = {set->arch->stacked_gate_up, set->arch->down};
    const char *part = strstr(t->name, set->arch->expert);
    const size_t n = strlen(set->arch->expert);

    for (int i = 0; part && part[n] == '.' && i < 2; i++)
        if (strncmp(part + n + 1, maps[i], strlen(maps[i])) == 0)
            return 1;
    return 0;
}

/* Puts the new tensors in the place of the stacks. */
static void replace_stacks(struct unstacking *u)
{
    struct sb_tensors *set = u->set;
    int32_t kept = 0;

    for (int32_t i = 0; i < set->n; i++)
        if (!is_stacked(set, &set->list[i]))
            set->list[kept++] = set->list[i];
    memmove(set->list + kept, set->list + set->n, (size_t)u->n * sizeof *set->list);
    set->n = kept + u->n;
}

int32_t sb_tensors_unstack(struct sb_tensors *set, const struct sb_config *config)
{
    struct unstacking u = {set, config, NULL, 0};
    int32_t rc = SPECBATCH_OK;

    if (!config->arch->stacked_gate_up)
        return SPECBATCH_OK;
    SB_TRY(add_all(&u));
    if (u.n == 0)
        goto done;
    SB_TRY(sb_tensors_reserve(set, (size_t)u.n, set->config));
    SB_NEW(set->expert_names, sb_alloc_raw(&set->mem, (size_t)u.n, NAME_BYTES),
           "the names of experts");
    u.names = set->expert_names;
    u.n = 0;
    SB_TRY(add_all(&u));
    replace_stacks(&u);
    SB_TRY(sb_tensors_sort(set));
done:
    return rc;
}
