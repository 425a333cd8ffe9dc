// Short rows share a block, a long one has its own; each is read once into registers; mean, then variance around it, in float32.
// @kernel("layer_norm", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0),
//         space={"threads": (4, 8, 16, 32, 64, 128, 256, 512, 1024)})
// @launch(grid=ceil_div(rows, ROWS), block=ROWS * THREADS,
//         defines={"COLS": cols, "THREADS": min(512, max(4, next_power_of_2(ceil_div(cols * itemsize, 64)))),
//                  "ROWS": 128 // THREADS if THREADS <= 32 else 1})
// @call("layer_norm<T>", x, weight, bias, out, rows, eps)

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
    __syncthreads();  // the sums of the last call have been read
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    float sum = 0;
    for (int warp = 0; warp < WARPS; ++warp) sum += of_warp[warp];
    return sum;
}

template <typename T>
__global__ void __launch_bounds__(ROWS * THREADS)
layer_norm(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ out, int rows, float eps) {
    constexpr int WIDE = 16 / sizeof(T), WIDTH = COLS % WIDE ? 1 : WIDE;  // elements of one load
    constexpr int PACKETS = COLS / WIDTH, TURNS = (PACKETS + THREADS - 1) / THREADS;
    constexpr bool HELD = TURNS * WIDTH * sizeof(T) <= 128;  // a longer row is read three times, twice from the cache
    using P = Packet<T, WIDTH>;

    const int thread = threadIdx.x % THREADS;
    const int number = min(blockIdx.x * ROWS + threadIdx.x / THREADS, rows - 1);  // spare threads do the last row again
    const P* row = reinterpret_cast<const P*>(x + (long long)number * COLS);
    P held[HELD ? TURNS : 1];
    if constexpr (HELD) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            int at = thread + turn * THREADS;
            if (at < PACKETS) held[turn] = row[at];
        }
    }
    // Calls use(position, packet) for the packets of this thread.
    auto each = [&](auto use) {
#pragma unroll (HELD ? TURNS : 1)
        for (int turn = 0; turn < TURNS; ++turn) {
            int at = thread + turn * THREADS;
            if (at < PACKETS) {
                if constexpr (HELD) use(at, held[turn]);
                else use(at, row[at]);
            }
        }
    };

    float sum = 0, squares = 0;
    each([&](int, const P& packet) {
        for (int i = 0; i < WIDTH; ++i) sum += float(packet.value[i]);
    });
    const float mean = sum_of_row(sum) / COLS;
    each([&](int, const P& packet) {
        for (int i = 0; i < WIDTH; ++i) {
            float centred = float(packet.value[i]) - mean;
            squares += centred * centred;
        }
    });
    const float scale = rsqrtf(sum_of_row(squares) / COLS + eps);

    const P* weights = reinterpret_cast<const P*>(weight);
    const P* biases = reinterpret_cast<const P*>(bias);
    P* result = reinterpret_cast<P*>(out + (long long)number * COLS);
    each([&](int at, const P& packet) {
        P w = weights[at], b = biases[at], made;
        for (int i = 0; i < WIDTH; ++i)
            made.value[i] = T((float(packet.value[i]) - mean) * scale * float(w.value[i]) + float(b.value[i]));
        result[at] = made;
    });
}
