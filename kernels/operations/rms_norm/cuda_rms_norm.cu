// Short rows share a block and a long one has its own, in registers; above 32 KiB it is read twice. Sums in float32.
// @kernel("rms_norm", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0),
//         space={"threads": (4, 8, 16, 32, 64, 128, 256, 512, 1024)})
// @launch(grid=ceil_div(rows, ROWS), block=ROWS * THREADS,
//         defines={"COLS": cols, "THREADS": min(1024, max(4, next_power_of_2(ceil_div(cols * itemsize, 64)))),
//                  "ROWS": 128 // THREADS if THREADS <= 32 else 1})
// @call("rms_norm<T>", x, weight, out, rows, eps)

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// THREADS have a row, which is part of a warp or several of them.
constexpr int LANES = THREADS < 32 ? THREADS : 32, WARPS = THREADS / LANES;
static_assert(ROWS == 1 || WARPS == 1, "rows of several warps would share their sums");

template <typename T, int N> struct alignas(N * sizeof(T)) Packet {
    T value[N];
};

// The sum over all threads of the row, in each of them.
__device__ float sum_of_row(float own) {
    __shared__ float of_warp[WARPS];
    for (int lane = LANES / 2; lane > 0; lane /= 2) own += __shfl_xor_sync(~0u, own, lane);
    if (WARPS == 1) return own;
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    float sum = 0;
    for (int warp = 0; warp < WARPS; ++warp) sum += of_warp[warp];
    return sum;
}

// The last reading of what lies there: the cache need not keep it.
template <typename P> __device__ P last_read(const P* at) {
    if constexpr (sizeof(P) < 16) return *at;
    else {
        const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(at));
        return *reinterpret_cast<const P*>(&raw);
    }
}

// The cache need not keep what is written.
template <typename P> __device__ void put(P* at, const P& made) {
    if constexpr (sizeof(P) < 16) *at = made;
    else __stcs(reinterpret_cast<uint4*>(at), *reinterpret_cast<const uint4*>(&made));
}

// A long row leaves registers to two blocks a multiprocessor. Its second reading mostly finds it in the cache.
constexpr int LONGEST_HELD = 32768;

template <typename T>
__global__ void __launch_bounds__(ROWS * THREADS, COLS * sizeof(T) <= LONGEST_HELD ? 0 : 2)
rms_norm(const T* __restrict__ x, const T* __restrict__ weight, T* __restrict__ out, int rows, float eps) {
    constexpr int WIDE = 16 / sizeof(T), WIDTH = COLS % WIDE ? 1 : WIDE;  // elements of one load
    constexpr int PACKETS = COLS / WIDTH, TURNS = (PACKETS + THREADS - 1) / THREADS;
    using P = Packet<T, WIDTH>;

    const int thread = threadIdx.x % THREADS;
    const int number = min(blockIdx.x * ROWS + threadIdx.x / THREADS, rows - 1);  // spare threads do the last row again
    const P* row = reinterpret_cast<const P*>(x + (long long)number * COLS);
    float squares = 0;
    if constexpr (COLS * sizeof(T) <= LONGEST_HELD) {
        P held[TURNS];
        // Calls use(position, packet) for the packets of this thread.
        auto each = [&](auto use) {
#pragma unroll
            for (int turn = 0; turn < TURNS; ++turn) {
                const int at = thread + turn * THREADS;
                if (at < PACKETS) use(at, held[turn]);
            }
        };
        each([&](int at, P& packet) { packet = row[at]; });
        each([&](int, const P& packet) {
            for (int i = 0; i < WIDTH; ++i) squares += float(packet.value[i]) * float(packet.value[i]);
        });
        const float scale = rsqrtf(sum_of_row(squares) / COLS + eps);
        const P* weights = reinterpret_cast<const P*>(weight);
        P* result = reinterpret_cast<P*>(out + (long long)number * COLS);
        each([&](int at, const P& packet) {
            P w = weights[at], made;
            for (int i = 0; i < WIDTH; ++i) made.value[i] = T(float(packet.value[i]) * scale * float(w.value[i]));
            result[at] = made;
        });
    } else {
#pragma unroll 4
        for (int at = thread; at < PACKETS; at += THREADS) {
            const P packet = row[at];
            for (int i = 0; i < WIDTH; ++i) squares += float(packet.value[i]) * float(packet.value[i]);
        }
        const float scale = rsqrtf(sum_of_row(squares) / COLS + eps);
        const P* weights = reinterpret_cast<const P*>(weight);
        P* result = reinterpret_cast<P*>(out + (long long)number * COLS);
#pragma unroll 2
        for (int at = thread; at < PACKETS; at += THREADS) {
            const P packet = last_read(row + at), w = weights[at];
            P made;
            for (int i = 0; i < WIDTH; ++i) made.value[i] = T(float(packet.value[i]) * scale * float(w.value[i]));
            put(result + at, made);
        }
    }
}
