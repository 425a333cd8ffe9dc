// A GPU in one thread of a CPU: every thread of a block is a fiber, and warps meet where the hardware makes them meet.
// The blocks of a cluster run together, each with its shared memory; static shared memory is one for all.
//
// It stands for the "instructions" section of a .cu file, so the kernel itself runs as it is. Matrices are laid out as the PTX
// manual says (ldmatrix, mma.m16n8k16). What cp.async brings arrives at the wait; until then there is NaN in its place.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __shared__
#define __align__(n)
#define __launch_bounds__(...)
#define IN_CLUSTERS
#define __restrict__
using std::max;
using std::min;
inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }

struct Dims {
    unsigned x, y, z;
};
struct uint4 {
    unsigned x, y, z, w;
};
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static Dims threadIdx, blockIdx, blockDim, gridDim;
static unsigned clusterDim = 1;
static int now;  // the fiber
static int threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }
static int warps_of_block() { return (threads_of_block() + 31) / 32; }
alignas(128) unsigned char memories[16][1 << 18];  // dynamic shared memory of each block of a cluster
#define memory memories[now / threads_of_block()]

template <typename To, typename From>
To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

struct __half {
    unsigned short is = 0;
    __half() = default;
    __half(float x) {  // to nearest even
        unsigned u = bits<unsigned>(x), sign = u >> 16 & 0x8000;
        u &= 0x7fffffff;
        if (u > 0x7f800000) is = 0x7fff;
        else if (u >= 0x477ff000) is = 0x7c00;
        else if (u < 0x38800000) is = bits<unsigned>(bits<float>(u) + 0.5f) - 0x3f000000;
        else is = (u + 0xc8000fff + (u >> 13 & 1)) >> 13;
        is |= sign;
    }
    operator float() const {
        const int exponent = is >> 10 & 31, fraction = is & 1023;
        float x = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent     ? ldexpf(1024 + fraction, exponent - 25)
                                 : ldexpf(fraction, -24);
        return is & 0x8000 ? -x : x;
    }
};
struct __nv_bfloat16 {
    unsigned short is = 0;
    __nv_bfloat16() = default;
    __nv_bfloat16(float x) {
        unsigned u = bits<unsigned>(x);
        is = x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
    }
    operator float() const { return bits<float>((unsigned)is << 16); }
};

// --- fibers ---

struct Meeting {
    int count = 0, turn = 0;
};
struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Dims index;
    bool done;
    int turn;  // of the cluster, when it arrived
    std::vector<std::tuple<void*, const void*, bool>> copies;
    std::vector<size_t> groups;  // copies of each group that was committed
};
struct Warp {
    Meeting meeting;
    const void* given[32];
};
static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static std::vector<Meeting> blocks, teams;
static Meeting cluster;
static ucontext_t scheduler;
static std::function<void()> body;

static void yield() {
    const int mine = now;
    swapcontext(&fibers[mine].context, &scheduler);
}

static void meet(Meeting& where, int all) {
    const int turn = where.turn;
    if (++where.count == all) where.count = 0, ++where.turn;
    else
        while (where.turn == turn) yield();
}

static void start() {
    body();
    fibers[now].done = true;
    yield();
}

static void run_cluster() {
    const int of_block = threads_of_block(), threads = of_block * clusterDim;
    const unsigned first = blockIdx.x;
    warps.assign(warps_of_block() * clusterDim, Warp());
    blocks.assign(clusterDim, Meeting());
    teams.assign(16 * clusterDim, Meeting());
    cluster = Meeting();
    for (int i = 0; i < threads; ++i) {
        Fiber& fiber = fibers[i];
        const unsigned at = i % of_block;
        fiber.index = {at % blockDim.x, at / blockDim.x % blockDim.y, at / blockDim.x / blockDim.y};
        fiber.copies.clear(), fiber.groups.clear();
        fiber.done = false;
        getcontext(&fiber.context);
        if (!fiber.stack) fiber.stack.reset(new char[1 << 18]);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = 1 << 18;
        fiber.context.uc_link = &scheduler;
        makecontext(&fiber.context, start, 0);
    }
    for (int left = threads; left;) {
        left = 0;
        for (now = 0; now < threads; ++now)
            if (!fibers[now].done) {
                threadIdx = fibers[now].index;
                blockIdx.x = first + now / of_block;
                swapcontext(&scheduler, &fibers[now].context);
                left += !fibers[now].done;
            }
    }
    blockIdx.x = first;
}

// --- what a thread may ask of the GPU ---

static Warp& warp_of_thread() { return warps[now / threads_of_block() * warps_of_block() + now % threads_of_block() / 32]; }
inline void __syncthreads() { meet(blocks[now / threads_of_block()], threads_of_block()); }
inline bool __syncthreads_or(bool said) {
    static bool any[16];
    const int block = now / threads_of_block();
    __syncthreads();
    any[block] = false;
    __syncthreads();
    any[block] = any[block] || said;
    __syncthreads();
    return any[block];
}
inline void __syncwarp() { meet(warp_of_thread().meeting, 32); }
inline float __int_as_float(unsigned x) { return bits<float>(x); }

// Calls `use` with what each lane of the warp gave.
template <typename Use>
auto together(const void* given, Use use) {
    Warp& warp = warp_of_thread();
    if (blockDim.x * blockDim.y * blockDim.z % 32) fputs("a warp without all of its lanes exchanges values\n", stderr), abort();
    warp.given[now % 32] = given;
    meet(warp.meeting, 32);
    auto found = use(warp.given);
    meet(warp.meeting, 32);
    return found;
}

inline bool __any_sync(unsigned, bool said) {
    return together(&said, [&](const void** all) {
        return std::any_of(all, all + 32, [](const void* one) { return *(const bool*)one; });
    });
}

inline float __shfl_xor_sync(unsigned, float x, int step) {
    return together(&x, [&](const void** all) { return *(const float*)all[now % 32 ^ step]; });
}

inline void copy_async(void* to, const void* from, bool inside) {
    memset(to, 0xff, 16);
    fibers[now].copies.push_back({to, from, inside});
}
inline void commit_copies() {
    size_t known = 0;
    for (size_t group : fibers[now].groups) known += group;
    fibers[now].groups.push_back(fibers[now].copies.size() - known);
}
static void arrive(size_t count) {  // the first copies
    auto& copies = fibers[now].copies;
    for (size_t i = 0; i < count; ++i) {
        auto& [to, from, inside] = copies[i];
        inside ? (void)memcpy(to, from, 16) : (void)memset(to, 0, 16);
    }
    copies.erase(copies.begin(), copies.begin() + count);
}
inline void wait_for_copies() { arrive(fibers[now].copies.size()), fibers[now].groups.clear(); }
template <int COUNT>
void wait_for_all_but() {
    for (auto& groups = fibers[now].groups; groups.size() > COUNT; groups.erase(groups.begin())) arrive(groups[0]);
}

template <int WIDTH>
void meet_team(int team) {
    meet(teams[now / threads_of_block() * 16 + team], 32 * WIDTH);
}
inline void arrive_at_cluster() {
    fibers[now].turn = cluster.turn;
    if (++cluster.count == threads_of_block() * (int)clusterDim) cluster.count = 0, ++cluster.turn;
}
inline void wait_for_cluster() {
    while (cluster.turn == fibers[now].turn) yield();
}
inline float2 of_rank(const float2* here, int rank) {
    float2 there;
    memcpy(&there, memories[rank] + ((const unsigned char*)here - memory), sizeof there);
    return there;
}

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes) {
    if (bytes != 16) abort();
    copy_async(to, from, true);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(int) { wait_for_copies(); }
template <typename P> P __ldcg(const P* at) { return *at; }
template <typename P> P __ldcs(const P* at) { return *at; }
template <typename P> void __stcs(P* at, P made) { *at = made; }
inline void __threadfence() {}
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline unsigned atomicAdd(unsigned* at, unsigned more) { return (*at += more) - more; }
using Long = unsigned long long;
inline Long atomicAdd(Long* at, Long more) { return (*at += more) - more; }
inline Long atomicExch(Long* at, Long made) { return std::exchange(*at, made); }
inline Long atomicCAS(Long* at, Long from, Long made) { return *at == from ? std::exchange(*at, made) : *at; }

inline void load(unsigned (&to)[4], const void* row, bool transposed) {
    together(row, [&](const void** rows) {
        const int lane = now % 32;
        for (int matrix = 0; matrix < 4; ++matrix)
            for (int i = 0; i < 2; ++i) {
                int r = lane / 4, c = lane % 4 * 2 + i;
                if (transposed) std::swap(r, c);
                const unsigned short* from = (const unsigned short*)rows[matrix * 8 + r];
                if ((size_t)from % 16) abort();
                to[matrix] = (i ? to[matrix] & 0xffff : 0) | (unsigned)from[c] << 16 * i;
            }
        return 0;
    });
}
inline void load_matrices(unsigned (&to)[4], const void* row) { load(to, row, false); }
inline void load_transposed(unsigned (&to)[4], const void* row) { load(to, row, true); }

template <typename T>
float element(unsigned two, int which) {
    T one;
    one.is = two >> 16 * which;
    return one;
}

template <typename T>
void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, T) {
    const unsigned given[6] = {a[0], a[1], a[2], a[3], b0, b1};
    together(given, [&](const void** all) {
        const int lane = now % 32;
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            for (int k = 0; k < 16; ++k) {
                const unsigned* of_a = (const unsigned*)all[row % 8 * 4 + k % 8 / 2];
                const unsigned* of_b = (const unsigned*)all[column * 4 + k % 8 / 2];
                sums[i] += element<T>(of_a[k / 8 * 2 + row / 8], k % 2) * element<T>(of_b[4 + k / 8], k % 2);
            }
        }
        return 0;
    });
}

inline float power_of_2(float x) { return exp2f(x); }
inline float exp2_of(float x) { return x < -126 ? 0 : exp2f(x); }
inline float __fdividef(float a, float b) { return fabsf(b) > 0x1p126f ? 0 : a / b; }

template <typename T>
unsigned pair(float low, float high, T) {
    return T(low).is | (unsigned)T(high).is << 16;
}

inline float of_quad(float x, bool largest) {
    for (int step = 1; step <= 2; step *= 2) {
        const float other = __shfl_xor_sync(~0u, x, step);
        x = largest ? fmaxf(x, other) : x + other;
    }
    return x;
}

// --- launches: six numbers of grid and block, then the arguments; a file name is a tensor, which is written back ---
// From the environment: CLUSTER is the number of blocks of a cluster, LAUNCHES how often it is launched,
// each time with the tensors as they were.

static std::vector<std::pair<std::string, std::vector<char>>> tensors;

struct Argument {
    const char* text;
    operator int() const { return atoi(text); }
    operator long long() const { return atoll(text); }
    operator float() const { return strtof(text, nullptr); }
    template <typename T>
    operator T*() const {
        for (auto& [name, bytes] : tensors)
            if (name == text) return (T*)bytes.data();
        abort();
    }
};

// Dynamic shared memory has DYNAMIC_BYTES bytes, from the environment: what lies beyond must stay as it is.
struct Beyond {
    static constexpr unsigned char MARK = 0xa5;
    const size_t first = atoi(getenv("DYNAMIC_BYTES"));
    Beyond() {
        for (auto& one : memories) memset(one + first, MARK, sizeof one - first);
    }
    ~Beyond() {
        for (auto& one : memories)
            for (size_t at = first; at < sizeof one; ++at)
                if (one[at] != MARK) fprintf(stderr, "byte %zu of %zu of shared memory was written\n", at, first), abort();
    }
};

template <typename... P, size_t... I>
void launch(void (*kernel)(P...), char** arguments, std::index_sequence<I...>) {
    for (auto one : {(const char*)arguments[I]...})
        if (std::ifstream file{one, std::ios::binary})
            tensors.push_back({one, std::vector<char>(std::istreambuf_iterator<char>(file), {})});
    Beyond beyond;
    body = [&] { kernel((P)Argument{arguments[I]}...); };
    clusterDim = atoi(getenv("CLUSTER"));
    if (gridDim.x % clusterDim) fputs("a grid is no whole number of clusters\n", stderr), abort();
    fibers.resize(threads_of_block() * clusterDim);
    const auto before = tensors;
    for (int left = atoi(getenv("LAUNCHES")); left--;) {
        for (size_t i = 0; i < tensors.size(); ++i) std::copy(before[i].second.begin(), before[i].second.end(), tensors[i].second.begin());
        for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
            for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
                for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x += clusterDim) run_cluster();
    }
    for (auto& [name, bytes] : tensors) std::ofstream(name, std::ios::binary).write(bytes.data(), bytes.size());
}

template <typename... P>
void launch(void (*kernel)(P...), char** a) {
    auto number = [&](int i) { return (unsigned)atoi(a[i]); };
    gridDim = {number(0), number(1), number(2)};
    blockDim = {number(3), number(4), number(5)};
    launch(kernel, a + 6, std::index_sequence_for<P...>());
}
