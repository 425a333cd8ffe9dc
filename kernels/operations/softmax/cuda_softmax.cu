// Short rows share a block, a long one has its own; each waits in registers, above 32 KiB in shared memory; sums in float32.
// @kernel("softmax", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0),
//         space={"threads": (4, 8, 16, 32, 64, 128, 256, 512, 1024)})
// @launch(grid=ceil_div(rows, ROWS), block=ROWS * THREADS, shared=cols * itemsize if SHARED else 0,
//         defines={"COLS": cols, "THREADS": min(512, max(4, next_power_of_2(ceil_div(cols * itemsize, 64)))),
//                  "SHARED": THREADS > 32 and 32768 < cols * itemsize and cols * itemsize <= 73728 and cols * itemsize % 16 == 0,
//                  "ROWS": 128 // THREADS if THREADS <= 32 else 1})
// @call("softmax<T>", x, out, rows)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

// THREADS have a row, which is part of a warp or several of them.
constexpr int LANES = THREADS < 32 ? THREADS : 32, WARPS = THREADS / LANES;
static_assert(ROWS == 1 || WARPS == 1, "rows of several warps would share their sums");
static_assert(ROWS == 1 || !SHARED, "rows would share the memory that one of them is copied to");
constexpr float NONE = -3.4028235e38f, LOG2E = 1.4426950408889634f;

template <typename T, int N> struct alignas(N * sizeof(T)) Packet {
    T value[N];
};

// The largest of some elements, and the sum of their exponentials relative to it.
struct Part {
    float most, sum;
};

__device__ Part joined(Part a, Part b) {
    const float most = fmaxf(a.most, b.most);
    return {most, a.sum * exp2f((a.most - most) * LOG2E) + b.sum * exp2f((b.most - most) * LOG2E)};
}

__device__ Part over_lanes(Part own) {
    for (int lane = LANES / 2; lane > 0; lane /= 2) {
        Part other = {__shfl_xor_sync(~0u, own.most, lane), __shfl_xor_sync(~0u, own.sum, lane)};
        own = joined(own, other);
    }
    return own;
}

// The part of the whole row, in each of its threads.
__device__ Part over_row(Part own) {
    __shared__ Part of_warp[WARPS];
    own = over_lanes(own);
    if (WARPS == 1) return own;
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    return over_lanes(threadIdx.x % 32 < WARPS ? of_warp[threadIdx.x % 32] : Part{NONE, 0});
}

template <typename T>
__global__ void __launch_bounds__(ROWS * THREADS)
softmax(const T* __restrict__ x, T* __restrict__ out, int rows) {
    constexpr int WIDE = 16 / sizeof(T), WIDTH = COLS % WIDE ? 1 : WIDE;  // elements of one load
    constexpr int PACKETS = COLS / WIDTH, TURNS = (PACKETS + THREADS - 1) / THREADS;
    constexpr bool HELD = !SHARED && TURNS * WIDTH <= 32;
    using P = Packet<T, WIDTH>;

    const int thread = threadIdx.x % THREADS;
    const int number = min(blockIdx.x * ROWS + threadIdx.x / THREADS, rows - 1);  // spare threads do the last row again
    const P* row = reinterpret_cast<const P*>(x + (long long)number * COLS);
    P* result = reinterpret_cast<P*>(out + (long long)number * COLS);
    Part own = {NONE, 0};
    if constexpr (HELD) {
        float held[TURNS][WIDTH];
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int at = thread + turn * THREADS;
            if (at < PACKETS) {
                const P packet = row[at];
                for (int i = 0; i < WIDTH; ++i) held[turn][i] = float(packet.value[i]);
            } else {
                for (int i = 0; i < WIDTH; ++i) held[turn][i] = NONE;
            }
        }
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
            for (int i = 0; i < WIDTH; ++i) own.most = fmaxf(own.most, held[turn][i]);
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
            for (int i = 0; i < WIDTH; ++i) {
                held[turn][i] = exp2f((held[turn][i] - own.most) * LOG2E);
                if (thread + turn * THREADS < PACKETS) own.sum += held[turn][i];
            }
        const Part all = over_row(own);
        const float scale = exp2f((own.most - all.most) * LOG2E) / all.sum;
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int at = thread + turn * THREADS;
            if (at < PACKETS) {
                P made;
                for (int i = 0; i < WIDTH; ++i) made.value[i] = T(held[turn][i] * scale);
                result[at] = made;
            }
        }
    } else {
        // In shared memory a row leaves registers to three blocks a multiprocessor. Each thread reads only what it copied there. A
        // row that is too long for it is read again from the cache.
        extern __shared__ __align__(16) unsigned char memory[];
        P* kept = reinterpret_cast<P*>(memory);
        if constexpr (SHARED) {
            for (int at = thread; at < PACKETS; at += THREADS) __pipeline_memcpy_async(kept + at, row + at, sizeof(P));
            __pipeline_commit();
            __pipeline_wait_prior(0);
        }
        const P* again = SHARED ? kept : row;
#pragma unroll 2
        for (int at = thread; at < PACKETS; at += THREADS) {
            const P packet = again[at];
            float most = own.most;
            for (int i = 0; i < WIDTH; ++i) most = fmaxf(most, float(packet.value[i]));
            own.sum *= exp2f((own.most - most) * LOG2E);
            own.most = most;
            for (int i = 0; i < WIDTH; ++i) own.sum += exp2f((float(packet.value[i]) - most) * LOG2E);
        }
        const Part all = over_row(own);
        const float scale = 1 / all.sum;
#pragma unroll 2
        for (int at = thread; at < PACKETS; at += THREADS) {
            const P packet = again[at];
            P made;
            for (int i = 0; i < WIDTH; ++i) made.value[i] = T(exp2f((float(packet.value[i]) - all.most) * LOG2E) * scale);
            result[at] = made;
        }
    }
}
