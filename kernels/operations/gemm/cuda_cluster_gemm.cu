// For Hopper: loads by TMA, products by wgmma; K split over the blocks of a cluster, which add their sums in each other's memory.
// @kernel("gemm", dtypes=("float16", "bfloat16"), needs=cuda(architecture=9.0), limits={"batch": (1,)},
//         space={"columns": (128, 256), "stages": (3, 4, 5, 6, 7), "neighbours": (1, 2, 4), "shares": (1, 2, 3, 4, 5, 6, 7, 8),
//                "parts": (1, 2, 3, 4, 5, 6, 7, 8, 16)})
// @launch(grid=CLUSTER * PACKS * SPLITS, block=384, shared=1024 + max(DEPTH * STAGE, 512 * (COLUMNS + 8)) + 16 * DEPTH,
//         scratch=512 * COLUMNS * NEAR * PACKS * SPLITS if SPLITS > 1 else 0,
//         defines={"TILES_M": ceil_div(m, 128), "TILES": TILES_M * ceil_div(n, 128), "COLUMNS": 256 if TILES >= sms else 128,
//                  "FREE": max(1, min(sms // TILES, k // 2048)), "NEIGHBOURS": 2 if k >= 32768 else 1,
//                  "SHARES": 4 if FREE >= 12 else 3 if FREE >= 6 else 2 if FREE > NEIGHBOURS else 1, "PARTS": max(1, min(4, FREE // SHARES)),
//                  "NEAR": min(NEIGHBOURS, 8 // SHARES), "CLUSTER": NEAR * SHARES,
//                  "PACKS": TILES_M * ceil_div(ceil_div(n, COLUMNS), NEAR), "SPLITS": max(1, min(PARTS, 4096 // (CLUSTER * PACKS))),
//                  "STAGE": 16384 + 128 * COLUMNS, "STAGES": 6, "DEPTH": min(STAGES, 229376 // STAGE)})
// @call("multiply<T>", tensor_map(a, 64, 128 // NEAR, swizzle=128, l2=256), tensor_map(b, 64, 64, swizzle=128, l2=256), out, scratch, m, n, k)

// A tile of the product has 128 rows and COLUMNS columns. NEAR tiles side by side, a pack, share rows of A: each of their blocks
// loads a part of them for all. SHARES blocks of a cluster have the same tile and each a part of K; SPLITS clusters have a part of
// K each. One warp loads; two groups of four warps multiply 64 rows each. Then the sums lie in shared memory, and each of the
// SHARES blocks adds a part of the rows, always in the same order, so results repeat. If a tile has SPLITS clusters, they
// leave their sums in scratch memory, and the last one adds them.

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ON_HOPPER(...) asm volatile(__VA_ARGS__)
#else  // it compiles, and is never run
#define ON_HOPPER(...)
#endif
#if CLUSTER > 1 && defined(__CUDA_ARCH_FEAT_SM90_ALL)  // a launch of clusters of one block is slower than one without
#define OF_CLUSTERS(...) asm volatile(__VA_ARGS__)
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#else
#define OF_CLUSTERS(...)
#define IN_CLUSTERS
#endif
#define EACH(i, count) _Pragma("unroll") for (int i = 0; i < count; ++i)

constexpr int ROWS = 128, DEPTH_K = 64, GROUP = 128, LOADER = 2 * GROUP, THREADS = 3 * GROUP;
constexpr int OF_A = ROWS * DEPTH_K * 2, BOX = 64 * DEPTH_K * 2, OF_B = COLUMNS / 64 * BOX;  // bytes
constexpr int WIDTH = COLUMNS + 8;                          // floats from row to row, for other banks
constexpr int CHUNK = 8, ENTRIES = 4096, COUNTS = 1024;     // a chunk has 8 elements
constexpr int SUMS_BYTES = ROWS * WIDTH * 4, RING_BYTES = DEPTH * STAGE;
constexpr int BARRIERS = RING_BYTES > SUMS_BYTES ? RING_BYTES : SUMS_BYTES;
static_assert(STAGE == OF_A + OF_B, "as the declaration has it");

// --- barriers ---

__device__ unsigned address(const void* here) { return (unsigned)__cvta_generic_to_shared(here); }

__device__ void set_barrier(unsigned barrier, int count) {
    ON_HOPPER("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ void wait_for(unsigned barrier, int phase) {
    ON_HOPPER("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra AGAIN;\n}" ::"r"(
                  barrier), "r"(phase) : "memory");
}

__device__ void expect(unsigned barrier, int bytes) {
    ON_HOPPER("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ void arrive_at(unsigned barrier, int rank) {  // at this barrier of a block of the cluster
    if (NEAR == 1) ON_HOPPER("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
    else OF_CLUSTERS("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                     "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(rank) : "memory");
}

__device__ void meet_cluster() {  // every thread of it; what was written before is there for all
    if (CLUSTER == 1) __syncthreads();
    OF_CLUSTERS("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// --- loads ---

__device__ void load(unsigned to, const CUtensorMap* map, int x, int y, unsigned barrier) {
    ON_HOPPER("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
              "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}

__device__ void load_for(unsigned short blocks, unsigned to, const CUtensorMap* map, int x, int y, unsigned barrier) {
    ON_HOPPER("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
              "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(blocks) : "memory");
}

__device__ float4 of_rank(const float4* here, int rank) {  // what lies at this place in a block of the cluster
    float4 found = *here;
    OF_CLUSTERS("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
                "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
                : "=f"(found.x), "=f"(found.y), "=f"(found.z), "=f"(found.w) : "r"(address(here)), "r"(rank) : "memory");
    return found;
}

// --- products ---

// Where a matrix lies, in swizzled rows of 128 bytes, eight of which take 1,024. next: bytes from 64 columns of B to the next.
__device__ unsigned long long described(unsigned at, int next) {
    return (at & 0x3ffff) >> 4 | (unsigned long long)(next >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

#define EIGHT(s, i) \
    "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), "+f"(s[i + 5]), "+f"(s[i + 6]), "+f"(s[i + 7])
#define SIXTY_FOUR(s, i) \
    EIGHT(s, i), EIGHT(s, i + 8), EIGHT(s, i + 16), EIGHT(s, i + 24), EIGHT(s, i + 32), EIGHT(s, i + 40), EIGHT(s, i + 48), EIGHT(s, i + 56)
#define FIRST_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
    "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
    "%62, %63"
#define LAST_64 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
    "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, " \
    "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, " \
    "%119, %120, %121, %122, %123, %124, %125, %126, %127"
#if COLUMNS == 256
#define SUMS(s) SIXTY_FOUR(s, 0), SIXTY_FOUR(s, 64)
#define NAMES FIRST_64 ", " LAST_64 "}, %128, %129"
#else
#define SUMS(s) SIXTY_FOUR(s, 0)
#define NAMES FIRST_64 "}, %64, %65"
#endif
#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)

// sums (64 x COLUMNS) += a (64 x 16), rows along K, b (16 x COLUMNS), rows along N
#define PRODUCTS(T, KIND)                                                                                               \
    __device__ void product(float (&sums)[COLUMNS / 2], unsigned long long a, unsigned long long b, T) {                \
        ON_HOPPER("{\n.reg .pred adds;\nsetp.eq.u32 adds, 0, 0;\n"                                                      \
                  "wgmma.mma_async.sync.aligned.m64n" TEXT_OF(COLUMNS) "k16.f32." KIND "." KIND " {" NAMES              \
                  ", adds, 1, 1, 0, 1;\n}" : SUMS(sums) : "l"(a), "l"(b));                                              \
    }
PRODUCTS(__half, "f16")
PRODUCTS(__nv_bfloat16, "bf16")

__device__ void begin_products() { ON_HOPPER("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ void end_products() { ON_HOPPER("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int COUNT>
__device__ void wait_for_products() {  // for all but the last COUNT groups
    ON_HOPPER("wgmma.wait_group.sync.aligned %0;" ::"n"(COUNT) : "memory");
}

__device__ uint4 chunk_of(const float (&sums)[CHUNK], __half) {
    __half2 pairs[4];
    EACH(i, 4) pairs[i] = __floats2half2_rn(sums[2 * i], sums[2 * i + 1]);
    return *reinterpret_cast<uint4*>(pairs);
}

__device__ uint4 chunk_of(const float (&sums)[CHUNK], __nv_bfloat16) {
    __nv_bfloat162 pairs[4];
    EACH(i, 4) pairs[i] = __floats2bfloat162_rn(sums[2 * i], sums[2 * i + 1]);
    return *reinterpret_cast<uint4*>(pairs);
}

__device__ void add(float (&sums)[CHUNK], float4 low, float4 high) {
    sums[0] += low.x, sums[1] += low.y, sums[2] += low.z, sums[3] += low.w;
    sums[4] += high.x, sums[5] += high.y, sums[6] += high.z, sums[7] += high.w;
}

// --- the last cluster of a tile ---

// An entry for the blocks of one rank of all clusters of a tile: the launch, which is the address of its scratch memory, times
// COUNTS, plus the blocks that have ended. So launches on several streams do not mix. 0 while no launch has it.
__device__ unsigned long long ended[ENTRIES];

// Takes an entry for a launch, or sees that another of its blocks did. In the rare case that another launch has it, waits: the
// blocks of a launch get processors before those of later launches, so it ends. (Not if a later one has a higher priority.)
__device__ void claim(unsigned long long* entry, unsigned long long launch) {
    while (true)
        if (const auto had = atomicCAS(entry, 0ull, launch * COUNTS); had == 0 || had / COUNTS == launch) return;
}

// --- kernel ---

template <typename T>
__global__ void IN_CLUSTERS __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, T* __restrict__ out,
         float4* scratch, int m, int n, int k) {
    extern __shared__ unsigned char shared[];
    unsigned char* memory = shared + (1024 - address(shared) % 1024) % 1024;
    const int rank = blockIdx.x % CLUSTER, neighbour = rank % NEAR, share = rank / NEAR;
    const int split = blockIdx.x / CLUSTER % SPLITS, pack = blockIdx.x / CLUSTER / SPLITS;
    const int row = pack % TILES_M * ROWS, column = (pack / TILES_M * NEAR + neighbour) * COLUMNS;
    const int steps = (k + DEPTH_K - 1) / DEPTH_K, slot = split * SHARES + share;
    const int begin = steps * slot / (SHARES * SPLITS), end = steps * (slot + 1) / (SHARES * SPLITS);
    const int group = threadIdx.x / GROUP, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned ring = address(memory), full = address(memory + BARRIERS), empty = full + 8 * DEPTH;

    const unsigned long long launch = reinterpret_cast<unsigned long long>(scratch);
    unsigned long long* entry = ended + (launch / 512 * 2654435761u + (pack * NEAR + neighbour) * SHARES + share) % ENTRIES;
    if (threadIdx.x == 0) {
        EACH(i, DEPTH) set_barrier(full + 8 * i, 1), set_barrier(empty + 8 * i, 2 * GROUP / 32 * NEAR);
        ON_HOPPER("fence.mbarrier_init.release.cluster;" ::: "memory");
        ON_HOPPER("prefetch.tensormap [%0];" ::"l"(&map_a) : "memory");
        ON_HOPPER("prefetch.tensormap [%0];" ::"l"(&map_b) : "memory");
    }
    if (NEAR > 1) meet_cluster();  // they use each other's barriers
    else __syncthreads();

    if (group == 2) {
        ON_HOPPER("setmaxnreg.dec.sync.aligned.u32 40;");
        if (SPLITS > 1 && threadIdx.x == LOADER + 32) claim(entry, launch);
        if (threadIdx.x == LOADER) {
            const unsigned short all = ((1 << NEAR) - 1) << share * NEAR;
            int stage = 0, phase = 1;
            for (int step = begin; step < end; ++step) {
                const unsigned tile = ring + stage * STAGE, barrier = full + 8 * stage;
                const unsigned own = tile + neighbour * (OF_A / NEAR);
                wait_for(empty + 8 * stage, phase);
                expect(barrier, STAGE);
                if (NEAR == 1) load(own, &map_a, step * DEPTH_K, row, barrier);
                else load_for(all, own, &map_a, step * DEPTH_K, row + neighbour * (ROWS / NEAR), barrier);
                EACH(i, COLUMNS / 64) load(tile + OF_A + i * BOX, &map_b, column + 64 * i, step * DEPTH_K, barrier);
                if (++stage == DEPTH) stage = 0, phase ^= 1;
            }
        }
    } else {
        ON_HOPPER("setmaxnreg.inc.sync.aligned.u32 232;");
        float sums[COLUMNS / 2] = {};
        int stage = 0, phase = 0;
        auto release = [&](int which) {  // lane i tells the neighbour i
            if (lane < NEAR) arrive_at(empty + 8 * which, share * NEAR + lane);
        };
        for (int step = begin; step < end; ++step) {
            const unsigned of_a = ring + stage * STAGE + group * (OF_A / 2), of_b = ring + stage * STAGE + OF_A;
            wait_for(full + 8 * stage, phase);
            begin_products();
            EACH(depth, DEPTH_K / 16)
                product(sums, described(of_a + depth * 32, 16), described(of_b + depth * 2048, BOX), T());
            end_products();
            wait_for_products<1>();
            if (step > begin) release(stage ? stage - 1 : DEPTH - 1);
            if (++stage == DEPTH) stage = 0, phase ^= 1;
        }
        wait_for_products<0>();
        EACH(i, COLUMNS / 2) asm volatile("" : "+f"(sums[i])::"memory");  // nothing reads them before
        ON_HOPPER("bar.sync 1, %0;" ::"n"(2 * GROUP) : "memory");  // both groups have read all tiles: the sums take their place
        float* rows = reinterpret_cast<float*>(memory) + (warp * 16 + lane / 4) * WIDTH + lane % 4 * 2;
        EACH(i, COLUMNS / 4)
            *reinterpret_cast<float2*>(rows + i % 2 * 8 * WIDTH + i / 2 * 8) = {sums[2 * i], sums[2 * i + 1]};
    }
    meet_cluster();

    constexpr int PER_ROW = COLUMNS / CHUNK, COUNT = ROWS * PER_ROW;
    const int from = COUNT * share / SHARES, to = COUNT * (share + 1) / SHARES;  // the chunks that this block adds
    const float* whole = reinterpret_cast<const float*>(memory);
    float4* of_splits = scratch + (long long)(pack * NEAR + neighbour) * SPLITS * COUNT * 2;
    auto store = [&](int i, const float (&of_chunk)[CHUNK]) {
        const int r = row + i / PER_ROW, c = column + i % PER_ROW * CHUNK;
        if (r < m && c < n) *reinterpret_cast<uint4*>(out + (long long)r * n + c) = chunk_of(of_chunk, T());
    };
    for (int i = from + threadIdx.x; i < to; i += THREADS) {
        const float4* here = reinterpret_cast<const float4*>(whole + i / PER_ROW * WIDTH + i % PER_ROW * CHUNK);
        float of_chunk[CHUNK] = {};
        EACH(other, SHARES) {
            const int owner = other * NEAR + neighbour;
            add(of_chunk, of_rank(here, owner), of_rank(here + 1, owner));
        }
        float4* place = of_splits + (split * COUNT + i) * 2;
        if (SPLITS == 1) store(i, of_chunk);
        else place[0] = {of_chunk[0], of_chunk[1], of_chunk[2], of_chunk[3]}, place[1] = {of_chunk[4], of_chunk[5], of_chunk[6], of_chunk[7]};
    }
    if (SPLITS > 1) {
        __threadfence(), __syncthreads();
        if (__syncthreads_or(threadIdx.x == 0 && atomicAdd(entry, 1ull) % COUNTS == SPLITS - 1)) {
            __threadfence();
            for (int i = from + threadIdx.x; i < to; i += THREADS) {
                float of_chunk[CHUNK] = {};
                EACH(other, SPLITS) {
                    const float4* place = of_splits + (other * COUNT + i) * 2;
                    add(of_chunk, __ldcg(place), __ldcg(place + 1));
                }
                store(i, of_chunk);
            }
            if (threadIdx.x == 0) atomicExch(entry, 0ull);
        }
    }
    meet_cluster();  // its memory is there until all have read it
}
