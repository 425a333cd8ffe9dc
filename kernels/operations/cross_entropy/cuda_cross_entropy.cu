// A block for each row: maximum and sum of exponentials in one pass; the last block adds the losses of all.
// @kernel("cross_entropy", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0))
// @launch(grid=min(rows, 4096), block=256)
// @call("cross_entropy<T, vocab * itemsize % 16 == 0>", logits, targets, out, rows, vocab)

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int THREADS = 256, WARPS = THREADS / 32, MOST_BLOCKS = 4096;

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

    __device__ void add(float value) {
        if (value > largest) {
            sum = sum * expf(largest - value) + 1;
            largest = value;
        } else {
            sum += expf(value - largest);
        }
    }

    __device__ void join(float other, float its_sum) {
        const float most = fmaxf(largest, other);
        sum = sum * expf(largest - most) + its_sum * expf(other - most);
        largest = most;
    }
};

// The whole row, in every thread of the block.
__device__ Part row_of_block(Part own) {
    __shared__ Part of_warp[WARPS];
    for (int lane = 16; lane > 0; lane /= 2)
        own.join(__shfl_xor_sync(~0u, own.largest, lane), __shfl_xor_sync(~0u, own.sum, lane));
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
    float losses = 0;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* values = logits + (long long)row * vocab;
        const P* packets = reinterpret_cast<const P*>(values);
        Part own;
        for (int at = threadIdx.x; at < vocab / WIDTH; at += THREADS) {
            P packet = packets[at];
            for (int i = 0; i < WIDTH; ++i) own.add(float(packet.value[i]));
        }
        const Part whole = row_of_block(own);
        losses += logf(whole.sum) + whole.largest - float(values[targets[row]]);
    }
    bool is_last;
    const float total = sum_of_grid(losses, is_last);
    if (is_last && threadIdx.x == 0) *out = total / rows;
}
