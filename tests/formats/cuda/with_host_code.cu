__global__ void swish(const float* x, float* out, int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) out[i] = x[i] / (1.0f + expf(-x[i]));
}

void launch(const float* x, float* out, int rows, int cols) {
    swish<<<(rows * cols + 255) / 256, 256>>>(x, out, rows, cols);
}
