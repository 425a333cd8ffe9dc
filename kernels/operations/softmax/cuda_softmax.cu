// A block for each row, which it reads once into registers; its maximum, then the sum of exponentials, in float32.
// @kernel("softmax", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0))
// @launch(grid=rows, block=THREADS,
//         defines={"COLS": cols, "THREADS": min(512, max(32, next_power_of_2(ceil_div(cols * itemsize, 64))))})
// @call("softmax<T>", x, out)

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int WARPS = THREADS / 32;

template <typename T, int N> struct alignas(N * sizeof(T)) Packet {
    T value[N];
};

struct Sum {
    static constexpr float NONE = 0;
    static __device__ float of(float a, float b) { return a + b; }
};

struct Largest {
    static constexpr float NONE = -3.4028235e38f;
    static __device__ float of(float a, float b) { return fmaxf(a, b); }
};

// The sum, or the largest, over all threads of the block, in every one of them.
template <typename How> __device__ float over_block(float own) {
    __shared__ float of_warp[WARPS];
    for (int lane = 16; lane > 0; lane /= 2) own = How::of(own, __shfl_xor_sync(~0u, own, lane));
    if (WARPS == 1) return own;
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    float all = How::NONE;
    for (int warp = 0; warp < WARPS; ++warp) all = How::of(all, of_warp[warp]);
    return all;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
softmax(const T* __restrict__ x, T* __restrict__ out) {
    constexpr int WIDE = 16 / sizeof(T), WIDTH = COLS % WIDE ? 1 : WIDE;  // elements of one load
    constexpr int PACKETS = COLS / WIDTH, TURNS = (PACKETS + THREADS - 1) / THREADS;
    constexpr bool HELD = TURNS * WIDTH * sizeof(T) <= 128;  // a longer row is read three times, twice from the cache
    using P = Packet<T, WIDTH>;

    const P* row = reinterpret_cast<const P*>(x + (long long)blockIdx.x * COLS);
    P held[HELD ? TURNS : 1];
    if constexpr (HELD) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            int at = threadIdx.x + turn * THREADS;
            if (at < PACKETS) held[turn] = row[at];
        }
    }
    // Calls use(position, packet) for the packets of this thread.
    auto each = [&](auto use) {
#pragma unroll (HELD ? TURNS : 1)
        for (int turn = 0; turn < TURNS; ++turn) {
            int at = threadIdx.x + turn * THREADS;
            if (at < PACKETS) {
                if constexpr (HELD) use(at, held[turn]);
                else use(at, row[at]);
            }
        }
    };

    float most = Largest::NONE, sum = 0;
    each([&](int, const P& packet) {
        for (int i = 0; i < WIDTH; ++i) most = fmaxf(most, float(packet.value[i]));
    });
    most = over_block<Largest>(most);
    each([&](int, const P& packet) {
        for (int i = 0; i < WIDTH; ++i) sum += expf(float(packet.value[i]) - most);
    });
    sum = over_block<Sum>(sum);

    P* result = reinterpret_cast<P*>(out + (long long)blockIdx.x * COLS);
    each([&](int at, const P& packet) {
        P made;
        for (int i = 0; i < WIDTH; ++i) made.value[i] = T(expf(float(packet.value[i]) - most) / sum);
        result[at] = made;
    });
}
