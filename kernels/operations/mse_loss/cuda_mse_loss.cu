// One pass over both, 16 bytes at a time; the last block to end adds the sums of all, in their order.
// @kernel("mse_loss", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0),
//         space={"threads": (128, 256, 512, 1024), "blocks": (1, 2, 4, 8, 16)})
// @launch(grid=min(sms * BLOCKS, 4096, ceil_div(rows * cols * itemsize, THREADS * 16)), block=THREADS,
//         defines={"THREADS": 256, "BLOCKS": 8})
// @call("mse_loss<T>", values, targets, out, long(rows * cols))

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int WARPS = THREADS / 32, MOST_BLOCKS = 4096;

template <typename T> struct alignas(16) Packet {
    static constexpr int WIDTH = 16 / sizeof(T);
    T value[WIDTH];
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

__device__ float squared(float difference) { return difference * difference; }

template <typename T>
__global__ void __launch_bounds__(THREADS)
mse_loss(const T* __restrict__ values, const T* __restrict__ targets, float* __restrict__ out, long long count) {
    using P = Packet<T>;
    const P* left = reinterpret_cast<const P*>(values);
    const P* right = reinterpret_cast<const P*>(targets);
    const long long whole = count / P::WIDTH, first = (long long)blockIdx.x * THREADS + threadIdx.x;
    float sum = 0;
    for (long long at = first; at < whole; at += (long long)gridDim.x * THREADS) {
        P a = left[at], b = right[at];
        for (int i = 0; i < P::WIDTH; ++i) sum += squared(float(a.value[i]) - float(b.value[i]));
    }
    if (first < count % P::WIDTH) {  // the last packet is not whole
        long long at = whole * P::WIDTH + first;
        sum += squared(float(values[at]) - float(targets[at]));
    }
    bool is_last;
    const float total = sum_of_grid(sum_of_block(sum), is_last);
    if (is_last && threadIdx.x == 0) *out = total / count;
}
