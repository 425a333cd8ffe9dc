// layer_norm<<<rows, 1>>>(x, weight, bias, out, cols, eps)
__global__ void layer_norm(const float* x, const float* weight, const float* bias, float* out, int cols, float eps) {
    const float* row = x + (size_t)blockIdx.x * cols;
    float mean = 0.0f, spread = 0.0f;
    for (int i = 0; i < cols; ++i) mean += row[i];
    mean /= cols;
    for (int i = 0; i < cols; ++i) spread += (row[i] - mean) * (row[i] - mean);
    float scale = rsqrtf(spread / cols + eps);
    for (int i = 0; i < cols; ++i) out[(size_t)blockIdx.x * cols + i] = (row[i] - mean) * scale * weight[i] + bias[i];
}
