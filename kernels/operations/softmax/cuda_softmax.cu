// A block for each row, which it reads once into registers, where each exponential is computed once; sums in float32.
// @kernel("softmax", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0))
// @launch(grid=rows, block=THREADS,
//         defines={"COLS": cols, "THREADS": 512 if cols * itemsize > 65536 else
//                  max(32, next_power_of_2(ceil_div(cols * itemsize, 64)))})
// @call("softmax<T>", x, out)

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int WARPS = THREADS / 32;
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

__device__ Part over_warp(Part own) {
    for (int lane = 16; lane > 0; lane /= 2) {
        Part other = {__shfl_xor_sync(~0u, own.most, lane), __shfl_xor_sync(~0u, own.sum, lane)};
        own = joined(own, other);
    }
    return own;
}

// The part of the whole row, in every thread of the block.
__device__ Part over_block(Part own) {
    __shared__ Part of_warp[WARPS];
    own = over_warp(own);
    if (WARPS == 1) return own;
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    return over_warp(threadIdx.x % 32 < WARPS ? of_warp[threadIdx.x % 32] : Part{NONE, 0});
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
softmax(const T* __restrict__ x, T* __restrict__ out) {
    constexpr int WIDE = 16 / sizeof(T), WIDTH = COLS % WIDE ? 1 : WIDE;  // elements of one load
    constexpr int PACKETS = COLS / WIDTH, TURNS = (PACKETS + THREADS - 1) / THREADS;
    constexpr bool HELD = TURNS * WIDTH <= 32;  // a longer row is read twice, the second time from the cache
    using P = Packet<T, WIDTH>;

    const P* row = reinterpret_cast<const P*>(x + (long long)blockIdx.x * COLS);
    P* result = reinterpret_cast<P*>(out + (long long)blockIdx.x * COLS);
    Part own = {NONE, 0};
    if constexpr (HELD) {
        float held[TURNS][WIDTH];
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int at = threadIdx.x + turn * THREADS;
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
                if (threadIdx.x + turn * THREADS < PACKETS) own.sum += held[turn][i];
            }
        const Part all = over_block(own);
        const float scale = exp2f((own.most - all.most) * LOG2E) / all.sum;
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int at = threadIdx.x + turn * THREADS;
            if (at < PACKETS) {
                P made;
                for (int i = 0; i < WIDTH; ++i) made.value[i] = T(held[turn][i] * scale);
                result[at] = made;
            }
        }
    } else {
        for (int at = threadIdx.x; at < PACKETS; at += THREADS) {
            const P packet = row[at];
            float most = own.most;
            for (int i = 0; i < WIDTH; ++i) most = fmaxf(most, float(packet.value[i]));
            own.sum *= exp2f((own.most - most) * LOG2E);
            own.most = most;
            for (int i = 0; i < WIDTH; ++i) own.sum += exp2f((float(packet.value[i]) - most) * LOG2E);
        }
        const Part all = over_block(own);
        const float scale = 1 / all.sum;
        for (int at = threadIdx.x; at < PACKETS; at += THREADS) {
            const P packet = row[at];
            P made;
            for (int i = 0; i < WIDTH; ++i) made.value[i] = T(exp2f((float(packet.value[i]) - all.most) * LOG2E) * scale);
            result[at] = made;
        }
    }
}
