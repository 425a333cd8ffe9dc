// One thread for each element of the product.
// gemm<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(a, b, out, m, n, k);
__global__ void gemm(const float* __restrict__ a, const float* __restrict__ b, float* out, int m, int n, int k) {
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
    out[row * n + col] = sum;
}
