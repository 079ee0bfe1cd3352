/*
 * mbarriers and bulk copies, by the PTX ISA ("Parallel Synchronization and Communication
 * Instructions: mbarrier", "Data Movement and Conversion Instructions: cp.async.bulk").
 *
 *   phase    a barrier counts the phases that have ended. One ends when `pending` arrivals have
 *            come and the bytes announced less the bytes come are zero ("Phase Completion of the
 *            mbarrier object"). Bytes may come before they are announced
 *   parity   a wait for parity p goes on when the phase that runs has not that parity
 *
 * A bulk copy's bytes come some turns after its issue, and only while all threads of the block
 * wait, so that whoever does not wait for them finds none. The order of copies is random. The
 * source is read when the bytes come. Bytes that never come, and such as nobody announced, leave a
 * barrier that nobody gets past, and that is reported as a grid that hangs. A copy by a tensor
 * map is one of several rows.
 */
#include "sim.h"

#include <stdio.h>
#include <string.h>

#include <vector>

namespace cudasim
{

static const int64_t MOST_BYTES = (1 << 20) - 1; /* "tx-count of mbarrier object", its range */
static const uint32_t MOST_ARRIVALS = (1 << 20) - 1;
static const unsigned MOST_TURNS = 3;

struct mbarrier {
    uintptr_t at;
    uint32_t arrivals, pending;
    int64_t bytes; /* announced less come */
    uint32_t ended;
    moment made;
    warps_known known;
};

struct copy_on_its_way {
    uintptr_t to;
    copied_box box;
    size_t mbarrier;
    unsigned turns; /* until it comes */
};

struct block_state {
    std::vector<mbarrier> mbarriers;
    std::vector<copy_on_its_way> copies;
};

static std::vector<block_state> blocks;
static uint64_t random_state = 1;

static unsigned below(unsigned n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

static block_state &mine() { return blocks[running_block()]; }

void async_grid_begin(size_t resident) { blocks.resize(resident); }

void async_block_begin()
{
    mine().mbarriers.clear();
    mine().copies.clear();
}

void async_block_end()
{
    if (!mine().copies.empty())
        fault("the block ends while a bulk copy to %#lx is on its way",
              (unsigned long)mine().copies[0].to);
}

bool async_is_busy()
{
    for (const block_state &b : blocks)
        if (!b.copies.empty())
            return true;
    return false;
}

/* The latest barrier made at this address. Faults if the thread may not use it yet. */
static mbarrier &find(uintptr_t at)
{
    std::vector<mbarrier> &all = mine().mbarriers;
    size_t i = all.size();

    note_atomic((const void *)at, 8);
    while (i > 0 && all[i - 1].at != at)
        i--;
    if (i == 0)
        fault("there is no mbarrier at %#lx", (unsigned long)at);
    if (!check_has_happened(all[i - 1].made))
        fault(
            "it uses the mbarrier at %#lx, made by thread %u of the block with no barrier between",
            (unsigned long)at, all[i - 1].made.thread);
    return all[i - 1];
}

void mbarrier_init(uintptr_t at, uint32_t arrivals)
{
    unwatched books;

    if (at % 8)
        misaligned((const void *)at, 8);
    if (arrivals == 0 || arrivals > MOST_ARRIVALS)
        fault("an mbarrier of %u arrivals", arrivals);
    if (mine().mbarriers.size() == MBARRIERS)
        fault("more than %d mbarriers in a block", MBARRIERS);
    mine().mbarriers.push_back(mbarrier{at, arrivals, arrivals, 0, 0, check_now(), {}});
}

static void end_phase_if_complete(mbarrier &b)
{
    if (b.pending > 0 || b.bytes != 0)
        return;
    b.ended++;
    b.pending = b.arrivals;
    moves++;
}

void mbarrier_arrive(uintptr_t at, uint32_t expected_bytes)
{
    mbarrier &b = find(at);

    if (b.pending == 0)
        fault("more than the %u arrivals of the mbarrier at %#lx", b.arrivals, (unsigned long)at);
    b.bytes += expected_bytes;
    if (b.bytes > MOST_BYTES)
        fault("more than %lld bytes at the mbarrier at %#lx", (long long)MOST_BYTES,
              (unsigned long)at);
    check_arrive(&b.known);
    b.pending--;
    end_phase_if_complete(b);
}

bool mbarrier_test(uintptr_t at, uint32_t parity)
{
    mbarrier &b = find(at);

    if (b.ended % 2 == (parity & 1))
        return false;
    check_waited(b.known, (unsigned)(&b - mine().mbarriers.data()), b.ended);
    count_wait();
    return true;
}

/* Faults where no bulk copy can be made. */
static void check_sizes(uintptr_t to, const copied_box &box)
{
    if (compute_major() < 9)
        fault("a bulk copy needs compute capability 9.0");
    if (to % 16 || (uintptr_t)box.from % 16 || box.row_bytes % 16 || (box.is_swizzled && to % 1024))
        fault("a bulk copy of %u bytes from %p to %#lx: all are multiples of 16, and where rows "
              "are swizzled, the last of 1024",
              box.row_bytes, box.from, (unsigned long)to);
    for (uint32_t r = 0; r < box.all_rows(); r++)
        if (box.row(r) && (!is_device_range(box.row(r), box.bytes_there) ||
                           device_of(box.row(r)) != running_device))
            fault("a bulk copy of %u bytes from %p, outside every allocation of the device",
                  box.bytes_there, box.row(r));
}

static void copy(uintptr_t to, const copied_box &box, uintptr_t at)
{
    check_sizes(to, box);
    mbarrier &b = find(at);
    const unsigned number = (unsigned)(&b - mine().mbarriers.data());
    unwatched books;

    if (!check_is_fenced(b.made))
        fault("a bulk copy completes on the mbarrier at %#lx, and no async_fence was called since "
              "it was made",
              (unsigned long)at);
    if (wgmma_reads(to, (size_t)box.all_rows() * box.row_bytes))
        fault("a bulk copy to %#lx, which a wgmma reads that may not have ended",
              (unsigned long)to);
    for (uint32_t r = 0; r < box.all_rows(); r++)
        check_bulk_copy((const void *)(to + r * box.row_bytes), box.row(r), box.row_bytes, number,
                        b.ended);
    mine().copies.push_back(copy_on_its_way{to, box, number, below(MOST_TURNS + 1)});
    for (uint32_t r = 0; r < box.all_rows(); r++)
        if (box.row(r))
            count_copy(box.row(r), box.bytes_there);
}

static copied_box one_row(const void *from, uint32_t bytes)
{
    return copied_box{static_cast<const char *>(from), bytes, 1, 1, bytes, 1, 1, 0, 0, false};
}

void bulk_copy(uintptr_t to, const void *from, uint32_t bytes, uintptr_t at)
{
    copy(to, one_row(from, bytes), at);
}

void tensor_copy(uintptr_t to, const CUtensorMap &map, const int from[3], uintptr_t at)
{
    copy(to, box_of(map, from), at);
}

/* Writes row r of a box. */
static void write_row(const copied_box &box, uint32_t r, uintptr_t to)
{
    const uint32_t there = box.row(r) ? box.bytes_there : 0;
    const uintptr_t swizzle = box.is_swizzled ? (to >> 7 & 7) << 4 : 0;

    for (uint32_t at = 0; at < box.row_bytes; at += 16) {
        char chunk[16] = {0};
        if (at < there)
            memcpy(chunk, box.row(r) + at, there - at < 16 ? there - at : 16);
        memcpy((void *)((to + at) ^ swizzle), chunk, 16);
    }
}

static void arrive(const copy_on_its_way &copy)
{
    mbarrier &b = mine().mbarriers[copy.mbarrier];

    for (uint32_t r = 0; r < copy.box.all_rows(); r++)
        write_row(copy.box, r, copy.to + r * copy.box.row_bytes);
    b.bytes -= (int64_t)copy.box.row_bytes * copy.box.all_rows();
    moves++;
    end_phase_if_complete(b);
}

void async_turn()
{
    std::vector<copy_on_its_way> &copies = mine().copies;

    for (size_t i = 0; i < copies.size();) {
        if (copies[i].turns-- > 0) {
            i++;
            continue;
        }
        arrive(copies[i]);
        copies.erase(copies.begin() + (long)i);
    }
}

/* One that lacks bytes only is the cause, if there is one, and the others wait for its sake. */
const char *async_describe(const void *at)
{
    static char text[200];
    const mbarrier *cause = NULL;

    for (const mbarrier &b : mine().mbarriers)
        if ((b.at == (uintptr_t)at && !cause) || (b.pending == 0 && b.bytes != 0))
            cause = &b;
    snprintf(text, sizeof text,
             "the mbarrier at %#lx waits for %u arrivals and %lld bytes that never come",
             (unsigned long)cause->at, cause->pending, (long long)cause->bytes);
    return text;
}

} // namespace cudasim
