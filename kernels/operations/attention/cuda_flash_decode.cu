// Few queries, many keys, in one launch: keys split over warps, blocks of a cluster and clusters, which join in that order.
// @kernel("attention", dtypes=("float16", "bfloat16"), needs=cuda(min_capability=9.0),
//         limits={"head_dim": (64, 128), "seq_len": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)},
//         space={"warps": (4, 8), "tile": (16, 32), "stages": (1, 2, 3, 4, 6), "cluster": (1, 2, 4, 8),
//                "parts": (1, 2, 4, 8, 16, 32)})
// @launch(grid=(CLUSTER * SPLITS * TILES, kv_heads, batch), block=32 * RINGS * TEAM,
//         shared=max(4 * RINGS * DEPTH * TILE * head_dim, 64 * RINGS * TEAM * (head_dim + 8) + 128 * (RINGS + 1) * TEAM),
//         scratch=128 * head_dim * TEAM * TILES * SPLITS * batch * kv_heads if SPLITS > 1 else 0,
//         defines={"ROWS": heads // kv_heads * seq_len, "TEAM": min(8, next_power_of_2(ceil_div(ROWS, 16))),
//                  "TILES": ceil_div(ROWS, 16 * TEAM),
//                  "WARPS": 4, "RINGS": max(WARPS, TEAM) // TEAM, "TILE": 16 if RINGS * head_dim > 256 else 32,
//                  "BLOCKS": (2 if RINGS * TEAM == 4 else 1) * sms // (batch * kv_heads * TILES),
//                  "STAGES": min(2 if 8 <= BLOCKS < 16 and keys < 8192 else 6, 24576 // (RINGS * TILE * head_dim)),
//                  "DEPTH": max(1, min(STAGES, 53248 // (RINGS * TILE * head_dim))),
//                  "CLUSTER": 1 if BLOCKS < 2 else 2 if BLOCKS < 4 or 8 <= BLOCKS < 64 and keys >= 8192
//                             else 4 if BLOCKS < 8 else 8,
//                  "PARTS": 1 if keys < (4096 if BLOCKS >= 64 else 8192)
//                           else max(1, min(16, BLOCKS // CLUSTER, max(8, keys // 8192))),
//                  "SPLITS": max(1, min(PARTS, 4096 // (CLUSTER * TILES * batch * kv_heads)))})
// @call("decode<T, head_dim, causal and seq_len > 1>", q, k, v, out, scratch, kv_len if kv_len else seq_len, seq_len,
//       scale * 1.4426950408889634)

// The ROWS queries of all heads that share a KV head lie in tiles of 16 TEAM rows; each warp of a team has 16 of them. A team
// streams every RINGS-th TILE keys of its block through a ring of DEPTH places in shared memory, and waits for no other team.
// Rows are cut in chunks of 16 bytes; chunk c of row r lies at c ^ (r % 8), so that eight rows of a column are in other banks.
// Then the sums of all teams are added in a fixed order, so results repeat: of a block in its shared memory, of a cluster in
// that of its blocks, where each adds a share of the numbers. If a tile has SPLITS clusters, they leave their sums in scratch
// memory, and the last one adds them.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// --- instructions ---

__device__ void copy_async(void* to, const void* from, bool inside) {  // 16 bytes; zeros where they are outside
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ void commit_copies() { asm volatile("cp.async.commit_group;"); }

template <int COUNT>
__device__ void wait_for_all_but() {  // the last COUNT groups of copies
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

// Four matrices of 8 x 8: lane l names row l % 8 of matrix l / 8, and gets elements 2 (l % 4) and the next of row l / 4 of each.
#define LOADS(NAME, KIND)                                                                                                \
    __device__ void NAME(unsigned (&to)[4], const void* row) {                                                           \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" KIND ".shared.b16 {%0, %1, %2, %3}, [%4];"                          \
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                                                \
                     : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");                                         \
    }
LOADS(load_matrices, "")
LOADS(load_transposed, ".trans")

// sums (16 x 8) += a (16 x 16) b (16 x 8), and two numbers in one register
#define PRODUCTS(T, PAIR, KIND, MADE)                                                                                    \
    __device__ void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, T) {                    \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32 "                                      \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                   \
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                        \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                    \
    }                                                                                                                    \
    __device__ unsigned pair(float low, float high, T) {                                                                 \
        PAIR both = MADE(low, high);                                                                                     \
        return reinterpret_cast<unsigned&>(both);                                                                        \
    }
PRODUCTS(__half, __half2, "f16", __floats2half2_rn)
PRODUCTS(__nv_bfloat16, __nv_bfloat162, "bf16", __floats2bfloat162_rn)

__device__ float power_of_2(float x) {
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ float of_quad(float x, bool largest) {  // largest, or sum, over the four lanes that share rows
    for (int step = 1; step <= 2; step *= 2) {
        const float other = __shfl_xor_sync(~0u, x, step);
        x = largest ? fmaxf(x, other) : x + other;
    }
    return x;
}

template <int WIDTH>
__device__ void meet_team(int team) {  // WIDTH warps; barrier 0 is the block's
    if (WIDTH == 1) __syncwarp();
    else asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(32 * WIDTH) : "memory");
}

#if CLUSTER > 1 && __CUDA_ARCH__ >= 900  // a launch of clusters of one block is slower than one without
#define OF_CLUSTERS(...) asm volatile(__VA_ARGS__)
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#else  // one block, or it compiles and is never run
#define OF_CLUSTERS(...)
#define IN_CLUSTERS
#endif

// Every thread of a cluster arrives, then waits: what was written before is there for all.
__device__ void arrive_at_cluster() { OF_CLUSTERS("barrier.cluster.arrive;" ::: "memory"); }

__device__ void wait_for_cluster() { OF_CLUSTERS("barrier.cluster.wait;" ::: "memory"); }

__device__ float2 of_rank(const float2* here, int rank) {  // what lies at this place in a block of the cluster
    float2 found = *here;
    OF_CLUSTERS("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %2, %3;\nld.shared::cluster.v2.f32 {%0, %1}, [there];\n}"
                : "=f"(found.x), "=f"(found.y) : "r"((unsigned)__cvta_generic_to_shared(here)), "r"(rank) : "memory");
    return found;
}

// --- kernel ---

#define EACH(i, count) _Pragma("unroll") for (int i = 0; i < count; ++i)

constexpr int SIDE = 16, HEIGHT = SIDE * TEAM, THREADS = 32 * RINGS * TEAM;  // rows of a warp, rows of a tile
constexpr int CHUNK = 8, ENTRIES = 4096, COUNTS = 1024;                      // a chunk has 8 elements
constexpr float NOTHING = -1e30f;  // the largest score of no keys: finite, so that nothing is taken from minus infinity

// An entry for the blocks of one rank of all clusters of a tile: the launch, which is the address of its scratch memory, times
// COUNTS, plus the blocks that have ended. So launches on several streams do not mix. 0 while no launch has it.
__device__ unsigned long long ended[ENTRIES];

// Takes an entry for a launch, or sees that another of its blocks did. In the rare case that another launch has it, waits: the
// blocks of a launch get processors before those of later launches, so it ends. (Not if a later one has a higher priority.)
__device__ void claim(unsigned long long* entry, unsigned long long launch) {
    while (true)
        if (const auto had = atomicCAS(entry, 0ull, launch * COUNTS); had == 0 || had / COUNTS == launch) return;
}

// Where element (row, column) of a tile lies; the column is a multiple of CHUNK.
template <int D> __device__ int place(int row, int column) { return row * D + ((column / CHUNK) ^ (row % 8)) * CHUNK; }

// Starts to copy TILE rows of a head from row `first` on into shared memory; rows from `length` on are zeros.
template <int D, typename T>
__device__ void fetch(T* to, const T* head, int first, int length) {
#pragma unroll
    for (int i = threadIdx.x % (32 * TEAM); i < TILE * D / CHUNK; i += 32 * TEAM) {
        const int row = i / (D / CHUNK), column = i % (D / CHUNK) * CHUNK;
        const bool inside = first + row < length;
        copy_async(to + place<D>(row, column), head + (inside ? (long long)(first + row) * D + column : 0), inside);
    }
}

// Two neighbouring numbers of a row: sums of weights times values, in units of 2^largest; and the sum of weights.
struct Sums {
    float largest = NOTHING, total = 0, x = 0, y = 0;

    __device__ void add(float2 statistics, float2 two) {
        const float most = fmaxf(largest, statistics.x);
        const float kept = power_of_2(largest - most), share = power_of_2(statistics.x - most);
        *this = {most, total * kept + statistics.y * share, x * kept + two.x * share, y * kept + two.y * share};
    }
};

template <typename T, int D, bool CAUSAL>
__global__ void IN_CLUSTERS __launch_bounds__(THREADS, THREADS > 128 ? 1 : 2)
decode(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ out, float4* scratch,
       int length, int queries, float scale) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane % 4, team = warp / TEAM;
    const int rank = blockIdx.x % CLUSTER, tile = blockIdx.x / CLUSTER % TILES, split = blockIdx.x / CLUSTER / TILES;
    const long long head = (long long)blockIdx.z * gridDim.y + blockIdx.y, of_tile = head * TILES + tile;
    const T *of_k = k + head * length * D, *of_v = v + head * length * D;
    T* ring = reinterpret_cast<T*>(memory) + team * DEPTH * 2 * TILE * D;

    // Steps of TILE keys: a share for each block, of which every RINGS-th is this team's.
    const long long steps = (length + TILE - 1) / TILE, share = split * CLUSTER + rank;
    const int begin = steps * share / (CLUSTER * SPLITS) + team, end = steps * (share + 1) / (CLUSTER * SPLITS);
    auto bring = [&](T* to, int step) {
        if (step < end) fetch<D>(to, of_k, step * TILE, length), fetch<D>(to + TILE * D, of_v, step * TILE, length);
        commit_copies();
    };
    EACH(stage, DEPTH) bring(ring + stage * 2 * TILE * D, begin + stage * RINGS);

    const int own = tile * HEIGHT + warp % TEAM * SIDE + lane / 4;  // this lane's rows are this one and own + 8
    unsigned of_q[D / SIDE][4];
    EACH(depth, D / SIDE)
        EACH(i, 4) {
            const int row = own + i % 2 * 8, column = depth * SIDE + i / 2 * 8 + quad * 2;
            of_q[depth][i] = row < ROWS ? *reinterpret_cast<const unsigned*>(q + (head * ROWS + row) * D + column) : 0;
        }
    const int all_see = CAUSAL ? length - queries + 1 : length;  // keys that every row sees
    const int seen[2] = {all_see + (CAUSAL ? own % queries : 0), all_see + (CAUSAL ? (own + 8) % queries : 0)};

    const unsigned long long launch = reinterpret_cast<unsigned long long>(scratch);
    unsigned long long* entry = ended + (launch / 512 * 2654435761u + of_tile * CLUSTER + rank) % ENTRIES;
    if (SPLITS > 1 && threadIdx.x == 0) claim(entry, launch);

    float sums[D / 8][4] = {}, largest[2] = {NOTHING, NOTHING}, total[2] = {};
    int stage = 0;
    for (int step = begin; step < end; step += RINGS, stage = stage + 1 == DEPTH ? 0 : stage + 1) {
        T *of_keys = ring + stage * 2 * TILE * D, *of_values = of_keys + TILE * D;
        wait_for_all_but<DEPTH - 1>();
        meet_team<TEAM>(team);

        float scores[TILE / 8][4] = {};
        EACH(depth, D / SIDE)
            EACH(n, TILE / SIDE) {
                unsigned two[4];
                load_matrices(two, of_keys + place<D>(n * SIDE + lane % 8 + lane / 16 * 8, depth * SIDE + lane / 8 % 2 * 8));
                multiply(scores[2 * n], of_q[depth], two[0], two[1], T());
                multiply(scores[2 * n + 1], of_q[depth], two[2], two[3], T());
            }
        if ((step + 1) * TILE > all_see) {
            EACH(n, TILE / 8)
                EACH(i, 4)
                    if (step * TILE + n * 8 + quad * 2 + i % 2 >= seen[i / 2]) scores[n][i] = __int_as_float(0xff800000);
        }

        float kept[2];
        EACH(half, 2) {  // rows own and own + 8
            float now = NOTHING;
            EACH(n, TILE / 8) now = fmaxf(now, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
            now = fmaxf(largest[half], of_quad(now, true) * scale);
            kept[half] = power_of_2(largest[half] - now);
            largest[half] = now;
            total[half] *= kept[half];
            EACH(n, TILE / 8)
                EACH(i, 2) total[half] += scores[n][2 * half + i] = power_of_2(scores[n][2 * half + i] * scale - now);
        }
        if (__any_sync(~0u, kept[0] != 1 || kept[1] != 1)) {  // after the first steps, few have a new maximum
            EACH(n, D / 8)
                EACH(i, 4) sums[n][i] *= kept[i / 2];
        }
        EACH(n, TILE / SIDE) {
            unsigned weights[4];
            EACH(i, 4) weights[i] = pair(scores[2 * n + i / 2][i % 2 * 2], scores[2 * n + i / 2][i % 2 * 2 + 1], T());
            EACH(column, D / SIDE) {
                unsigned two[4];
                load_transposed(two, of_values + place<D>(n * SIDE + lane % 16, column * SIDE + lane / 16 * 8));
                multiply(sums[2 * column], weights, two[0], two[1], T());
                multiply(sums[2 * column + 1], weights, two[2], two[3], T());
            }
        }
        meet_team<TEAM>(team);  // nobody reads this place any more
        bring(of_keys, step + DEPTH * RINGS);
    }

    // Each warp leaves its sums where the rings were, and its largest scores and totals behind those of all warps.
    constexpr int WIDTH = D + 8, PER_ROW = D / 2;  // floats from row to row, for other banks; pairs of numbers
    float* parts = reinterpret_cast<float*>(memory);
    float2 *of_parts = reinterpret_cast<float2*>(parts + RINGS * HEIGHT * WIDTH), *of_block = of_parts + RINGS * HEIGHT;
    auto at = [&](int row, int column) { return reinterpret_cast<float2*>(parts + row * WIDTH + column); };
    __syncthreads();  // every ring has been read
    EACH(half, 2) {
        const int row = warp * SIDE + lane / 4 + half * 8;
        const float all = of_quad(total[half], false);
        if (own + half * 8 >= ROWS) continue;
        if (quad == 0) of_parts[row] = {largest[half], all};
        EACH(n, D / 8) *at(row, n * 8 + quad * 2) = {sums[n][2 * half], sums[n][2 * half + 1]};
    }
    __syncthreads();
    const int count = min(HEIGHT, ROWS - tile * HEIGHT) * PER_ROW;
    for (int i = threadIdx.x; i < count; i += THREADS) {  // the block's sums take the place of the first team's
        const int row = i / PER_ROW, column = i % PER_ROW * 2;
        Sums whole;
        EACH(other, RINGS) whole.add(of_parts[other * HEIGHT + row], *at(other * HEIGHT + row, column));
        *at(row, column) = {whole.x, whole.y};
        if (column == 0) of_block[row] = {whole.largest, whole.total};
    }

    if (CLUSTER > 1) arrive_at_cluster(), wait_for_cluster();
    else __syncthreads();
    auto store = [&](int i, const Sums& whole) {
        const long long row = head * ROWS + tile * HEIGHT + i / PER_ROW;
        *reinterpret_cast<unsigned*>(out + row * D + i % PER_ROW * 2) = pair(whole.x / whole.total, whole.y / whole.total, T());
    };
    float4* of_splits = scratch + of_tile * SPLITS * HEIGHT * PER_ROW;
    const int from = count * rank / CLUSTER, to = count * (rank + 1) / CLUSTER;  // what this block adds
    for (int i = from + threadIdx.x; i < to; i += THREADS) {
        const int row = i / PER_ROW, column = i % PER_ROW * 2;
        float2 statistics[CLUSTER], two[CLUSTER];
        EACH(other, CLUSTER) statistics[other] = of_rank(of_block + row, other), two[other] = of_rank(at(row, column), other);
        Sums whole;
        EACH(other, CLUSTER) whole.add(statistics[other], two[other]);
        if (SPLITS > 1) of_splits[split * HEIGHT * PER_ROW + i] = {whole.largest, whole.total, whole.x, whole.y};
        else store(i, whole);
    }
    if (CLUSTER > 1) arrive_at_cluster();  // this block has read the others' memory

    if (SPLITS > 1) {
        __threadfence(), __syncthreads();
        if (__syncthreads_or(threadIdx.x == 0 && atomicAdd(entry, 1ull) % COUNTS == SPLITS - 1)) {
            __threadfence();
            for (int i = from + threadIdx.x; i < to; i += THREADS) {
                Sums whole;
#pragma unroll 8
                for (int other = 0; other < SPLITS; ++other) {
                    const float4 part = __ldcg(of_splits + other * HEIGHT * PER_ROW + i);
                    whole.add({part.x, part.y}, {part.z, part.w});
                }
                store(i, whole);
            }
            if (threadIdx.x == 0) atomicExch(entry, 0ull);
        }
    }
    if (CLUSTER > 1) wait_for_cluster();  // its memory is there until all have read it
}
