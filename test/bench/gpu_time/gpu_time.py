"""Times of rounds on a GPU, by a model: what gpu_time.c has counted, and a few constants.

    gpu_time.py DIR [--measured FILE] [--compare DIR] [--parts] [--check]

DIR has the traces of gpu_time.sh. Every time printed is an estimate for an H200 until E7 of
test/cuda/run_on_gpu.sh has run; --measured prints the lines of E7 beside the model's. --compare
prints the same tables of another state of the code, --parts where the time of a pass goes. --check
fails if the weights that mma.sync's products were counted to read are not those of the models.

A launch takes

    gap + rounds of waiting + the longest of five streams

    gap       from the end of the launch before to the first instructions of this one, and the drain
    rounds    of loads that threads wait for (test/cudasim/counts.h): each one latency. Kernels that
              copy asynchronously wait for their rounds first, and then for the first copy; in the
              others rounds are part of the streams, and the longer counts. Early rounds, before a
              dependent launch waits for the one before, and what L2 gives to them, count beyond the
              gap only
    memory    bytes of weights and cache, at the device's bandwidth, or at what the copies in flight
              allow where those are less than bandwidth times latency (Little's law)
    L2        all sectors that blocks ask for, and what a multiprocessor's port takes of copies
    shared    what copies write into a multiprocessor's shared memory, and ldmatrix and wgmma read
    chain     a block's barriers, and its mma's that wait for each other, one block after the other
    issue     all mma's, wgmma's and loads, at the rate at which a multiprocessor takes them

Where a product was counted by wgmma, too, the faster of the two counts, as the library times both.

A launch with barriers over the grid makes all steps of a draft. It copies weights ahead while it
waits, so its rounds, barriers and chain are one stream, and memory is another. As it copies ahead
less than a layer, it is taken apart into layers and the rest, by the difference of the two traces.

A pass of a model with n layers takes T(1) + (n - 1) (T(2) - T(1)): traces are of one layer and two.
"""
import argparse
import glob
import json
import os
import re
import sys

# The device: NVIDIA H200 SXM. The clock is what it keeps under load; the data sheet has 4.8 TB/s.
SMS, CLOCK, PEAK = 132, 1.9e9, 4.8e12
# The best that a product of one row reached on an H200: 4.26 TB/s (TileOPs, pull request 243).
BANDWIDTH = 4.25e12
# Reads that hit L2: 28 of the 64 bytes that a multiprocessor's port takes in a clock. It is
# assumed; products of more than 64 rows depend on it. An H100 has shown 21 (4.9 TB/s, by 128 blocks
# of 192 x 192, while the memory was the limit).
L2_BANDWIDTH, L2_BYTES = 28 * SMS * CLOCK, 50e6
# The port itself.
PORT = 64 * CLOCK
# Shared memory, which has 32 banks of 4 bytes.
SHARED_BANDWIDTH = 128 * CLOCK
# A hit in L2 takes about 263 clocks, memory about 480 ("Benchmarking and Dissecting the Nvidia
# Hopper GPU Architecture", arXiv:2402.13499); 40 are added to make an address and use the value,
# and to memory the time of the TLB. Under full load memory answers after about 0.8 us
# (gemm_mma.cu).
L2_LATENCY, LOADED_LATENCY, IDLE_LATENCY = 303 / CLOCK, 0.8e-6, 0.55e-6
# Between dependent kernels of a graph: 1.3 us on an H100 (Hazy Research, "Look Ma, No Bubbles!").
# Programmatic dependent launch leaves the drain of the last blocks, about 0.5 us [reasoning].
GAP, DEPENDENT_GAP = 1.3e-6, 0.5e-6
# What a launch takes besides: its blocks begin, and its last stores drain. This one is fitted, to
# an estimate of verification and draft steps that was made by hand from SASS before the model.
EMPTY = 0.7e-6
# A grid barrier is an atomic to L2 and a load that sees it: three latencies of L2 [reasoning].
GRID_BARRIER = 3 * L2_LATENCY
# mma.sync m16n8k16: 33 clocks until the next one may use the sum (gemm_mma.cu); a multiprocessor's
# quarter takes one in 4 clocks at the data sheet's peak, of which mma.sync reaches 62 %
# (arXiv:2402.13499).
MMA_LATENCY, MMA_ISSUE = 33 / CLOCK, 6.5 / CLOCK
# wgmma by the same tiles: 5 clocks, 80 % of the peak, as the best products known of an H100 (790
# TFLOP/s).
WGMMA_ISSUE = 5 / CLOCK
# From a barrier to the first mma: SASS of the narrow product has 35 instructions there, ldmatrix
# among them, and a stage takes 240 to 260 clocks, four mma included.
STAGE = 115 / CLOCK
# Of a loop that loads: instructions for each load, of which a multiprocessor issues 4 a clock, and
# how many loads are in flight (nvcc unrolls such loops by 4). Loops of a constant count over a row
# in registers are unrolled whole; the counts cannot tell them from others, so they are named here.
# Attention has all of the heads that a lane makes together in flight: by the source 72 loads with
# 16 queries and 104 with 32, where head_dim is 128 and heads are normed; in SASS of sm_90a they
# stand before the first use. Or it has 32 of its partial results, or 4 maxima and sums, in flight;
# those are rounds of their own in the counts.
PER_LOAD, UNROLLED = 12, 4
UNROLLED_WHOLE = {"norm_in_registers": 48, "rope_kv": 16, "attend_kernel": 72}
SHARED, RESERVED, THREADS = 228 << 10, 1 << 10, 2048
# Where a graph of one round begins and ends, and the host's part.
ROUND = 10e-6

OTHER, TARGET, DRAFT, TARGET_CACHE, DRAFT_CACHE = range(5)
READ, WRITTEN, COPIED, BLOCK_SECTORS, SECTORS_READ, SECTORS_WRITTEN, EARLY_SECTORS = range(7)
SECTOR = 32


def sum_of(launch, what, labels=range(5)):
    return sum(launch["of"][label][what] for label in labels)


def name_of(launch):
    return re.sub(r"[^a-z_].*", "", launch["kernel"].lstrip("("))


def memory_bytes(launch):
    """Bytes that come from memory or go there. Activations stay in L2 unless they are large. A
    kernel for several steps copies all weights and reads all caches once a step, and L2 does not
    hold them until the next; what it reads otherwise, as norms' weights, all blocks read together.
    In a kernel for a single operation, blocks that read the same do so together."""
    stored = range(TARGET, DRAFT_CACHE + 1)
    if launch["grid_barriers"]:
        caches = TARGET_CACHE, DRAFT_CACHE
        return (sum_of(launch, COPIED, (TARGET, DRAFT)) + sum_of(launch, READ, caches) +
                sum_of(launch, WRITTEN, stored))
    n = SECTOR * (sum_of(launch, SECTORS_READ, stored) + sum_of(launch, SECTORS_WRITTEN, stored))
    live = SECTOR * (launch["of"][OTHER][SECTORS_READ] + launch["of"][OTHER][SECTORS_WRITTEN])
    return n + (live if live > L2_BYTES / 2 else 0)


def launch_time(launch, free=False):
    """Seconds. free: a product that only memory limits, as no kernel can be faster."""
    threads = launch["block"][0] * launch["block"][1] * launch["block"][2]
    busy = max(launch["busy"], 1)
    resident = min(SHARED // (launch["shared"] + RESERVED), THREADS // threads, 32)
    running = min(busy, SMS * resident)
    waves = max(1.0, busy / (SMS * resident))
    blocks = max(1.0, busy / SMS) if busy > SMS * resident else -(-busy // SMS)  # of one SM
    warps = (threads + 31) // 32
    copied, read = sum_of(launch, COPIED), sum_of(launch, READ)
    of_memory = memory_bytes(launch)

    gap = EMPTY + (DEPENDENT_GAP if launch["is_dependent"] else GAP)
    stored_loads = sum_of(launch, READ, range(1, 5)) - sum_of(launch, COPIED, range(1, 5))
    latency = IDLE_LATENCY if stored_loads > (read - copied) / 2 else L2_LATENCY
    in_flight = UNROLLED_WHOLE.get(name_of(launch), UNROLLED)
    rounds = waves * max(launch["rounds"], launch["loads"] / in_flight) * latency
    early = SECTOR * sum_of(launch, EARLY_SECTORS) / L2_BANDWIDTH
    rounds += max(0.0, max(launch["early_rounds"] * latency, early) - DEPENDENT_GAP)
    bandwidth = BANDWIDTH
    if copied and not free:
        stored = sum_of(launch, COPIED, range(1, 5)) / copied
        in_flight = running * launch["shared"] * 0.875 * stored
        bandwidth = min(bandwidth, max(in_flight, 1) / LOADED_LATENCY)
    streams = [of_memory / bandwidth]
    if not free:
        streams.append(SECTOR * sum_of(launch, BLOCK_SECTORS) / L2_BANDWIDTH - early)
        streams.append(blocks * copied / busy / PORT)
        computing = warps // 4 * 4 if launch["wgmma"] else warps  # without a warp that copies
        streams.append(blocks * (copied / busy + computing * launch["matrix_bytes"]) /
                       SHARED_BANDWIDTH)
        chain = launch["barriers"] * STAGE + launch["mma_steps"] * MMA_LATENCY
        streams.append(waves * chain)
        streams.append(blocks * warps * (launch["mma"] * MMA_ISSUE +
                                         launch["loads"] * PER_LOAD / CLOCK) / 4)
        streams.append(blocks * computing * launch["wgmma"] * WGMMA_ISSUE / 4)
    if copied:
        fill = 0.0 if launch["is_dependent"] else IDLE_LATENCY  # weights come before the wait ends
        return gap + rounds + fill + max(streams)
    return gap + max([rounds] + streams)


def less(launch, other):
    """What a launch counts more than another."""
    counted = ("rounds", "stored_rounds", "loads", "barriers", "grid_barriers", "mma", "mma_steps",
               "matrix_bytes")
    counts = {c: launch[c] - other[c] for c in counted}
    of = [[x - y for x, y in zip(a, b)] for a, b in zip(launch["of"], other["of"])]
    return dict(launch, of=of, **counts)


def part_of_steps_time(launch):
    """Seconds of layers, or of the rest, of a launch with barriers over the grid."""
    warps = launch["block"][0] / 32
    waits = launch["rounds"] * L2_LATENCY
    waits += launch["stored_rounds"] * (LOADED_LATENCY - L2_LATENCY)
    waits += launch["grid_barriers"] * GRID_BARRIER
    waits += launch["barriers"] * STAGE + launch["mma_steps"] * MMA_LATENCY
    l2 = SECTOR * sum_of(launch, BLOCK_SECTORS) / L2_BANDWIDTH
    issue = warps * (launch["mma"] * MMA_ISSUE + launch["loads"] * PER_LOAD / CLOCK) / 4
    shared = (sum_of(launch, COPIED) / launch["busy"] +
              warps * launch["matrix_bytes"]) / SHARED_BANDWIDTH
    return max(waits, memory_bytes(launch) / BANDWIDTH, l2, issue, shared)


def steps_time(one, two, layers):
    """Seconds of a launch that makes steps of a draft, and of its parts."""
    layer = less(two, one)
    return {"begin": GAP + EMPTY + IDLE_LATENCY, "layers": layers * part_of_steps_time(layer),
            "rest": part_of_steps_time(less(one, layer))}


# ---------------------------------------------------------------- traces

def part_of(launch, models):
    """Its name in E7, by the weight that it reads, or by the kernel."""
    name = name_of(launch)
    for label, s in ((TARGET, models[0]), (DRAFT, models[1])):
        weights = launch["of"][label][SECTORS_READ] * SECTOR
        if weights < 100000 or "embed" in name:
            continue
        sizes = {p: 2 * a * b for p, (a, b) in products(s).items()}
        best = min(sizes, key=lambda p: abs(sizes[p] - weights))
        if 0.8 < weights / sizes[best] < 1.25:
            return best
    for part, names in (("norm", "norm"), ("attend", "attend|combine"), ("rope", "rope"),
                        ("gate", "gate_rows"), ("select", "select")):
        if re.match(names, name):
            return part
    return name


def products(s):
    return {"qkv": ((s["heads"] + 2 * s["kv_heads"]) * s["head_dim"], s["hidden"]),
            "o": (s["hidden"], s["heads"] * s["head_dim"]),
            "gate_up": (2 * s["inter"], s["hidden"]), "down": (s["hidden"], s["inter"]),
            "head": (s["vocab"], s["hidden"])}


def passes_of(launches):
    """Cuts a round: a pass begins with its embedding, or is one kernel with barriers over the grid,
    which may make several steps."""
    passes = []
    for launch in launches:
        if "embed" in launch["kernel"] or launch["grid_barriers"] or not passes:
            passes.append([])
        passes[-1].append(launch)
    return passes


def is_drafts(launches):
    return sum(l["of"][DRAFT][READ] for l in launches) > \
        sum(l["of"][TARGET][READ] for l in launches)


def read_trace(path):
    """(models, {(what, batch): launches}, {(what, batch): header})"""
    models, counted, headers = [], {}, {}
    with open(path) as f:
        for line in map(json.loads, f):
            if "model" in line:
                models.append(line)
            elif "counted" in line:
                key = line["counted"], line["batch"]
                headers[key] = line
                counted[key] = []
            else:
                counted[key].append(line)
    return models, counted, headers


def take_faster(counted, by_wgmma):
    """Exchanges each launch for that of wgmma where it is faster."""
    for key, launches in by_wgmma.items():
        for i, launch in enumerate(launches):
            if launch["wgmma"] and launch_time(launch) < launch_time(counted[key][i]):
                counted[key][i] = launch


def read_traces(folder, with_wgmma=True):
    """{pair: (models, {(what, batch): (launches with one layer, with two)}, header)}"""
    pairs = {}
    for path in sorted(glob.glob(os.path.join(folder, "*-1.json"))):
        traces = []
        for name in path, path[:-7] + "-2.json":
            traces.append(read_trace(name))
            wgmma = name[:-5] + "-wgmma.json"
            if with_wgmma and os.path.exists(wgmma):
                take_faster(traces[-1][1], read_trace(wgmma)[1])
        (models, one, headers), (_, two, _) = traces
        pairs[os.path.basename(path)[:-7]] = models, {k: (one[k], two[k]) for k in one}, headers
    return pairs


def extrapolate(one, two, layers):
    return one + (layers - 1) * (two - one)


def pass_time(one, two, layers, models, free=False):
    """Seconds of a pass, and of each part of it."""
    if one[0]["grid_barriers"]:
        parts = steps_time(one[0], two[0], layers)
        return sum(parts.values()), parts
    parts = {}
    for which, launches in enumerate((one, two)):
        for launch in launches:
            part = part_of(launch, models)
            is_product = part in products(models[0])
            times = parts.setdefault(part, [0.0, 0.0])
            times[which] += launch_time(launch, free and is_product)
    parts = {p: extrapolate(a, b, layers) for p, (a, b) in parts.items()}
    return sum(parts.values()), parts


# ---------------------------------------------------------------- tables

def roofline(s, rows, context):
    """Seconds that a pass over `rows` sequences must take: every weight and each cache once."""
    a_layer = [p for p in products(s) if p != "head"]
    weights = sum(s["layers"] * x * y for x, y in (products(s)[p] for p in a_layer))
    weights += s["vocab"] * s["hidden"]
    cache = 2 * s["layers"] * s["kv_heads"] * s["head_dim"] * context
    return 2 * (weights + rows * cache) / PEAK


def repeated(launch, n):
    """A launch of n times as many blocks."""
    copy = dict(launch, busy=launch["busy"] * n)
    copy["of"] = [[n * x for x in of] for of in launch["of"]]
    return copy


def tokens_of(accept, k):
    return (1 - accept ** (k + 1)) / (1 - accept)


def measure(pair, batch):
    """All times of a batch by their names, in seconds."""
    models, counted, headers = pair
    target, draft = models
    head = headers["round", batch]
    k, context = head["k"], head["context"]
    cut = [passes_of(l) for l in counted["round", batch]]
    drafts = [i for i, p in enumerate(cut[0]) if is_drafts(p)]
    verify = [i for i in range(len(cut[0])) if i not in drafts]
    steps = [pass_time(cut[0][i], cut[1][i], draft["layers"], models) for i in drafts]
    checked = [pass_time(cut[0][i], cut[1][i], target["layers"], models) for i in verify]
    free = [pass_time(cut[0][i], cut[1][i], target["layers"], models, True)[0] for i in verify]
    t = {"k": k, "draft": min([s[0] for s in steps] + [sum(s[0] for s in steps) / k]),
         "draft_parts": min(steps, key=lambda s: s[0])[1] if steps else {},
         "drafts": sum(s[0] for s in steps), "launches": sum(len(p) for p in cut[0]),
         "draft_launches": extrapolate(len(cut[0][drafts[-1]]), len(cut[1][drafts[-1]]),
                                       draft["layers"]) if drafts else 0,
         "verify_launches": extrapolate(len(cut[0][verify[-1]]), len(cut[1][verify[-1]]),
                                        target["layers"]),
         "verify": sum(c[0] for c in checked), "verify_parts": checked[-1][1],
         "free": sum(free), "draft_roof": roofline(draft, batch, context),
         "roof": roofline(target, batch, context)}
    plain = [passes_of(l)[0] for l in counted["plain", batch]]
    t["plain"], t["plain_parts"] = pass_time(*plain, target["layers"], models)
    move = repeated(counted["move", batch][0][0], target["layers"])
    t["move"] = launch_time(move)
    t["move_share"] = memory_bytes(move) / BANDWIDTH / t["move"]
    t["round"] = t["drafts"] + t["verify"] + ROUND
    return t


def print_pair(name, pair, parts):
    models, counted, _ = pair
    print(f"\n{models[0]['model']} and {models[1]['model']}: milliseconds (estimates)")
    print("| B | verify | limit | share | launches | draft step | limit | share | launches | plain "
          "| round | x plain at 0.6 / 0.7 / 0.8 | share at 0.7 | free products | move |")
    print("|---" * 15 + "|")
    for batch in sorted({b for what, b in counted if what == "round"}):
        t = measure(pair, batch)
        plain = (t["plain"] + ROUND)
        gains = " / ".join(f"{tokens_of(a, t['k']) * plain / t['round']:.2f}"
                           for a in (0.6, 0.7, 0.8))
        limit = t["k"] * t["draft_roof"] + t["roof"]
        move = f"{t['move'] * 1e3:.2f} ({100 * t['move_share']:.0f} %)"
        print(f"| {batch} | {t['verify'] * 1e3:.2f} | {t['roof'] * 1e3:.2f} "
              f"| {100 * t['roof'] / t['verify']:.0f} % | {t['verify_launches']} "
              f"| {t['draft'] * 1e3:.2f} | {t['draft_roof'] * 1e3:.2f} "
              f"| {100 * t['draft_roof'] / t['draft']:.0f} % | {t['draft_launches']} "
              f"| {t['plain'] * 1e3:.2f} | {t['round'] * 1e3:.2f} | {gains} "
              f"| {100 * limit / t['round']:.0f} % "
              f"| {t['free'] * 1e3:.2f} (+{100 * (t['verify'] / t['free'] - 1):.0f} %) | {move} |")
        if parts:
            for what in ("verify_parts", "draft_parts"):
                print(f"    B={batch} {what}: " + ", ".join(
                    f"{p} {1e3 * s:.2f}" for p, s in sorted(t[what].items(), key=lambda x: -x[1])))


def print_measured(path, pairs):
    """Lines of E7 beside the model: microseconds of one launch of each part. A product is there by
    mma.sync and by wgmma, and in the model by that which is faster."""
    wanted = re.compile(r"E7 (\S+) (.+?): us(.*)")
    for line in open(path):
        found = wanted.search(line)
        part = re.sub(",? (gated|by wgmma)", "", found.group(2)) if found else ""
        by_wgmma = bool(found) and "by wgmma" in found.group(2)
        for models, counted, _ in pairs.values() if found else ():
            if found.group(1) != models[0]["model"]:
                continue
            for m, us in re.findall(r"m=(\d+) ([0-9.]+)", found.group(3)):
                key = ("plain", int(m)) if int(m) % 6 else ("round", int(m) // 6)
                for launches in counted.get(key, ([], []))[1:]:
                    last = passes_of(launches)[-1]
                    times = [launch_time(l) for l in last if part_of(l, models) == part
                             and bool(l["wgmma"]) == by_wgmma]
                    calls = len(times)
                    if part == "attend":
                        calls = sum("attend" in l["kernel"] for l in last)
                    if calls:
                        model = 1e6 * sum(times) / calls
                        print(f"{found.group(1)} {found.group(2)} m={m}: model {model:.1f}, "
                              f"measured {us}, {float(us) / model:.2f} times")


def check(pairs):
    """Ends the program unless each product's weights were counted with their size."""
    for models, counted, _ in pairs.values():
        sizes = {p: 2 * a * b * (1 if p == "head" else models[0]["layers"])
                 for p, (a, b) in products(models[0]).items()}
        for (what, batch), traces in counted.items():
            read = {p: [0, 0] for p in sizes}
            for which, launches in enumerate(traces):
                for launch in launches:
                    part = part_of(launch, models)
                    if part in read:
                        read[part][which] += launch["of"][TARGET][SECTORS_READ] * SECTOR
            for p in sizes if what != "move" else ():
                got = extrapolate(*read[p], models[0]["layers"])
                if got != sizes[p]:
                    sys.exit(f"{what} of batch {batch}: {got} bytes of {p}, not {sizes[p]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--measured")
    parser.add_argument("--compare")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    for folder in [args.compare, args.folder] if args.compare else [args.folder]:
        pairs = read_traces(folder)
        if args.check:
            check(read_traces(folder, with_wgmma=False))
        print(f"{folder}: estimates of a model for an H200; no GPU has run")
        for name, pair in pairs.items():
            print_pair(name, pair, args.parts)
    if args.measured:
        print_measured(args.measured, pairs)


if __name__ == "__main__":
    main()
