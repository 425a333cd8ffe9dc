// Tiles of 128 x 128 x 32 in shared memory, three deep, by cp.async; products by wmma on tensor cores, sums in float32.
// @kernel("gemm", dtypes=("float16", "bfloat16"), needs=cuda(min_capability=8.0), limits={"batch": (1,)})
// @launch(grid=(ceil_div(n, 128), ceil_div(m, 128)), block=256, shared=3 * 2 * (128 * 40 + 32 * 136))
// @call("gemm<T, k % 8 == 0 and n % 8 == 0>", a, b, out, m, n, k)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int M = 128, N = 128, K = 32, STAGES = 3, THREADS = 256;
constexpr int PAD = 8;  // of a row in shared memory: neighbouring rows then begin in other banks
constexpr int A_ROW = K + PAD, B_ROW = N + PAD, STAGE = M * A_ROW + K * B_ROW;  // elements
constexpr int WARP_M = 64, WARP_N = 32, WARPS_N = N / WARP_N;
constexpr int SIDE = 16, OUT_ROW = SIDE + 4;  // of a fragment; of a fragment of sums in shared memory
constexpr int CHUNK = 8;  // elements of 16 bytes

static_assert(THREADS / 32 == (M / WARP_M) * WARPS_N, "each warp has a part of the tile");
static_assert(THREADS / 32 * SIDE * OUT_ROW * 4 <= STAGES * STAGE * 2, "the sums fit where the tiles were");

// Starts to copy 16 bytes into shared memory; zeros where they are outside of the matrix.
__device__ void copy_chunk(void* to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(inside ? 16 : 0));
}

// Copies ROWS x COLS elements of a matrix of rows x cols, from (row, col) on, into shared memory with rows of WIDTH.
template <int ROWS, int COLS, int WIDTH, bool ALIGNED, typename T>
__device__ void copy_tile(T* to, const T* from, int row, int col, int rows, int cols) {
    constexpr int EACH = ALIGNED ? CHUNK : 1;
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * COLS / EACH; i += THREADS) {
        const int r = i / (COLS / EACH), c = i % (COLS / EACH) * EACH;
        const bool inside = row + r < rows && col + c < cols;
        const T* element = from + (inside ? (long long)(row + r) * cols + col + c : 0);
        if constexpr (ALIGNED) copy_chunk(to + r * WIDTH + c, element, inside);
        else to[r * WIDTH + c] = inside ? *element : T(0.0f);
    }
}

template <typename T, bool ALIGNED>
__global__ void __launch_bounds__(THREADS)
gemm(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int m, int n, int k) {
    extern __shared__ __align__(128) unsigned char memory[];
    T* tiles = reinterpret_cast<T*>(memory);
    const int row = blockIdx.y * M, col = blockIdx.x * N, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / WARPS_N * WARP_M, warp_col = warp % WARPS_N * WARP_N;
    const int steps = (k + K - 1) / K;

    auto fetch = [&](int step) {
        if (step < steps) {
            T* tile = tiles + step % STAGES * STAGE;
            copy_tile<M, K, A_ROW, ALIGNED>(tile, a, row, step * K, m, k);
            copy_tile<K, N, B_ROW, ALIGNED>(tile + M * A_ROW, b, step * K, col, k, n);
        }
        asm volatile("cp.async.commit_group;");
    };

    wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> sums[WARP_M / SIDE][WARP_N / SIDE];
    for (auto& line : sums)
        for (auto& sum : line) wmma::fill_fragment(sum, 0.0f);

    for (int step = 0; step < STAGES - 1; ++step) fetch(step);
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();  // this tile has arrived, and nobody reads the one that is replaced next
        fetch(step + STAGES - 1);
        const T* left = tiles + step % STAGES * STAGE;
        const T* right = left + M * A_ROW;
#pragma unroll
        for (int inner = 0; inner < K; inner += SIDE) {
            wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, T, wmma::row_major> of_a[WARP_M / SIDE];
            wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, T, wmma::row_major> of_b[WARP_N / SIDE];
#pragma unroll
            for (int i = 0; i < WARP_M / SIDE; ++i)
                wmma::load_matrix_sync(of_a[i], left + (warp_row + i * SIDE) * A_ROW + inner, A_ROW);
#pragma unroll
            for (int j = 0; j < WARP_N / SIDE; ++j)
                wmma::load_matrix_sync(of_b[j], right + inner * B_ROW + warp_col + j * SIDE, B_ROW);
#pragma unroll
            for (int i = 0; i < WARP_M / SIDE; ++i)
#pragma unroll
                for (int j = 0; j < WARP_N / SIDE; ++j) wmma::mma_sync(sums[i][j], of_a[i], of_b[j], sums[i][j]);
        }
    }

    asm volatile("cp.async.wait_all;");
    __syncthreads();  // the tiles are not needed any more: their memory takes the sums
    float* own = reinterpret_cast<float*>(memory) + warp * SIDE * OUT_ROW;
#pragma unroll
    for (int i = 0; i < WARP_M / SIDE; ++i)
#pragma unroll
        for (int j = 0; j < WARP_N / SIDE; ++j) {
            wmma::store_matrix_sync(own, sums[i][j], OUT_ROW, wmma::mem_row_major);
            __syncwarp();
            for (int at = lane; at < SIDE * SIDE; at += 32) {
                const int r = row + warp_row + i * SIDE + at / SIDE, c = col + warp_col + j * SIDE + at % SIDE;
                if (r < m && c < n) out[(long long)r * n + c] = T(own[at / SIDE * OUT_ROW + at % SIDE]);
            }
            __syncwarp();
        }
}
