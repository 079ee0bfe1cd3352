/*
 * wgmma, by the PTX ISA ("Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions").
 *
 * Each warp of a warpgroup computes its own sixteen rows of D, so its products are queued for each
 * warp alone, and that the four warps do the same is checked:
 *
 *     issue    The warp's sums are taken out of the lanes' registers, where NaN are left, unless
 *              they are out already. The operands must be there and fenced.
 *     wait     Products of the groups that are waited for are computed, from what shared memory
 *              holds then. Sums that no later product adds to go back into the registers.
 *
 * So products are made as late as a program allows, and whoever uses sums too early finds NaN, and
 * whoever lets an operand be overwritten too early finds other sums. A copy into an operand of a
 * product that is queued is a fault, and with checks so is any other use of it that is not ordered.
 */
#include "cudasim.h"
#include "half.h"
#include "runtime.h"
#include "sim.h"
#include "tensor.h"

#include <math.h>
#include <string.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

namespace cudasim
{

enum { LANES = 32, ROWS = 16, COLUMNS = 8, STEP = 16, CHUNK = 16, GROUP_BYTES = 1024 };

struct product {
    bool is_bf16;
    float *sums; /* of lane 0, by which they are known */
    int tiles;
    uintptr_t a, b;
};

struct held_sums {
    float *at[LANES];
    std::vector<float> values; /* [LANES] [tiles] [4] */
    int pending;               /* products that are to be added */
};

struct warp_products {
    std::deque<std::vector<product>> groups; /* the last is open */
    std::map<float *, held_sums> held;
    bool is_fenced;
    size_t issued;
};

struct block_products {
    std::vector<warp_products> warps;
    /* of each warpgroup, the operands of every product, which its first warp to come notes */
    std::vector<std::vector<std::pair<uintptr_t, uintptr_t>>> issued;
};

static std::vector<block_products> blocks;
static cudasim_wgmma_fault broken;
static int64_t broken_argument, calls;

bool has_map_encoder() { return broken != CUDASIM_WGMMA_ABSENT; }

static block_products &mine() { return blocks[running_block()]; }
static warp_products &my_warp() { return mine().warps[running_index / LANES]; }

void wgmma_grid_begin(size_t resident) { blocks.assign(resident, block_products()); }

void wgmma_block_begin()
{
    mine().warps.clear();
    mine().issued.clear();
}

/* Room for the warps of a block that has wgmma. */
static void begin()
{
    const dim3 size = block_size();
    const size_t warps = ((size_t)size.x * size.y * size.z + LANES - 1) / LANES;

    if (compute_major() != 9)
        fault("wgmma is of compute capability 9.0 alone");
    if (!mine().warps.empty())
        return;
    mine().warps.assign(warps, warp_products());
    for (warp_products &w : mine().warps)
        w.groups.emplace_back();
    mine().issued.resize((warps + 3) / 4);
}

void wgmma_block_end()
{
    for (size_t w = 0; w < mine().warps.size(); w++) {
        const warp_products &warp = mine().warps[w];
        if (!warp.held.empty())
            fault("warp %u ends with wgmma on their way", (unsigned)w);
        if (warp.issued != mine().issued[w / 4].size())
            fault("warp %u has %u wgmma, others of its warpgroup %u", (unsigned)w,
                  (unsigned)warp.issued, (unsigned)mine().issued[w / 4].size());
    }
}

/* Where 16 bytes of an operand lie: chunk c, 0 or 1, of the sixteen elements of a row. */
static uintptr_t chunk_at(uintptr_t operand, int row, int c)
{
    const uintptr_t at = operand + (uintptr_t)(row / 8 * GROUP_BYTES + row % 8 * 128 + c * CHUNK);

    return at ^ ((at >> 7 & 7) << 4);
}

/* The sixteen elements of a row. */
static void read_row(float *to, bool is_bf16, uintptr_t operand, int row)
{
    for (int k = 0; k < STEP; k++) {
        uint16_t bits;
        memcpy(&bits, (const uint16_t *)chunk_at(operand, row, k / 8) + k % 8, sizeof bits);
        const uint32_t wide = is_bf16 ? sb_bf16_widen(bits) : sb_f16_widen(bits);
        memcpy(&to[k], &wide, sizeof wide);
    }
}

static void check_operand(uintptr_t operand, int first_row, int rows)
{
    if (operand % GROUP_BYTES >= 128 || operand % 32)
        fault("a wgmma's operand at %#lx, which is not the k-th 32 bytes of 1 KiB",
              (unsigned long)operand);
    for (int r = first_row; checking && r < first_row + rows; r++)
        for (int c = 0; c < 2; c++)
            check_wgmma((const void *)chunk_at(operand, r, c), CHUNK);
}

/* Whether rows of an operand lie in these bytes. */
static bool overlaps(uintptr_t operand, int rows, uintptr_t at, size_t bytes)
{
    const uintptr_t first = operand & ~(uintptr_t)(GROUP_BYTES - 1);

    return first < at + bytes && at < first + (uintptr_t)rows * 128;
}

bool wgmma_reads(uintptr_t at, size_t bytes)
{
    const std::vector<warp_products> &warps = blocks[running_block()].warps;

    for (size_t w = 0; w < warps.size(); w++)
        for (const auto &group : warps[w].groups)
            for (const product &p : group)
                if (overlaps(p.a + w % 4 * ROWS * 128, ROWS, at, bytes) ||
                    overlaps(p.b, p.tiles * COLUMNS, at, bytes))
                    return true;
    return false;
}

static void check_operands(const product &p)
{
    check_operand(p.a, (int)(running_index / LANES % 4) * ROWS, ROWS);
    check_operand(p.b, 0, p.tiles * COLUMNS);
}

void wgmma_fence()
{
    unwatched books;

    if (running_index % LANES != 0)
        return;
    begin();
    my_warp().is_fenced = true;
}

/* Takes the sums out of the lanes' registers. */
static held_sums &hold(void *const parts[LANES])
{
    const wgmma_part *first = static_cast<const wgmma_part *>(parts[0]);
    const auto known = my_warp().held.find(first->d);

    if (known != my_warp().held.end())
        return known->second;
    if (!my_warp().is_fenced)
        fault("a wgmma adds to registers that ordinary instructions may have changed, and no "
              "wgmma.fence was called since");
    held_sums &sums = my_warp().held[first->d];
    for (int lane = 0; lane < LANES; lane++) {
        float *d = static_cast<const wgmma_part *>(parts[lane])->d;
        sums.at[lane] = d;
        sums.values.insert(sums.values.end(), d, d + first->tiles * 4);
        memset(d, 0xff, (size_t)first->tiles * 4 * sizeof *d); /* NaN */
    }
    sums.pending = 0;
    return sums;
}

void wgmma_issue(void *const parts[LANES])
{
    unwatched books;

    begin();
    for (int lane = 0; lane < LANES; lane++)
        if (!parts[lane])
            fault("a wgmma without lane %d", lane);
    const wgmma_part *part = static_cast<const wgmma_part *>(parts[0]);
    warp_products &warp = my_warp();
    auto &issued = mine().issued[running_index / LANES / 4];
    const std::pair<uintptr_t, uintptr_t> operands(part->a, part->b);
    if (warp.issued == issued.size())
        issued.push_back(operands);
    else if (issued[warp.issued] != operands)
        fault("its wgmma has other operands than those of its warpgroup's other warps");
    warp.issued++;
    const product p = {part->is_bf16, part->d, part->tiles, part->a, part->b};
    check_operands(p);
    hold(parts).pending++;
    warp.groups.back().push_back(p);
}

void wgmma_commit()
{
    unwatched books;

    if (running_index % LANES != 0)
        return;
    begin();
    my_warp().groups.emplace_back();
}

/* Whether all elements of these rows are zeros, and whether none is infinite or NaN. */
static bool are_zeros(const float (*rows)[STEP], int n)
{
    return std::all_of(rows[0], rows[n], [](float v) { return v == 0.0f; });
}

static bool are_finite(const float (*rows)[STEP], int n)
{
    return std::all_of(rows[0], rows[n], [](float v) { return fabsf(v) < INFINITY; });
}

/* A product's sums of eight columns, as they lie in the lanes. Small matrices fill little of a
 * block, and the zeros behind them add nothing. */
static void add_tile(held_sums &sums, const product &p, int tile, const float a[ROWS][STEP])
{
    float b[COLUMNS][STEP], d[ROWS][COLUMNS];

    for (int c = 0; c < COLUMNS; c++)
        read_row(b[c], p.is_bf16, p.b, tile * COLUMNS + c);
    if ((are_zeros(a, ROWS) && are_finite(b, COLUMNS)) ||
        (are_zeros(b, COLUMNS) && are_finite(a, ROWS)))
        return;
    for (int pass = 0; pass < 2; pass++) {
        for (int lane = 0; lane < LANES; lane++)
            for (int i = 0; i < 4; i++) {
                float &sum = sums.values[(size_t)((lane * p.tiles + tile) * 4 + i)];
                float &element = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
                (pass == 0 ? element : sum) = pass == 0 ? sum : element;
            }
        if (pass == 0)
            tensor_core(d, a, b);
        if (pass == 0 && broken == CUDASIM_WGMMA_OTHER && tile == 0)
            for (int row = 0; row < ROWS; row++)
                d[row][2] = nextafterf(d[row][2], INFINITY);
    }
}

static void compute(const product &p)
{
    const int first_row = (int)(running_index / LANES % 4) * ROWS;
    held_sums &sums = my_warp().held[p.sums];
    const int64_t begun = device_clock;
    float a[ROWS][STEP];

    calls++;
    check_operands(p);
    for (int r = 0; r < ROWS; r++)
        read_row(a[r], p.is_bf16, p.a, first_row + r);
    for (int tile = 0; tile < p.tiles; tile++)
        add_tile(sums, p, tile, a);
    device_clock = begun + (broken == CUDASIM_WGMMA_SLOW ? broken_argument : 0);
    if (--sums.pending > 0)
        return;
    for (int lane = 0; lane < LANES; lane++)
        memcpy(sums.at[lane], &sums.values[(size_t)(lane * p.tiles * 4)],
               (size_t)p.tiles * 4 * sizeof(float));
    my_warp().held.erase(p.sums);
    my_warp().is_fenced = false;
}

void wgmma_wait(unsigned left)
{
    unwatched books;

    begin();
    for (auto &groups = my_warp().groups; groups.size() > left + 1; groups.pop_front())
        for (const product &p : groups.front())
            compute(p);
}

} // namespace cudasim

extern "C" {

void cudasim_break_wgmma(enum cudasim_wgmma_fault what, int64_t argument)
{
    CUDASIM_LOCK;
    cudasim::broken = what;
    cudasim::broken_argument = argument;
}

int64_t cudasim_wgmma_calls(void)
{
    CUDASIM_LOCK;
    return cudasim::calls;
}
}
