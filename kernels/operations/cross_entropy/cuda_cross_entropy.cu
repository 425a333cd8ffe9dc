// Short rows share a block, a long one has its own: maximum and sum of exponentials in one pass; the last block adds all losses.
// @kernel("cross_entropy", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0),
//         space={"lanes": (4, 8, 16, 32, 256)})
// @launch(grid=min(ceil_div(rows, 256 // LANES), 8 * sms, 4096), block=256,
//         defines={"LANES": max(4, next_power_of_2(ceil_div(vocab * itemsize, 64))) if vocab * itemsize <= 2048 else 256})
// @call("cross_entropy<T, vocab * itemsize % 16 == 0>", logits, targets, out, rows, vocab)

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// LANES threads have a row: a part of a warp, or the whole block.
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

    __device__ void join(float other, float its_sum) {
        const float most = fmaxf(largest, other);
        sum = sum * exp2f((largest - most) * LOG2E) + its_sum * exp2f((other - most) * LOG2E);
        largest = most;
    }
};

// The whole row, in each of its threads.
__device__ Part over_row(Part own) {
    for (int lane = LANES < 32 ? LANES / 2 : 16; lane > 0; lane /= 2)
        own.join(__shfl_xor_sync(~0u, own.largest, lane), __shfl_xor_sync(~0u, own.sum, lane));
    if (LANES <= 32) return own;
    __shared__ Part of_warp[WARPS];
    __syncthreads();  // the parts of the last row have been read
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    Part row;
    for (int warp = 0; warp < WARPS; ++warp) row.join(of_warp[warp].largest, of_warp[warp].sum);
    return row;
}

template <typename T, bool ALIGNED>
__global__ void __launch_bounds__(THREADS)
cross_entropy(const T* __restrict__ logits, const long long* __restrict__ targets, float* __restrict__ out, int rows, int vocab) {
    constexpr int WIDTH = ALIGNED ? 16 / sizeof(T) : 1;
    using P = Packet<T, WIDTH>;
    const int lane = threadIdx.x % LANES;
    float losses = 0;
    for (int first = blockIdx.x * AT_ONCE; first < rows; first += gridDim.x * AT_ONCE) {
        const int row = first + threadIdx.x / LANES;
        const T* values = logits + (long long)min(row, rows - 1) * vocab;  // spare threads do the last row again, and drop it
        const P* packets = reinterpret_cast<const P*>(values);
        Part own;
        for (int at = lane; at < vocab / WIDTH; at += LANES) {
            const P packet = packets[at];
            float some[WIDTH];
            for (int i = 0; i < WIDTH; ++i) some[i] = float(packet.value[i]);
            own.add(some);
        }
        const Part whole = over_row(own);
        if (lane == 0 && row < rows) losses += logf(whole.sum) + whole.largest - float(values[targets[row]]);
    }
    losses = sum_of_block(losses);
    bool is_last;
    const float total = sum_of_grid(losses, is_last);
    if (is_last && threadIdx.x == 0) *out = total / rows;
}
