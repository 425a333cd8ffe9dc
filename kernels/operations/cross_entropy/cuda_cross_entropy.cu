// Short rows share a block, a long one has its own: maximum and sum of exponentials in one pass; the last block adds all losses.
// @kernel("cross_entropy", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0),
//         space={"lanes": (4, 8, 16, 32, 256), "deep": (1, 2, 3, 4, 6), "blocks": (2, 4, 6, 8)})
// @launch(grid=min(ceil_div(rows, 256 // LANES), BLOCKS * sms, 4096), block=256, options={"ftz": True},
//         defines={"BYTES": vocab * itemsize,
//                  "LANES": 256 if BYTES > 6144 else max(
//                      4, min(8, next_power_of_2(ceil_div(BYTES, 32))), next_power_of_2(ceil_div(BYTES, 192))),
//                  "DEEP": 1 if LANES == 256 else min(4, ceil_div(BYTES, 16 * LANES)), "BLOCKS": 8 if LANES == 256 else 4})
// @call("cross_entropy<T, vocab * itemsize % 16 == 0>", logits, targets, out, rows, vocab)

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// LANES threads have a row: a part of a warp, or the whole block. Each has DEEP loads under way at a time.
constexpr int THREADS = 256, WARPS = THREADS / 32, AT_ONCE = THREADS / LANES, MOST_BLOCKS = 4096;
constexpr float LOG2E = 1.4426950408889634f;

template <typename T, int N> struct alignas(N * sizeof(T)) Packet {
    T value[N];
};

__device__ float parts[MOST_BLOCKS];  // the sum of each block
__device__ unsigned ended;            // blocks that have kept theirs; 0 again after each launch

// The sum over all threads of the block, in every one of them.
__device__ float sum_of_block(float own) {
    __shared__ float of_warp[WARPS];
    for (int lane = 16; lane > 0; lane /= 2) own += __shfl_xor_sync(~0u, own, lane);
    __syncthreads();  // the sums of the last call have been read
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    float sum = 0;
    for (int warp = 0; warp < WARPS; ++warp) sum += of_warp[warp];
    return sum;
}

// The sum of all blocks' values, in all threads of the last block that calls, which is told.
__device__ float sum_of_grid(float of_block, bool& is_last_block) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = of_block;
        __threadfence();
        is_last = atomicAdd(&ended, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    is_last_block = is_last;
    if (!is_last) return 0;
    __threadfence();
    float sum = 0;
    for (int block = threadIdx.x; block < gridDim.x; block += THREADS) sum += *(volatile float*)(parts + block);
    if (threadIdx.x == 0) ended = 0;
    return sum_of_block(sum);
}

// A part of a row: its largest value, and the sum of exp(value - largest).
struct Part {
    float largest = -3.4028235e38f, sum = 0;

    template <int N> __device__ void add(const float (&values)[N]) {
        float most = largest;
        for (int i = 0; i < N; ++i) most = fmaxf(most, values[i]);
        sum *= exp2f((largest - most) * LOG2E);
        for (int i = 0; i < N; ++i) sum += exp2f((values[i] - most) * LOG2E);
        largest = most;
    }

    // Its sum, relative to a value that is no smaller than its largest.
    __device__ float relative_to(float most) const { return sum * exp2f((largest - most) * LOG2E); }
};

// The whole row, in each of its threads.
__device__ Part over_row(Part own) {
    Part row = own;
    constexpr int HALF = LANES < 32 ? LANES / 2 : 16;
    for (int lane = HALF; lane > 0; lane /= 2) row.largest = fmaxf(row.largest, __shfl_xor_sync(~0u, row.largest, lane));
    row.sum = own.relative_to(row.largest);
    for (int lane = HALF; lane > 0; lane /= 2) row.sum += __shfl_xor_sync(~0u, row.sum, lane);
    if (LANES <= 32) return row;
    __shared__ Part of_warp[WARPS];
    __syncthreads();  // the parts of the last row have been read
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = row;
    __syncthreads();
    for (int warp = 0; warp < WARPS; ++warp) row.largest = fmaxf(row.largest, of_warp[warp].largest);
    row.sum = 0;
    for (int warp = 0; warp < WARPS; ++warp) row.sum += of_warp[warp].relative_to(row.largest);
    return row;
}

template <typename T, bool ALIGNED>
__global__ void __launch_bounds__(THREADS, BLOCKS)
cross_entropy(const T* __restrict__ logits, const long long* __restrict__ targets, float* __restrict__ out, int rows, int vocab) {
    constexpr int WIDTH = ALIGNED ? 16 / sizeof(T) : 1;
    using P = Packet<T, WIDTH>;
    const int lane = threadIdx.x % LANES, packets = vocab / WIDTH;
    float losses = 0;
    int row = blockIdx.x * AT_ONCE + threadIdx.x / LANES;
    long long target = targets[min(row, rows - 1)];
    for (int first = blockIdx.x * AT_ONCE; first < rows; first += gridDim.x * AT_ONCE) {
        const T* values = logits + (long long)min(row, rows - 1) * vocab;  // spare threads do the last row again, and drop it
        const P* at = reinterpret_cast<const P*>(values);
        Part own;
        for (int start = lane; start < packets; start += DEEP * LANES) {
            P packet[DEEP];
            for (int i = 0; i < DEEP; ++i)
                if (start + i * LANES < packets) packet[i] = at[start + i * LANES];
            for (int i = 0; i < DEEP; ++i) {
                float some[WIDTH];
                for (int j = 0; j < WIDTH; ++j)
                    some[j] = start + i * LANES < packets ? float(packet[i].value[j]) : -INFINITY;
                own.add(some);
            }
        }
        const float right = float(values[target]);  // here, so that the loads above do not wait for the target
        const bool counts = lane == 0 && row < rows;
        row += gridDim.x * AT_ONCE;
        target = targets[min(row, rows - 1)];  // of the next row: it arrives while that row does
        const Part whole = over_row(own);
        const float loss = logf(whole.sum) + whole.largest - right;
        losses += counts ? loss : 0;
    }
    losses = sum_of_block(losses);
    bool is_last;
    const float total = sum_of_grid(losses, is_last);
    if (is_last && threadIdx.x == 0) *out = total / rows;
}
